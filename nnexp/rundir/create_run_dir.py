"""Create run directories, and find the run directory of a fingerprint.

A directory is built under a temporary name and renamed, so it is complete from the moment it appears.
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

NEW = ".new-"  # prefix of directories that are still being built


class RunIndex:
    """Index of the run directories below a root by fingerprint; the root is listed once, at construction.

    index = RunIndex(Path("runs"))
    run = index.find(job_fingerprint(job, registry))  # a Run or None
    """

    def __init__(self, root: Path) -> None:
        self.unfinished: list[Path] = []
        self._folders: dict[str, list[tuple[Path, str]]] = {}
        for folder in [root / name for name in _names_in(root)]:
            for name in _names_in(folder):
                if name.startswith(NEW):
                    self.unfinished.append(folder / name)
                else:
                    self._folders.setdefault(name.rpartition("-")[2][:8], []).append((folder, name))

    def find(self, fingerprint: str) -> Run | None:
        """Return the newest readable run of a fingerprint under any experiment, or None."""
        found: list[tuple[int, str, str, Run]] = []
        for folder, name in self._folders.get(fingerprint[:8], []):
            with contextlib.suppress(RecordError):
                run = Run(folder / name)
                facts = run.read()
                if facts.get("fingerprint") == fingerprint:
                    found.append((_copy_number(name), str(facts.get("created")), str(run.path), run))
        return max(found)[-1] if found else None


def _copy_number(name: str) -> int:
    """Return the number after the dot in the name of a rerun, 1 for the first run of its fingerprint."""
    digits = name.rpartition("-")[2].partition(".")[2]
    return int(digits) if digits.isdecimal() else 1


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # no folder, or not readable
        return []


def experiment_folder(job: Job) -> Path:
    """Return the folder that holds the runs of a job's experiment."""
    return Path(job.options.runs) / (slug(job.experiment) or "default")


def create_run(job: Job, fingerprint: str, rerun_of: Run | None = None) -> Run:
    """Create a run directory, or return the one that another process created in the meantime.

    Args:
        job: the job.
        fingerprint: its fingerprint, 64 hexadecimal digits.
        rerun_of: an existing run of the same fingerprint that must not be returned: a second one is created.

    Raises:
        RecordError: another job occupies the name.
        OSError: the directory cannot be written.
    """
    with _locked_index(job.options.runs) as index:
        return _find_or_create(index, job, fingerprint, rerun_of)


def create_runs(jobs: Iterable[tuple[Job, str, Run | None]]) -> dict[str, Run]:
    """Create the run directories of many jobs, locking and listing each root once.

    Args:
        jobs: the arguments of `create_run` for each job.

    Returns:
        The runs by fingerprint, without those that could not be created.
    """
    runs: dict[str, Run] = {}
    by_root: dict[str, list[tuple[Job, str, Run | None]]] = {}
    for new in jobs:
        by_root.setdefault(new[0].options.runs, []).append(new)
    for root, all_new in by_root.items():
        with contextlib.suppress(OSError), _locked_index(root) as index:
            for job, fingerprint, rerun_of in all_new:
                with contextlib.suppress(RecordError, OSError):
                    runs[fingerprint] = _find_or_create(index, job, fingerprint, rerun_of)
    return runs


def _find_or_create(index: RunIndex, job: Job, fingerprint: str, rerun_of: Run | None) -> Run:
    found = index.find(fingerprint)
    if found is None or (rerun_of is not None and found.path == rerun_of.path):
        return _create(job, fingerprint, 1 if found is None else _copy_number(found.path.name) + 1)
    return found


@contextlib.contextmanager
def _locked_index(runs: str) -> Iterator[RunIndex]:
    """Hold the root's lock, delete half-built directories, and yield the index."""
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
    """Write a reference file into the folder of the job's experiment if its run lies under another experiment."""
    folder = experiment_folder(job)
    if run.path.parent.resolve() != folder.resolve():
        folder.mkdir(parents=True, exist_ok=True)
        content = {"format": FORMAT, "run": os.path.relpath(run.path, folder)}
        write_atomically(folder / f"{job.label}-{run.path.name.rpartition('-')[2]}.json", json.dumps(content).encode())


def _rename(temporary: Path, prefix: Path, fingerprint: str, end: str) -> Path:
    """Rename to the first free name: with 8 digits of the fingerprint, or more where two jobs share them."""
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
