"""Measurements: what they are, as a table, and as a file."""

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


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One quantity, measured once in each round.

    Args:
        part: of the benchmark, a letter.
        case: a dataset with a model, or a command.
        what: the quantity.
        unit: of its values; x is a ratio.
        values: one from each round.
        at: where on an axis it was measured, such as 64 lanes.
        bar: what its median must reach, or not exceed.
        better: on which side of the bar it must lie.
        path: how our runs were trained, as run.json says.
        scaled: from how many jobs and updates it was scaled, if it was.
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
        return statistics.median(self.values)

    @property
    def is_passed(self) -> bool | None:
        """Whether the median passes the bar; None where there is none."""
        if self.bar is None:
            return None
        return self.median >= self.bar if self.better == "high" else self.median <= self.bar

    @property
    def verdict(self) -> str:
        return {None: "", True: "passed", False: "FAILED"}[self.is_passed]

    def cells(self) -> list[str]:
        """The row of the printed table."""
        sign = ">=" if self.better == "high" else "<="
        bar = "" if self.bar is None else f"{sign} {self.bar:g}"
        place = "" if self.at is None else str(self.at)
        return [self.part, self.case, self.what, place, self.unit, spread(self.values), bar, self.verdict, self.path]


HEAD = ["part", "case", "what", "at", "unit", "median (range)", "bar", "", "path"]


def spread(values: Sequence[float]) -> str:
    middle = shown(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({shown(min(values))}-{shown(max(values))})"


def shown(value: float) -> str:
    """Three digits, or all there are before the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(measurements: Sequence[Measurement]) -> str:
    """Rows in columns, then one line for each thing that was scaled."""
    notes = dict.fromkeys(f"scaled: {m.scaled}" for m in measurements if m.scaled)
    return "\n".join([align([HEAD, *(m.cells() for m in measurements)]), *notes])


def facts() -> dict[str, str | int]:
    """Where it was measured."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "compiler": compiler() or "none",
    }


def _cpu() -> str:
    """The processor's name; where the system does not tell, its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def write_csv(path: Path, measurements: Sequence[Measurement]) -> None:
    """One row for each measurement, with where it was made."""
    machine = facts()
    rows = []
    for m in measurements:
        values = {"rounds": len(m.values), "median": m.median, "min": min(m.values), "max": max(m.values)}
        rows.append({**asdict(m), **values, "passed": m.verdict, **machine})
        del rows[-1]["values"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
