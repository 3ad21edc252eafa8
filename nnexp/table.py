"""What a person sees at the end: one run as a table of its splits, several as a table of runs."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnexp.errors import cut
from nnexp.figures import FOLDER
from nnexp.plan import Planned, swept
from nnexp.record import ERROR, Run
from nnexp.results import results_path
from nnexp.tell import count_of

WHY_LENGTH = 120
SPLITS = ("train", "val", "test")
NUMBER = re.compile(r"-?[\d.,]+(e[-+]?\d+)?|nan|-?inf|")


def align(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text in columns, the first row the head; columns of numbers to the right."""
    columns = []
    for column in zip(*rows, strict=True):
        width = max(map(len, column))
        is_number = all(NUMBER.fullmatch(cell) for cell in column[1:])
        columns.append([cell.rjust(width) if is_number else cell.ljust(width) for cell in column])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def number(value: Any) -> str:
    """Four decimals; a number too large or too small for them in powers of ten."""
    if value is None:
        return ""
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.2e}"


def one_run(run: Run) -> str:
    """Loss and accuracy on each split, and where to look."""
    facts = run.read()
    metrics = facts.get("metrics", {})
    names = list(dict.fromkeys(key.partition("/")[2] for key in metrics))
    rows = [["", *names], *([split, *(number(metrics.get(f"{split}/{name}")) for name in names)] for split in SPLITS)]
    took = f"{facts.get('steps', 0)} steps in {facts['seconds']:.1f} s{_probing(facts)}"
    size = f", {facts['parameters']:,} weights" if "parameters" in facts else ""
    lines = [f"{facts['status']}: {took}{size}", *([align(rows)] if metrics else []), *remarks(run)]
    lines.append(f"run:   {near(run.path)}")
    if facts.get("probing", {}).get("pictures"):
        lines.append(f"see:   {near(run.path / FOLDER)}")
    if (run.path / "metrics.csv").exists():
        lines.append(f"look:  tensorboard --logdir {shlex.quote(near(run.path))}")
    return "\n".join(lines)


def _probing(facts: dict[str, Any]) -> str:
    """What its probes took besides."""
    spent = facts.get("probing", {})
    seconds, pictures = spent.get("computing", 0) + spent.get("drawing", 0), spent.get("pictures", 0)
    return f" and {seconds:.1f} s of probes ({count_of(pictures, 'picture')})" if seconds else ""


def near(path: Path) -> str:
    """A path as it is best typed here."""
    return min(str(path), os.path.relpath(path), key=len)


def remarks(run: Run) -> list[str]:
    """What went wrong, and what the plugins had to say."""
    facts = run.read()
    error = facts.get("error")
    more = f" Traceback: {near(run.path / ERROR)}." if error and error.get("type") != "Diverged" else ""
    lines = [f"error: {error.get('message')}{more}"] if error else []
    return lines + [f"note:  {text}" for text in facts.get("notes", [])]


def many_runs(planned: Sequence[Planned]) -> str:
    """One line for each run: what was swept, how it ended; then what there is to say of single runs."""
    keys = swept(planned)
    facts = [item.run.read() for item in planned]
    names = list(dict.fromkeys(name for f in facts for name in f.get("metrics", {})))
    short = [key.rpartition(".")[2] for key in keys]
    heads = [key if name == "seed" or short.count(name) > 1 else name for key, name in zip(keys, short, strict=True)]
    rows = [[*heads, "status", "steps", "seconds", *names, "run"]]
    for item, f in zip(planned, facts, strict=True):
        point = item.point
        cells = [*(point.get(key, "") for key in keys), f["status"], str(f.get("steps", 0)), f"{f['seconds']:.1f}"]
        metrics = f.get("metrics", {})
        rows.append([*cells, *(number(metrics.get(name)) for name in names), item.run.path.name])
    notes: dict[str, list[str]] = {}
    for item, f in zip(planned, facts, strict=True):
        for note in f.get("notes", []):
            notes.setdefault(note, []).append(item.run.path.name)
    said = [f"note:  {of[0] if len(of) == 1 else f'{len(of)} runs'}: {note}" for note, of in notes.items()]
    folders = sorted({near(item.run.path.parent) for item in planned})
    looks = [f"look:  tensorboard --logdir {shlex.quote(folder)}" for folder in folders]
    return "\n".join([align(rows), *said, *looks])


def ending(planned: Sequence[Planned]) -> str:
    """How a sweep ended: all that failed, why, and where the whole of it stands; how many ended how; the table."""
    counts = Counter("left out" if item.lost else item.status for item in planned)
    ends = ", ".join(f"{count} {status}" for status, count in counts.items())
    table = results_path(planned)
    lines = [*failures(planned), f"{count_of(len(planned), 'job')}: {ends}"]
    return "\n".join([*lines, f"table: {near(table)}"] if table.exists() else lines)


def failures(planned: Sequence[Planned]) -> list[str]:
    """A line for each job that failed, diverged or was left out, below a head; nothing where there is none."""
    rows = []
    for item in planned:
        if item.lost:
            rows.append([item.job.label, "left out", "", cut(item.lost, WHY_LENGTH), ""])
        elif item.status in ("failed", "diverged"):
            facts = item.run.read()
            why = cut((facts.get("error") or {}).get("message", ""), WHY_LENGTH)
            where = near(item.run.path / ERROR)
            rows.append([item.job.label, facts["status"], str(facts.get("steps", 0)), why, where])
    if not rows:
        return []
    has_failed = any(row[1] == "failed" for row in rows)
    advice = " (sweep.retry=failed tries again what failed)" if has_failed else ""
    head = f"{len(rows)} of {len(planned)} jobs did not finish{advice}:"
    return [head, align([["job", "status", "step", "why", "where"], *rows])]
