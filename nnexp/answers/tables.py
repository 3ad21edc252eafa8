"""Tables printed at the end of a command: one run by its splits, a sweep by its runs, and the failures."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnexp.base import align, plural, shorten
from nnexp.rundir import ERROR_FILE, FIGURES_FOLDER, PlannedRun, Run, results_csv_path, swept_keys

WHY_LENGTH = 120
SPLITS = ("train", "val", "test")


def format_number(value: Any) -> str:
    """Return a number with four decimals, or in scientific notation where these would not show it; "" for None."""
    if value is None:
        return ""
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.2e}"


def run_summary(run: Run) -> str:
    """Return the status, metrics of each split, notes and paths of one run."""
    facts = run.read()
    metrics = facts.get("metrics", {})
    names = list(dict.fromkeys(key.partition("/")[2] for key in metrics))
    rows = [
        ["", *names],
        *([split, *(format_number(metrics.get(f"{split}/{name}")) for name in names)] for split in SPLITS),
    ]
    took = f"{facts.get('steps', 0)} steps in {facts['seconds']:.1f} s{_probing(facts)}"
    size = f", {facts['parameters']:,} weights" if "parameters" in facts else ""
    lines = [f"{facts['status']}: {took}{size}", *([align(rows)] if metrics else []), *run_remarks(run)]
    lines.append(f"run:   {shortest_path(run.path)}")
    if facts.get("probing", {}).get("pictures"):
        lines.append(f"see:   {shortest_path(run.path / FIGURES_FOLDER)}")
    if (run.path / "metrics.csv").exists():
        lines.append(f"look:  tensorboard --logdir {shlex.quote(shortest_path(run.path))}")
    return "\n".join(lines)


def _probing(facts: dict[str, Any]) -> str:
    """Return the time that probes took and the number of their pictures; "" where none ran."""
    spent = facts.get("probing", {})
    seconds, pictures = spent.get("computing", 0) + spent.get("drawing", 0), spent.get("pictures", 0)
    return f" and {seconds:.1f} s of probes ({plural(pictures, 'picture')})" if seconds else ""


def shortest_path(path: Path) -> str:
    """Return a path absolute or relative to the working directory, whichever is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def run_remarks(run: Run) -> list[str]:
    """Return lines with the error of a run and the notes of its plugins."""
    facts = run.read()
    error = facts.get("error")
    more = f" Traceback: {shortest_path(run.path / ERROR_FILE)}." if error and error.get("type") != "Diverged" else ""
    lines = [f"error: {error.get('message')}{more}"] if error else []
    return lines + [f"note:  {text}" for text in facts.get("notes", [])]


def runs_table(planned: Sequence[PlannedRun]) -> str:
    """Return a row for each run, with swept keys, status and metrics; then notes, and commands for TensorBoard."""
    keys = swept_keys(planned)
    facts = [item.run.read() for item in planned]
    names = list(dict.fromkeys(name for f in facts for name in f.get("metrics", {})))
    short = [key.rpartition(".")[2] for key in keys]
    heads = [key if name == "seed" or short.count(name) > 1 else name for key, name in zip(keys, short, strict=True)]
    rows = [[*heads, "status", "steps", "seconds", *names, "run"]]
    for item, f in zip(planned, facts, strict=True):
        point = item.point
        cells = [*(point.get(key, "") for key in keys), f["status"], str(f.get("steps", 0)), f"{f['seconds']:.1f}"]
        metrics = f.get("metrics", {})
        rows.append([*cells, *(format_number(metrics.get(name)) for name in names), item.run.path.name])
    notes: dict[str, list[str]] = {}
    for item, f in zip(planned, facts, strict=True):
        for note in f.get("notes", []):
            notes.setdefault(note, []).append(item.run.path.name)
    said = [f"note:  {of[0] if len(of) == 1 else f'{len(of)} runs'}: {note}" for note, of in notes.items()]
    folders = sorted({shortest_path(item.run.path.parent) for item in planned})
    looks = [f"look:  tensorboard --logdir {shlex.quote(folder)}" for folder in folders]
    return "\n".join([align(rows), *said, *looks])


def sweep_summary(planned: Sequence[PlannedRun]) -> str:
    """Return the end of a sweep: the table of failures, counts by status, and the path of results.csv."""
    counts = Counter("left out" if item.failure else item.status for item in planned)
    ends = ", ".join(f"{count} {status}" for status, count in counts.items())
    table = results_csv_path(planned)
    lines = [*failures(planned), f"{plural(len(planned), 'job')}: {ends}"]
    return "\n".join([*lines, f"table: {shortest_path(table)}"] if table.exists() else lines)


def failures(planned: Sequence[PlannedRun]) -> list[str]:
    """Return a table of the jobs that failed, diverged or were skipped, with the reasons; [] if there are none."""
    rows = []
    for item in planned:
        if item.failure:
            rows.append([item.job.label, "left out", "", shorten(item.failure, WHY_LENGTH), ""])
        elif item.status in ("failed", "diverged"):
            facts = item.run.read()
            why = shorten((facts.get("error") or {}).get("message", ""), WHY_LENGTH)
            where = shortest_path(item.run.path / ERROR_FILE)
            rows.append([item.job.label, facts["status"], str(facts.get("steps", 0)), why, where])
    if not rows:
        return []
    has_failed = any(row[1] == "failed" for row in rows)
    advice = " (sweep.retry=failed tries again what failed)" if has_failed else ""
    head = f"{len(rows)} of {len(planned)} jobs did not finish{advice}:"
    return [head, align([["job", "status", "step", "why", "where"], *rows])]
