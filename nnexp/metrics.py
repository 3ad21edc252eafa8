"""metrics.csv: one row per step, appended in bulk, cut back to a checkpoint on resume."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

Row = Mapping[str, float]


class Metrics:
    """The full-resolution record of one run.

    Row s holds `train/loss` and `grad_norm` of the batch of update s, before it; `val/*` after it. Row 0 is the
    evaluation before training. A column without a number in a row is empty there.

    Args:
        path: the csv file.
        columns: names in order, without `step`.
        digits: significant digits of a number: 9 hold a float32, 17 a float64.
    """

    def __init__(self, path: Path, columns: list[str], digits: int) -> None:
        self.path = path
        self.columns = columns
        self.format = f"%.{digits}g"
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

    def append(self, rows: Iterable[tuple[int, Row]]) -> None:
        """Add rows `(step, numbers by column)`; on disk in full before the next checkpoint refers to them."""
        form, columns = self.format, self.columns
        lines = []
        for step, row in rows:
            cells = [form % row[name] if name in row else "" for name in columns]
            lines.append(f"{step},{','.join(cells)}\n")
        if lines:
            self._write("".join(lines))

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
