"""What a person sees at the end: one run as a table of its splits, several as a table of runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from nnexp.record import Run

SPLITS = ("train", "val", "test")


def align(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text in columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def number(value: Any) -> str:
    return "" if value is None else f"{value:.4f}"


def one_run(run: Run) -> str:
    """Loss and accuracy on each split, and where to look."""
    facts = run.read()
    metrics = facts.get("metrics", {})
    names = list(dict.fromkeys(key.partition("/")[2] for key in metrics))
    rows = [["", *names], *([split, *(number(metrics.get(f"{split}/{name}")) for name in names)] for split in SPLITS)]
    head = f"{facts['status']}: {facts['steps']} steps in {facts['seconds']:.1f} s, {facts.get('parameters', 0):,} weights"
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
