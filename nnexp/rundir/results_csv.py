"""results.csv of a sweep: a row for each job, as its run directory has it, rewritten whenever a run ends."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nnexp.base import write_atomically
from nnexp.config import format_value, label
from nnexp.rundir.create import experiment_folder
from nnexp.rundir.planned_run import PlannedRun, swept

HEAD = ("run", "status", "steps", "seconds", "path", "error")
PREFIX = "sweep-"


def results_csv_path(planned: Sequence[PlannedRun]) -> Path:
    """Where the table of a sweep lies.

    The folder's name holds what is swept and a hash of the jobs, so that the same command finds it again.
    """
    digits = hashlib.sha256("".join(item.fingerprint for item in planned).encode()).hexdigest()[:8]
    names = list(dict.fromkeys(key.rpartition(".")[2] for key in swept(planned)))
    return experiment_folder(planned[0].job) / f"{PREFIX}{label(names)}-{digits}" / "results.csv"


class ResultsCsv:
    """The table of one sweep: configuration, how each run ended, final metrics, last numbers of probes."""

    def __init__(self, planned: Sequence[PlannedRun]) -> None:
        self.planned, self.path = planned, results_csv_path(planned)
        self._config = [item.job.flat() for item in planned]
        self._keys = list(dict.fromkeys(key for flat in self._config for key in flat))
        self._metrics: dict[str, None] = {}  # names in the order in which they came
        self._rows = [""] * len(planned)
        self._written = b""

    def update(self, planned: Iterable[PlannedRun], step: int = 0) -> None:
        """Some rows anew; `step` is where those are that are in training. Nothing is written where nothing has changed.

        Raises OSError where it cannot be.
        """
        known, facts = len(self._metrics), {item.number: item.facts() for item in planned}
        self._metrics |= {name: None for each in facts.values() for name in numbers_of(each)}
        there = self.path.read_bytes() if self.path.exists() else b""
        if len(self._metrics) > known or there != self._written or not there:  # a column more, or another's rows
            facts |= {item.number: item.facts() for item in self.planned if item.number not in facts}
            self._metrics |= {name: None for each in facts.values() for name in numbers_of(each)}
        for number, each in facts.items():
            if each.get("status") == "running":
                each["steps"] = max(step, each.get("steps", 0))
            self._rows[number] = self._row(self.planned[number], each)
        head = _line([*HEAD, *self._keys, *self._metrics])
        content = "".join([head, *self._rows]).encode()
        if content != there:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, content)
        self._written = content

    def _row(self, item: PlannedRun, facts: dict[str, Any]) -> str:
        path = "" if item.found is None else os.path.relpath(item.found.path, self.path.parent)
        head = [path, facts.get("status", "new"), facts.get("steps", 0), facts.get("seconds", 0.0), facts.get("path")]
        head.append((facts.get("error") or {}).get("message"))
        config, metrics = self._config[item.number], numbers_of(facts)
        return _line([*head, *(_cell(config.get(key)) for key in self._keys), *map(metrics.get, self._metrics)])


def numbers_of(facts: dict[str, Any]) -> dict[str, Any]:
    """The final metrics of a run, and the last numbers of its probes."""
    return {**facts.get("metrics", {}), **facts.get("probes", {})}


def _line(cells: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _cell(value: Any) -> Any:
    return format_value(value) if isinstance(value, list | tuple) else value
