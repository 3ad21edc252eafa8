"""Run directories under a folder: their names, how one is found by its fingerprint, and how one is created.

A directory is made under another name and renamed, so it is complete from the moment it is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from nnexp.base import RecordError, write_atomically
from nnexp.config import Job, slug
from nnexp.rundir.provenance import provenance_facts
from nnexp.rundir.run import FORMAT, Run, run_json, utc_now

NEW = ".new-"  # how the names of directories begin that are being made


class RunIndex:
    """The run directories under a folder, looked at once, to be found by fingerprint."""

    def __init__(self, root: Path) -> None:
        self.unfinished: list[Path] = []
        self._places: dict[str, list[tuple[Path, str]]] = {}
        for folder in [root / name for name in names_in(root)]:
            for name in names_in(folder):
                if name.startswith(NEW):
                    self.unfinished.append(folder / name)
                else:
                    self._places.setdefault(name.rpartition("-")[2][:8], []).append((folder, name))

    def find(self, fingerprint: str) -> Run | None:
        """The newest run of this fingerprint under any experiment, or None."""
        found: list[tuple[int, str, str, Run]] = []
        for folder, name in self._places.get(fingerprint[:8], []):
            with contextlib.suppress(RecordError):
                run = Run(folder / name)
                facts = run.read()
                if facts.get("fingerprint") == fingerprint:
                    found.append((_copy(name), str(facts.get("created")), str(run.path), run))
        return max(found)[-1] if found else None


def _copy(name: str) -> int:
    """1 for the first run of its fingerprint, and what stands after the dot for one that was trained beside it."""
    digits = name.rpartition("-")[2].partition(".")[2]
    return int(digits) if digits.isdecimal() else 1


def names_in(folder: Path) -> list[str]:
    """What lies in a folder; nothing where there is none."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def experiment_folder(job: Job) -> Path:
    """Where the runs of a job's experiment lie."""
    return Path(job.options.runs) / (slug(job.experiment) or "default")


def create_run(job: Job, fingerprint: str, beside: Run | None = None) -> Run:
    """A new run directory, complete from the moment it is there; or that of another process that was faster.

    Args:
        beside: the run of the same fingerprint that is there, and another is asked for.
    """
    with _creating(job.options.runs) as index:
        return _found_or_made(index, job, fingerprint, beside)


def create_runs(jobs: Iterable[tuple[Job, str, Run | None]]) -> dict[str, Run]:
    """The same for many, a root looked through once; by fingerprint, without those that cannot be made."""
    made: dict[str, Run] = {}
    by_root: dict[str, list[tuple[Job, str, Run | None]]] = {}
    for new in jobs:
        by_root.setdefault(new[0].options.runs, []).append(new)
    for root, all_new in by_root.items():
        with contextlib.suppress(OSError), _creating(root) as index:
            for job, fingerprint, beside in all_new:
                with contextlib.suppress(RecordError, OSError):
                    made[fingerprint] = _found_or_made(index, job, fingerprint, beside)
    return made


def _found_or_made(index: RunIndex, job: Job, fingerprint: str, beside: Run | None) -> Run:
    found = index.find(fingerprint)
    if found is None or (beside is not None and found.path == beside.path):
        return _create(job, fingerprint, 1 if found is None else _copy(found.path.name) + 1)
    return found


@contextlib.contextmanager
def _creating(runs: str) -> Iterator[RunIndex]:
    """A folder in which nobody else creates a run meanwhile, rid of what was left half made."""
    root = Path(runs)
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / ".lock"):
        index = RunIndex(root)
        for path in index.unfinished:
            shutil.rmtree(path, ignore_errors=True)
        yield index


def _create(job: Job, fingerprint: str, copy: int) -> Run:
    parent = experiment_folder(job)
    temporary = parent / f"{NEW}{fingerprint[:8]}-{os.getpid()}"
    temporary.mkdir(parents=True)
    try:
        (temporary / "config.yaml").write_text(yaml.safe_dump(job.plain(), sort_keys=False), encoding="utf-8")
        (temporary / "run.json").write_bytes(run_json(_facts(job, fingerprint)))
        path = _rename(temporary, parent / f"{job.label}-", fingerprint, "" if copy == 1 else f".{copy}")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Run(path)


def write_reference(job: Job, run: Run) -> None:
    """Record under the job's own experiment that its run lies under another one."""
    folder = experiment_folder(job)
    if run.path.parent.resolve() != folder.resolve():
        folder.mkdir(parents=True, exist_ok=True)
        content = {"format": FORMAT, "run": os.path.relpath(run.path, folder)}
        write_atomically(folder / f"{job.label}-{run.path.name.rpartition('-')[2]}.json", json.dumps(content).encode())


def _rename(temporary: Path, prefix: Path, fingerprint: str, end: str) -> Path:
    """The first free name: 8 digits of the fingerprint, or more where two jobs share these."""
    for digits in (8, 16, 64):
        path = prefix.with_name(prefix.name + fingerprint[:digits] + end)
        try:
            os.rename(temporary, path)
        except OSError:
            if not path.exists():
                raise
            continue
        return path
    raise RecordError(f"{prefix}{fingerprint}: the name is taken by another job. Move that directory away.")


def _facts(job: Job, fingerprint: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "status": "new",
        "fingerprint": fingerprint,
        "experiment": job.experiment,
        "overrides": job.overrides,
        "seeds": {choice.kind: choice.seed for choice in job.parts},
        "created": utc_now(),
        "resumed_from": [],
        "seconds": 0.0,
        **provenance_facts(job.options.device),
    }
