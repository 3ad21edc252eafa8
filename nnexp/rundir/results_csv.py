"""Write results.csv of a sweep: one row per job from its run directory, rewritten whenever a run ends."""

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
from nnexp.rundir.create_run_dir import experiment_folder
from nnexp.rundir.planned_run import PlannedRun, swept_keys

HEAD = ("run", "status", "steps", "seconds", "path", "error")
PREFIX = "sweep-"


def results_csv_path(planned: Sequence[PlannedRun]) -> Path:
    """Return the path of a sweep's table.

    The folder's name holds the swept keys and a hash of the jobs, so the same command finds the same table.
    """
    digits = hashlib.sha256("".join(item.fingerprint for item in planned).encode()).hexdigest()[:8]
    names = list(dict.fromkeys(key.rpartition(".")[2] for key in swept_keys(planned)))
    return experiment_folder(planned[0].job) / f"{PREFIX}{label(names)}-{digits}" / "results.csv"


class ResultsCsv:
    """Writer of one sweep's table: configuration, status, final metrics and last scalars of probes of each run.

        results = ResultsCsv(planned)
        results.update(planned)

    Args:
        planned: the jobs of the sweep, in the order of the command.
    """

    def __init__(self, planned: Sequence[PlannedRun]) -> None:
        self.planned, self.path = planned, results_csv_path(planned)
        self._config = [item.job.flat() for item in planned]
        self._keys = list(dict.fromkeys(key for flat in self._config for key in flat))
        self._metrics: dict[str, None] = {}  # names in order of first appearance
        self._rows = [""] * len(planned)
        self._written = b""

    def update(self, planned: Iterable[PlannedRun], step: int = 0) -> None:
        """Read the run directories of some jobs again and rewrite the file if its content changes.

        Args:
            planned: jobs whose rows may have changed.
            step: updates done by those of them that are running.

        Raises:
            OSError: the file cannot be written.
        """
        num_metrics, facts = len(self._metrics), {item.number: item.facts() for item in planned}
        self._metrics |= {name: None for each in facts.values() for name in _numbers_of(each)}
        on_disk = self.path.read_bytes() if self.path.exists() else b""
        # A new column, or rows that another process wrote: every row is read again.
        if len(self._metrics) > num_metrics or on_disk != self._written or not on_disk:
            facts |= {item.number: item.facts() for item in self.planned if item.number not in facts}
            self._metrics |= {name: None for each in facts.values() for name in _numbers_of(each)}
        for number, each in facts.items():
            if each.get("status") == "running":
                each["steps"] = max(step, each.get("steps", 0))
            self._rows[number] = self._row(self.planned[number], each)
        head = _line([*HEAD, *self._keys, *self._metrics])
        content = "".join([head, *self._rows]).encode()
        if content != on_disk:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, content)
        self._written = content

    def _row(self, item: PlannedRun, facts: dict[str, Any]) -> str:
        path = "" if item.found is None else os.path.relpath(item.found.path, self.path.parent)
        head = [path, facts.get("status", "new"), facts.get("steps", 0), facts.get("seconds", 0.0), facts.get("path")]
        head.append((facts.get("error") or {}).get("message"))
        config, metrics = self._config[item.number], _numbers_of(facts)
        return _line([*head, *(_cell(config.get(key)) for key in self._keys), *map(metrics.get, self._metrics)])


def _numbers_of(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the final metrics of a run and the last scalars of its probes."""
    return {**facts.get("metrics", {}), **facts.get("probes", {})}


def _line(cells: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _cell(value: Any) -> Any:
    return format_value(value) if isinstance(value, list | tuple) else value
