"""Records the observations of a lane's probes in its run directory, during training or for a finished run."""

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
    """Runs the probes of one lane and writes their results to figures/, the event file and run.json.

    Args:
        run: the run directory, locked by the caller.
        probing: runs the probes.
    """

    def __init__(self, run: Run, probing: ProbeRunner) -> None:
        self.probing, self.figures = probing, Figures(run.path)
        self.last_scalars: dict[str, float | None] = {}
        self.observed_with: dict[str, str] = {}  # fingerprint of the probe by its name; empty where it failed
        self.fingerprints = {c.name: probe_fingerprint(c, probing.registry) for c in probing.job.probes}
        if self.fingerprints:
            self.figures.remove_stale(self.fingerprints)

    def resume(self, step: int) -> list[str]:
        """Load the records of an interrupted run up to a step, delete later ones, and return the notes they hold."""
        self.figures.remove_after(step)
        records = [*self.figures.records()] if self.probing.job.probes else []
        for record in records:
            self._register(record["probe"], record)
        for name in {record["probe"] for record in records if not record["fits"]}:
            self.probing.drop(name)
        return [text for record in records if (text := record.get("told", ""))]

    def observe(self, lane: Lane, events: EventFile | None, *, is_end: bool) -> list[str]:
        """Run the probes that are due and return the notes for run.json: errors and warnings.

        Args:
            lane: at the step that is observed.
            events: event file that shows the results too, if any.
            is_end: True at the last step, at which every probe is due.
        """
        results = self.probing.observe(lane, is_end=is_end)
        return [text for result in results if (text := self._record(result, events))]

    def _record(self, result: ProbeResult, events: EventFile | None) -> str:
        began, fingerprint = time.perf_counter(), self.fingerprints[result.choice.name]
        try:
            record = self.figures.save(result, fingerprint)
            if events is not None:
                events.figures(record, self.figures)
            self._register(result.choice.name, record)
        except Exception as error:  # a plugin may return anything
            result.error = result.error or error
            with contextlib.suppress(Exception):  # a full disk
                self._register(result.choice.name, self.figures.save(result, fingerprint))
        self.probing.seconds["drawing"] += time.perf_counter() - began  # writing pictures is most of it
        return result.message()

    def _register(self, probe: str, record: ObservationRecord) -> None:
        self.last_scalars |= {f"{probe}/{name}": value for name, value in record.get("scalars", {}).items()}
        self.observed_with[probe] = record.get("made_by", "") if not record.get("failed") else ""

    def facts(self) -> dict[str, Any]:
        """Return the entries of run.json: last scalars, fingerprints and seconds spent; empty without probes."""
        if not self.probing.job.probes:
            return {}
        spent = {name: round(seconds, 3) for name, seconds in self.probing.seconds.items()}
        probing = spent | {"pictures": self.probing.num_drawn}
        return {"probes": self.last_scalars, "looked": self.observed_with, "probing": probing}


def observe_finished_run(run: Run, lane: Lane, fingerprint: str, probing: ProbeRunner) -> None:
    """Run probes on the final weights of a finished run that was trained without them.

    run.json is written last, so that a process killed in between repeats all of it.

    Args:
        run: the run directory, locked by the caller.
        lane: built from the run's job; its weights and step are replaced by those of model.pt.
        fingerprint: of the job.
        probing: runs the probes that are missing.

    Raises:
        RecordError: if model.pt is missing, damaged or of another job.
    """
    began, facts = time.time(), run.read()
    content = load_checkpoint(run.path / MODEL_FILE)
    if content.get("fingerprint") != fingerprint:
        raise RecordError(f"{run.path / MODEL_FILE} belongs to another job. Move the directory away.")
    lane.module.load_state_dict(content["weights"])
    lane.step = content["step"]
    recorder = ProbeRecorder(run, probing)
    new_notes = recorder.observe(lane, None, is_end=True)
    with replace_event_file(run.path, lane, began) as events:
        events.session_end("finished", lane.step, metrics=facts.get("metrics"))
    _merge_facts(run, facts, recorder, new_notes)


def _merge_facts(run: Run, facts: dict[str, Any], recorder: ProbeRecorder, new_notes: list[str]) -> None:
    """Replace the notes and scalars of the probes that observed now, and keep those of all others."""
    choices = recorder.probing.job.probes
    names, titles = [choice.name for choice in choices], tuple(map(probe_title, choices))
    notes = [text for text in facts.get("notes", []) if not text.startswith(titles)]
    others = {key: value for key, value in facts.get("probes", {}).items() if key.partition("/")[0] not in names}
    new = recorder.facts()
    new |= {"probes": others | new["probes"], "looked": facts.get("looked", {}) | new["looked"]}
    run.write(status="finished", notes=notes + new_notes, **new)
