"""What a person sees at the end: one run as a table of its splits, several as a table of runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from nnexp.record import Run

SPLITS = ("train", "val", "test")


def align(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text in columns, the first row the head; columns of numbers to the right."""
    columns = []
    for column in zip(*rows, strict=True):
        width = max(map(len, column))
        is_number = all(cell[-1:].isdigit() or not cell for cell in column[1:])
        columns.append([cell.rjust(width) if is_number else cell.ljust(width) for cell in column])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def number(value: Any) -> str:
    """Four decimals; a number too large for them in powers of ten."""
    if value is None:
        return ""
    return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.3g}"


def one_run(run: Run) -> str:
    """Loss and accuracy on each split, and where to look."""
    facts = run.read()
    metrics = facts.get("metrics", {})
    names = list(dict.fromkeys(key.partition("/")[2] for key in metrics))
    rows = [["", *names], *([split, *(number(metrics.get(f"{split}/{name}")) for name in names)] for split in SPLITS)]
    took = f"{facts.get('steps', 0)} steps in {facts['seconds']:.1f} s"
    size = f", {facts['parameters']:,} weights" if "parameters" in facts else ""
    head = f"{facts['status']}: {took}{size}"
    table = f"{align(rows)}\n" if metrics else ""
    return f"{head}\n{table}{_where(run, facts)}"


def _where(run: Run, facts: dict[str, Any]) -> str:
    lines = [f"run:   {run.path}"]
    lines = [f"note:  {text}" for text in facts.get("notes", [])] + lines
    if facts.get("error"):
        lines.insert(0, f"error: {facts['error']['message']}")
    if (run.path / "metrics.csv").exists():
        lines.append(f"look:  tensorboard --logdir {shlex.quote(str(run.path))}")
    return "\n".join(lines)


def many_runs(runs: Sequence[Run]) -> str:
    """One line for each run."""
    facts = [run.read() for run in runs]
    names = list(dict.fromkeys(name for f in facts for name in f.get("metrics", {})))
    rows = [["run", "status", "steps", "seconds", *names]]
    for run, f in zip(runs, facts, strict=True):
        metrics = f.get("metrics", {})
        cells = [run.path.name, f["status"], str(f.get("steps", 0)), f"{f['seconds']:.1f}"]
        rows.append([*cells, *(number(metrics.get(name)) for name in names)])
    folders = sorted({str(run.path.parent) for run in runs})
    looks = [f"look:  tensorboard --logdir {shlex.quote(folder)}" for folder in folders]
    return "\n".join([align(rows), *looks])
