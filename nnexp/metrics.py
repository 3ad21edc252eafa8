"""metrics.csv: one row per step, appended in bulk, cut back to a checkpoint on resume."""

from __future__ import annotations

import csv
import hashlib
import math
import operator
import os
from dataclasses import dataclass, field
from pathlib import Path


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


class Metrics:
    """The full-resolution record of one run.

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
        # Never through a link: a directory from somebody else must not lead to another file.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        self._file = os.fdopen(handle, "rb+", buffering=0)
        self.cut(os.fstat(handle).st_size)
        if self.size == 0:
            self.restart()

    def restart(self) -> None:
        """Forget everything."""
        self.cut(0)
        self._write(",".join(["step", *self.columns]) + "\n")

    def append(self, rows: Rows) -> None:
        """Add rows; on disk in full before the next checkpoint refers to them."""
        steps = range(rows.first, rows.first + len(rows))
        dense = map(self._dense.__mod__, zip(steps, rows.losses, rows.norms, strict=True))
        before = {step: "" for step in rows.sparse if step < rows.first}
        lines = before | dict(zip(steps, dense, strict=True))
        lines |= {step: self._line(step, rows.row(step)) for step in rows.sparse}
        if lines:
            self._write("".join(lines.values()))

    def _line(self, step: int, row: dict[str, float]) -> str:
        """A row with more than a loss and a norm."""
        cells = [self.format % row[name] if name in row else "" for name in self.columns]
        return f"{step},{','.join(cells)}\n"

    def _write(self, text: str) -> None:
        data = memoryview(text.encode())
        while data:
            written = self._file.write(data)
            self._hash.update(data[:written])
            data = data[written:]
            self.size += written

    def sync(self) -> tuple[int, str]:
        """Put all rows on disk; gives the size of the file and the hash of its content, for a checkpoint."""
        os.fsync(self._file.fileno())
        return self.size, self._hash.hexdigest()

    def holds(self, size: int, digest: str) -> bool:
        """Whether the file begins with the content that a checkpoint was made with."""
        self._file.seek(0)
        return hashlib.sha256(self._file.read(size)).hexdigest() == digest

    def cut(self, size: int) -> None:
        """Forget what was written after a checkpoint."""
        self._file.truncate(size)
        self._file.seek(0)
        self._hash = hashlib.sha256(self._file.read())
        self.size = self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        self._file.close()


def read_rows(path: Path) -> list[tuple[int, dict[str, float]]]:
    """The rows of a metrics.csv; empty cells are left out."""
    with open(path, newline="", encoding="utf-8") as file:
        return [
            (int(row.pop("step")), {name: float(cell) for name, cell in row.items() if cell})
            for row in csv.DictReader(file)
        ]
