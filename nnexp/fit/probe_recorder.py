"""What the probes of one lane see, on its way into the run directory, in training and after it."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from nnexp.base import RecordError
from nnexp.fit.event_replay import replace_event_file
from nnexp.probing import ProbeRunner
from nnexp.rundir import (
    MODEL_FILE,
    Figures,
    ObservationRecord,
    ProbeResult,
    Run,
    load_checkpoint,
    probe_fingerprint,
    probe_title,
)
from nnexp.tensorboard import EventFile
from nnexp.training import Lane


class ProbeRecorder:
    """Records what the probes of a lane see.

    Args:
        run: the directory, locked by the caller.
        probing: the probes.
    """

    def __init__(self, run: Run, probing: ProbeRunner) -> None:
        self.probing, self.figures = probing, Figures(run.path)
        self.last: dict[str, float | None] = {}
        self.looked: dict[str, str] = {}
        self.made_by = {choice.name: probe_fingerprint(choice, probing.registry) for choice in probing.job.probes}
        if self.made_by:
            self.figures.remove_stale(self.made_by)

    def go_on(self, step: int) -> list[str]:
        """Take over what was seen up to a step, of a run that was interrupted; gives what was said of it."""
        self.figures.remove_after(step)
        records = [*self.figures.records()] if self.probing.job.probes else []
        for record in records:
            self._note(record["probe"], record)
        for name in {record["probe"] for record in records if not record["fits"]}:
            self.probing.drop(name)
        return [text for record in records if (text := record.get("told", ""))]

    def look(self, lane: Lane, events: EventFile | None, *, is_end: bool) -> list[str]:
        """Have those look that are due. Gives what there is to say of them.

        Args:
            events: where what they see is shown as well.
        """
        sights = self.probing.observe(lane, is_end=is_end)
        return [text for sight in sights if (text := self._keep(sight, events))]

    def _keep(self, sight: ProbeResult, events: EventFile | None) -> str:
        began, by = time.perf_counter(), self.made_by[sight.choice.name]
        try:
            record = self.figures.save(sight, by)
            if events is not None:
                events.figures(record, self.figures)
            self._note(sight.choice.name, record)
        except Exception as error:  # what a probe gives may be anything
            sight.error = sight.error or error
            with contextlib.suppress(Exception):  # a full disk
                self._note(sight.choice.name, self.figures.save(sight, by))
        self.probing.seconds["drawing"] += time.perf_counter() - began  # to write pictures is most of it
        return sight.message()

    def _note(self, probe: str, record: ObservationRecord) -> None:
        self.last |= {f"{probe}/{name}": value for name, value in record.get("scalars", {}).items()}
        self.looked[probe] = record.get("made_by", "") if not record.get("failed") else ""

    def facts(self) -> dict[str, Any]:
        """What run.json says: the last numbers, and the time that all took; nothing of a job without probes."""
        if not self.probing.job.probes:
            return {}
        spent = {name: round(seconds, 3) for name, seconds in self.probing.seconds.items()}
        probing = spent | {"pictures": self.probing.num_drawn}
        return {"probes": self.last, "looked": self.looked, "probing": probing}


def observe_finished_run(run: Run, lane: Lane, fingerprint: str, probing: ProbeRunner) -> None:
    """Have probes look into a run that finished without them, at its last step, with the weights that it ended with.

    Killed at any moment, it is done again: run.json says last that they looked. Raises RecordError where the weights
    are gone.
    """
    began, facts = time.time(), run.read()
    content = load_checkpoint(run.path / MODEL_FILE)
    if content.get("fingerprint") != fingerprint:
        raise RecordError(f"{run.path / MODEL_FILE} is of another job. Move the directory away.")
    lane.module.load_state_dict(content["weights"])
    lane.step = content["step"]
    looks = ProbeRecorder(run, probing)
    told = looks.look(lane, None, is_end=True)
    with replace_event_file(run.path, lane, began) as events:
        events.session_end("finished", lane.step, metrics=facts.get("metrics"))
    names = [choice.name for choice in probing.job.probes]
    mine = tuple(probe_title(choice) for choice in probing.job.probes)
    notes = [text for text in facts.get("notes", []) if not text.startswith(mine)]  # they say now what they say
    others = {key: value for key, value in facts.get("probes", {}).items() if key.partition("/")[0] not in names}
    now = looks.facts()
    now |= {"probes": others | now["probes"], "looked": facts.get("looked", {}) | now["looked"]}
    run.write(status="finished", notes=notes + told, **now)
