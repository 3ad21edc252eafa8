"""metrics.csv: one row per step, written in bulk, cut back to a checkpoint on resume."""

from __future__ import annotations

import csv
import hashlib
import math
import operator
from dataclasses import dataclass, field
from pathlib import Path

from nnexp.base import open_regular, write_at

WAITING_BYTES = 1 << 16
LONGEST_ROW = 1 << 16


@dataclass
class Rows:
    """Consecutive rows of one lane: two lists as they come from the device, and the little that few rows have besides.

    Args:
        first: the step of the first loss.
        losses: `train/loss` of each step.
        norms: `grad_norm` of each step.
        sparse: further columns by step. The step before `first` may be among them: an evaluation without a loss.
    """

    first: int
    losses: list[float]
    norms: list[float]
    sparse: dict[int, dict[str, float]] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many rows have a loss."""
        return len(self.losses)

    @property
    def last_step(self) -> int:
        return self.first + len(self.losses) - 1

    @property
    def last(self) -> dict[str, float]:
        """The further columns of the last step, to be read and added to."""
        return self.sparse.setdefault(self.last_step, {})

    def row(self, step: int) -> dict[str, float]:
        """All columns of one step."""
        further, index = self.sparse.get(step, {}), step - self.first
        return {"train/loss": self.losses[index], "grad_norm": self.norms[index], **further} if index >= 0 else further

    def cut(self, count: int) -> Rows:
        """The first `count` of them."""
        sparse = {step: row for step, row in self.sparse.items() if step < self.first + count}
        return Rows(self.first, self.losses[:count], self.norms[:count], sparse)

    def first_bad(self) -> int | None:
        """Index of the first row whose loss or gradient norm is not finite."""
        sums = map(operator.add, self.losses, self.norms)
        return next((index for index, value in enumerate(sums) if not math.isfinite(value)), None)


class MetricsCsv:
    """The full-resolution record of one run. Rows wait in memory until they are flushed, or many; the file is open
    only while it is written.

    Row s holds `train/loss` and `grad_norm` of the batch of update s, before it; `val/*` after it. Row 0 is the
    evaluation before training. A column without a number in a row is empty there.

    Args:
        path: the csv file.
        columns: names in order, `train/loss` and `grad_norm` first, without `step`.
        digits: significant digits of a number: 9 hold a float32, 17 a float64.
    """

    def __init__(self, path: Path, columns: list[str], digits: int) -> None:
        self.path = path
        self.columns = columns
        self.format = f"%.{digits}g"
        self._dense = f"%d,{self.format},{self.format}{',' * (len(columns) - 2)}\n"
        self._waiting: list[str] = []
        self._num_waiting = 0
        with open_regular(path, create=True) as file:
            content = file.read()
        self.size, self._hash = len(content), hashlib.sha256(content)
        if self.size == 0:
            self.restart()

    def restart(self) -> None:
        """Forget everything."""
        self.cut(0)
        self._add(",".join(["step", *self.columns]) + "\n")

    def append(self, rows: Rows) -> None:
        """Add rows."""
        steps = range(rows.first, rows.first + len(rows))
        dense = map(self._dense.__mod__, zip(steps, rows.losses, rows.norms, strict=True))
        before = {step: "" for step in rows.sparse if step < rows.first}
        lines = before | dict(zip(steps, dense, strict=True))
        lines |= {step: self._line(step, rows.row(step)) for step in rows.sparse}
        self._add("".join(lines.values()))
        if self._num_waiting > WAITING_BYTES:
            self.flush()

    def _line(self, step: int, row: dict[str, float]) -> str:
        """A row with more than a loss and a norm."""
        cells = [self.format % row[name] if name in row else "" for name in self.columns]
        return f"{step},{','.join(cells)}\n"

    def _add(self, text: str) -> None:
        self._waiting.append(text)
        self._num_waiting += len(text)

    def flush(self) -> tuple[int, str]:
        """Write the rows that wait; gives the size of the file and the hash of its content, for a checkpoint."""
        data = "".join(self._waiting).encode()
        if data:
            self.size = write_at(self.path, self.size, data)
            self._hash.update(data)
            self._waiting, self._num_waiting = [], 0
        return self.size, self._hash.hexdigest()

    def holds(self, size: int, digest: str) -> bool:
        """Whether the file begins with the content that a checkpoint was made with."""
        with open_regular(self.path) as file:
            return hashlib.sha256(file.read(size)).hexdigest() == digest

    def cut(self, size: int) -> None:
        """Forget what came after a checkpoint."""
        with open_regular(self.path) as file:
            file.truncate(size)
            content = file.read()
        self.size, self._hash = len(content), hashlib.sha256(content)
        self._waiting, self._num_waiting = [], 0


def read_rows(path: Path) -> list[tuple[int, dict[str, float]]]:
    """The rows of a metrics.csv; empty cells are left out."""
    with open(path, newline="", encoding="utf-8") as file:
        return [
            (int(row.pop("step")), {name: float(cell) for name, cell in row.items() if cell})
            for row in csv.DictReader(file)
        ]


def last_step(path: Path) -> int:
    """The step of the last whole row that is on disk; 0 where there is none."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, 2) - LONGEST_ROW))
            rows = file.read().decode(errors="replace").split("\n")[1:-1]
        return int(rows[-1].partition(",")[0])
    except (OSError, ValueError, IndexError):
        return 0
