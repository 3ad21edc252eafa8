"""Write and read metrics.csv: one row per step, appended in bulk, truncated to the checkpoint on resume."""

from __future__ import annotations

import csv
import hashlib
import math
import operator
from dataclasses import dataclass, field
from pathlib import Path

from nnexp.base import open_regular, write_at

BUFFER_BYTES = 1 << 16
MAX_ROW_BYTES = 1 << 16


@dataclass
class Rows:
    """Rows of consecutive steps of one lane: two dense columns, and further columns that only some rows have.

        rows = Rows(first=1, losses=[0.7, 0.6], norms=[1.0, 0.9], sparse={2: {"val/loss": 0.65}})
        rows.row(2)  # {"train/loss": 0.6, "grad_norm": 0.9, "val/loss": 0.65}

    Args:
        first: step of the first loss.
        losses: `train/loss` of each step.
        norms: `grad_norm` of each step.
        sparse: further columns by step. May hold step `first - 1`: the evaluation before training has no loss.
    """

    first: int
    losses: list[float]
    norms: list[float]
    sparse: dict[int, dict[str, float]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of rows with a loss."""
        return len(self.losses)

    @property
    def last_step(self) -> int:
        """Step of the last row; `first - 1` where no row has a loss."""
        return self.first + len(self.losses) - 1

    @property
    def last(self) -> dict[str, float]:
        """Sparse columns of the last step; writable."""
        return self.sparse.setdefault(self.last_step, {})

    def row(self, step: int) -> dict[str, float]:
        """Return all columns of one step, by name."""
        further, index = self.sparse.get(step, {}), step - self.first
        return {"train/loss": self.losses[index], "grad_norm": self.norms[index], **further} if index >= 0 else further

    def head(self, count: int) -> Rows:
        """Return the first `count` rows."""
        sparse = {step: row for step, row in self.sparse.items() if step < self.first + count}
        return Rows(self.first, self.losses[:count], self.norms[:count], sparse)

    def first_nonfinite(self) -> int | None:
        """Return the index of the first row whose loss or gradient norm is not finite, or None."""
        sums = map(operator.add, self.losses, self.norms)
        return next((index for index, value in enumerate(sums) if not math.isfinite(value)), None)


class MetricsCsv:
    """Writer of one run's metrics.csv. Rows are buffered in memory; the file is open only while it is written.

    Row s holds `train/loss` and `grad_norm` of the batch of update s, computed before that update, and `val/*` computed
    after it. Row 0 is the evaluation before training. A row without a value in a column has an empty cell.

        metrics = MetricsCsv(folder / "metrics.csv", ["train/loss", "grad_norm", "val/loss"], digits=9)
        metrics.append(rows)
        size, sha256 = metrics.flush()

    Args:
        path: the CSV file; continued if it exists.
        columns: names in order, `train/loss` and `grad_norm` first, without `step`.
        digits: significant digits of a number: 9 round-trip a float32, 17 a float64.
    """

    def __init__(self, path: Path, columns: list[str], digits: int) -> None:
        self.path = path
        self.columns = columns
        self.format = f"%.{digits}g"
        self._dense = f"%d,{self.format},{self.format}{',' * (len(columns) - 2)}\n"
        self._buffer: list[str] = []
        self._buffer_size = 0
        with open_regular(path, create=True) as file:
            content = file.read()
        self.size, self._hash = len(content), hashlib.sha256(content)
        if self.size == 0:
            self.restart()

    def restart(self) -> None:
        """Empty the file and write the header."""
        self.truncate(0)
        self._add(",".join(["step", *self.columns]) + "\n")

    def append(self, rows: Rows) -> None:
        """Buffer rows; flush once more than `BUFFER_BYTES` are buffered.

        Raises:
            OSError: the file cannot be written.
        """
        steps = range(rows.first, rows.first + len(rows))
        dense = map(self._dense.__mod__, zip(steps, rows.losses, rows.norms, strict=True))
        before = {step: "" for step in rows.sparse if step < rows.first}
        lines = before | dict(zip(steps, dense, strict=True))
        lines |= {step: self._line(step, rows.row(step)) for step in rows.sparse}
        self._add("".join(lines.values()))
        if self._buffer_size > BUFFER_BYTES:
            self.flush()

    def _line(self, step: int, row: dict[str, float]) -> str:
        cells = [self.format % row[name] if name in row else "" for name in self.columns]
        return f"{step},{','.join(cells)}\n"

    def _add(self, text: str) -> None:
        self._buffer.append(text)
        self._buffer_size += len(text)

    def flush(self) -> tuple[int, str]:
        """Write the buffered rows; return size in bytes and SHA-256 of the file, to be stored in a checkpoint.

        Raises:
            OSError: the file cannot be written; the rows stay buffered.
        """
        data = "".join(self._buffer).encode()
        if data:
            self.size = write_at(self.path, self.size, data)
            self._hash.update(data)
            self._buffer, self._buffer_size = [], 0
        return self.size, self._hash.hexdigest()

    def starts_with(self, size: int, digest: str) -> bool:
        """Check that the first `size` bytes of the file have this SHA-256, as `flush` returned them."""
        with open_regular(self.path) as file:
            return hashlib.sha256(file.read(size)).hexdigest() == digest

    def truncate(self, size: int) -> None:
        """Drop buffered rows and all bytes of the file after `size`."""
        with open_regular(self.path) as file:
            file.truncate(size)
            content = file.read()
        self.size, self._hash = len(content), hashlib.sha256(content)
        self._buffer, self._buffer_size = [], 0


def read_rows(path: Path) -> list[tuple[int, dict[str, float]]]:
    """Return (step, columns) of each row of a metrics.csv; empty cells are left out."""
    with open(path, newline="", encoding="utf-8") as file:
        return [
            (int(row.pop("step")), {name: float(cell) for name, cell in row.items() if cell})
            for row in csv.DictReader(file)
        ]


def last_step(path: Path) -> int:
    """Return the step of the last complete row on disk, or 0 if there is none. Reads only the end of the file."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, 2) - MAX_ROW_BYTES))
            rows = file.read().decode(errors="replace").split("\n")[1:-1]
        return int(rows[-1].partition(",")[0])
    except (OSError, ValueError, IndexError):
        return 0
