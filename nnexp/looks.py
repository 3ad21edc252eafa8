"""What the probes of one lane see, on its way into the run directory, in training and after it."""

from __future__ import annotations

import time
from typing import Any

from nnexp.checkpoint import MODEL, load
from nnexp.errors import RecordError
from nnexp.events import Events
from nnexp.figures import Figures
from nnexp.lane import Lane
from nnexp.probing import Probing, Sight, about
from nnexp.record import Run
from nnexp.replay import Points, new_events


class Looks:
    """Records what the probes of a lane see.

    Args:
        run: the directory, locked by the caller.
        probing: the probes.
    """

    def __init__(self, run: Run, probing: Probing) -> None:
        self.probing, self.figures = probing, Figures(run.path)
        self.last: dict[str, float | None] = {}
        for choice in probing.job.probes:
            self.figures.forget_others(choice.name, probing.made_by(choice))

    def look(self, lane: Lane, events: Events, *, is_end: bool) -> list[str]:
        """Have those look that are due. Gives what there is to say of them."""
        sights = self.probing.look(lane, is_end=is_end)
        return [text for sight in sights if (text := self._keep(sight, events))]

    def _keep(self, sight: Sight, events: Events) -> str:
        began = time.perf_counter()
        try:
            if sight.error is None:
                record = self.figures.save(sight, self.probing.made_by(sight.choice))
                events.figures(record, self.figures)
                scalars = record.get("scalars", {})
                self.last |= {f"{sight.choice.name}/{name}": value for name, value in scalars.items()}
        except Exception as error:  # what a probe gives may be anything
            sight.error = error
        self.probing.seconds["drawing"] += time.perf_counter() - began  # to write pictures is most of it
        return sight.told()

    def facts(self) -> dict[str, Any]:
        """What run.json says: the last numbers, and the time that all took; nothing of a job without probes."""
        if not self.probing.job.probes:
            return {}
        spent = {name: round(seconds, 3) for name, seconds in self.probing.seconds.items()}
        return {"probes": self.last, "probing": spent | {"pictures": self.probing.num_drawn}}


def look_again(run: Run, lane: Lane, fingerprint: str, probing: Probing) -> None:
    """Have probes look into a run that finished without them, at its last step, with the weights that it ended with.

    Raises RecordError where these are gone.
    """
    began, facts = time.time(), run.read()
    content = load(run.path / MODEL)
    if content.get("fingerprint") != fingerprint:
        raise RecordError(f"{run.path / MODEL} is of another job. Move the directory away.")
    lane.module.load_state_dict(content["weights"])
    lane.step = content["step"]
    looks = Looks(run, probing)
    events = new_events(run.path, lane, began, Points(lane), replayed=True)
    mine = tuple(about(choice) for choice in probing.job.probes)
    notes = [text for text in facts.get("notes", []) if not text.startswith(mine)]  # they say now what they say
    notes += looks.look(lane, events, is_end=True)
    events.session_end("finished", lane.step, metrics=facts.get("metrics"))
    events.flush()
    mine = tuple(f"{choice.name}/" for choice in probing.job.probes)
    others = {name: value for name, value in facts.get("probes", {}).items() if not name.startswith(mine)}
    now = looks.facts()
    run.write(status="finished", notes=notes, probes=others | now["probes"], probing=now["probing"])
