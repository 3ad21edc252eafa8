"""Measurements of the benchmark, and their output as a table and as CSV."""

from __future__ import annotations

import csv
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import torch

from nnexp.base import align
from nnexp.commands.bench.cases import compiler
from nnexp.rundir import processor


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One quantity, measured once in each round.

    Args:
        part: part of the benchmark.
        case: a dataset with a model, or a command.
        what: name of the quantity.
        unit: unit of the values; x for a ratio.
        values: one from each round.
        at: size at which it was measured, such as 64 lanes.
        bar: value that the median must reach, or not exceed.
        better: whether high or low values pass the bar.
        path: how our runs were trained (solo, stacked, compiled), from run.json.
        scaled: the jobs and updates that it was scaled up from, "" for none.
    """

    part: str
    case: str
    what: str
    unit: str
    values: Sequence[float]
    at: int | None = None
    bar: float | None = None
    better: Literal["high", "low"] = "high"
    path: str = ""
    scaled: str = ""

    @property
    def median(self) -> float:
        """The median of the values."""
        return statistics.median(self.values)

    @property
    def is_passed(self) -> bool | None:
        """True where the median passes the bar; None where there is no bar."""
        if self.bar is None:
            return None
        return self.median >= self.bar if self.better == "high" else self.median <= self.bar

    @property
    def verdict(self) -> str:
        """`passed`, `FAILED`, or "" where there is no bar."""
        return {None: "", True: "passed", False: "FAILED"}[self.is_passed]

    def cells(self) -> list[str]:
        """Return the row of the printed table."""
        sign = ">=" if self.better == "high" else "<="
        bar = "" if self.bar is None else f"{sign} {self.bar:g}"
        at = "" if self.at is None else str(self.at)
        return [self.part, self.case, self.what, at, self.unit, spread(self.values), bar, self.verdict, self.path]


HEAD = ["part", "case", "what", "at", "unit", "median (range)", "bar", "", "path"]


def spread(values: Sequence[float]) -> str:
    """Return median and range as text.

    >>> spread([2.0, 9.0, 4.0])
    '4 (2-9)'
    """
    median = format_number(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({format_number(min(values))}-{format_number(max(values))})"


def format_number(value: float) -> str:
    """Return a number with three significant digits, or as a whole number from 100 on."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(measurements: Sequence[Measurement]) -> str:
    """Return the table as text, followed by a line for each kind of scaling."""
    notes = dict.fromkeys(f"scaled: {m.scaled}" for m in measurements if m.scaled)
    return "\n".join([align([HEAD, *(m.cells() for m in measurements)]), *notes])


def machine_facts() -> dict[str, str | int]:
    """Return time, hardware and software versions of the benchmark."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": processor(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "compiler": compiler() or "none",
    }


def write_csv(path: Path, measurements: Sequence[Measurement]) -> None:
    """Write one row for each measurement, with the machine's facts."""
    machine = machine_facts()
    rows = []
    for m in measurements:
        values = {"rounds": len(m.values), "median": m.median, "min": min(m.values), "max": max(m.values)}
        rows.append({**asdict(m), **values, "passed": m.verdict, **machine})
        del rows[-1]["values"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
