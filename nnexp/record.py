"""The run directory: one job's results, readable without this program.

Created at once by a rename, locked while it is trained, its files replaced by rename; nothing finished is overwritten.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from nnexp.config import Job
from nnexp.errors import RecordError
from nnexp.files import TEMPORARY, write_atomically
from nnexp.provenance import provenance

FORMAT = 1
NEW = ".new-"  # how the names of directories begin that are being made
ENDED = ("finished", "diverged")
HEARTBEAT_SECONDS = 60
# The types that are relied on, and whether a fact is always there.
FACTS: dict[str, tuple[Any, bool]] = {
    "status": (str, True),
    "fingerprint": (str, True),
    "seconds": ((int, float), True),
    "resumed_from": (list, True),
    "steps": (int, False),
    "parameters": (int, False),
    "notes": (list, False),
    "metrics": (dict, False),
    "error": ((dict, type(None)), False),
}


def slug(text: str) -> str:
    """Lower-case letters, digits and `._=-`, at most 64 characters."""
    return re.sub(r"[^a-z0-9._=]+", "-", text.lower()).strip("-.")[:64].strip("-.")


def label(parts: list[str]) -> str:
    """The parts that fit into a directory's name, each whole; `default` where there is none."""
    name = ""
    for part in map(slug, parts):
        if len(longer := f"{name}-{part}" if name else part) <= 64:
            name = longer
    return name or "default"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Run:
    """One run directory. While its lock is held nobody else writes run.json, so it is read once for all that time."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # a plugin may change the working directory
        self._lock: FileLock | None = None
        self._known: str | None = None
        self._beat = 0.0

    def read(self) -> dict[str, Any]:
        """What run.json says. Raises RecordError where it cannot be read."""
        try:
            facts = json.loads(self._known or (self.path / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise RecordError(f"{self.path}: run.json cannot be read ({error}). Move the directory away.") from None
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise RecordError(f"{self.path}: not a run directory of format {FORMAT}. Move it away, or update nnexp.")
        for name, (kinds, needed) in FACTS.items():
            if not isinstance(facts.get(name), kinds) and (needed or name in facts):
                raise RecordError(f"{self.path}: run.json has no sound '{name}'. Move the directory away.")
        return facts

    def write(self, **facts: Any) -> None:
        """Change facts in run.json; a fact that is not in JSON's own types is an error of the caller."""
        content = json.dumps(self.read() | facts, indent=1, default=_plain) + "\n"
        write_atomically(self.path / "run.json", content.encode())
        if self._lock is not None:
            self._known = content

    @property
    def status(self) -> str:
        return str(self.read().get("status"))

    def lock(self) -> None:
        """Take the directory for this process. Raises RecordError where another process trains in it."""
        path = self.path / "lock"
        facts = self.read()
        age = time.time() - path.stat().st_mtime if path.exists() else float("inf")
        elsewhere = facts.get("host") != socket.gethostname()
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RecordError(self._busy(facts)) from None
        self._lock = lock
        # A shared file system may not pass locks between hosts: there the heartbeat decides.
        if facts["status"] == "running" and elsewhere and age < HEARTBEAT_SECONDS:
            self.unlock()
            raise RecordError(self._busy(facts))
        self._sweep_up()
        with contextlib.suppress(OSError):  # anew, for another process may have ended it just before; `read` tells
            self._known = (self.path / "run.json").read_text(encoding="utf-8")

    def _sweep_up(self) -> None:
        """Remove what a killed process left half written."""
        for name in os.listdir(self.path):
            if re.fullmatch(TEMPORARY, name):
                with contextlib.suppress(OSError):
                    (self.path / name).unlink()

    def _busy(self, facts: dict[str, Any]) -> str:
        who = f"process {facts.get('pid')} on {facts.get('host')}"
        return f"{self.path} is being trained by {who}. Wait for it, or stop it; then give the command again."

    def heartbeat(self) -> None:
        """Say that the run is alive, at most every few seconds."""
        if time.monotonic() - self._beat > HEARTBEAT_SECONDS / 6:
            self._beat = time.monotonic()
            os.utime(self.path / "lock")

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = self._known = None


class Index:
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
        """The run of this fingerprint under any experiment, or None."""
        for path in sorted(folder / name for folder, name in self._places.get(fingerprint[:8], [])):
            with contextlib.suppress(RecordError):
                run = Run(path)
                if run.read().get("fingerprint") == fingerprint:
                    return run
        return None


def names_in(folder: Path) -> list[str]:
    """What lies in a folder; nothing where there is none."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def experiment_folder(job: Job) -> Path:
    """Where the runs of a job's experiment lie."""
    return Path(job.settings.runs) / (slug(job.experiment) or "default")


def create(job: Job, fingerprint: str) -> Run:
    """A new run directory, complete from the moment it is there; or that of another process that was faster."""
    with _creating(job.settings.runs) as index:
        return index.find(fingerprint) or _create(job, fingerprint)


def create_all(jobs: Iterable[tuple[Job, str]]) -> dict[str, Run]:
    """The same for many jobs and their fingerprints, a root looked through once; without those that cannot be made."""
    made: dict[str, Run] = {}
    by_root: dict[str, list[tuple[Job, str]]] = {}
    for job, fingerprint in jobs:
        by_root.setdefault(job.settings.runs, []).append((job, fingerprint))
    for root, new in by_root.items():
        with contextlib.suppress(OSError), _creating(root) as index:
            for job, fingerprint in new:
                with contextlib.suppress(RecordError, OSError):
                    made[fingerprint] = index.find(fingerprint) or _create(job, fingerprint)
    return made


@contextlib.contextmanager
def _creating(runs: str) -> Iterator[Index]:
    """A folder in which nobody else creates a run meanwhile, rid of what was left half made."""
    root = Path(runs)
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / ".lock"):
        index = Index(root)
        for path in index.unfinished:
            shutil.rmtree(path, ignore_errors=True)
        yield index


def _create(job: Job, fingerprint: str) -> Run:
    parent = experiment_folder(job)
    temporary = parent / f"{NEW}{fingerprint[:8]}-{os.getpid()}"
    temporary.mkdir(parents=True)
    try:
        (temporary / "config.yaml").write_text(yaml.safe_dump(job.plain(), sort_keys=False), encoding="utf-8")
        (temporary / "run.json").write_text(json.dumps(_facts(job, fingerprint), indent=1, default=_plain) + "\n")
        path = _rename(temporary, parent / f"{job.label}-", fingerprint)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Run(path)


def refer(job: Job, run: Run) -> None:
    """Record under the job's own experiment that its run lies under another one."""
    folder = experiment_folder(job)
    if run.path.parent.resolve() != folder.resolve():
        folder.mkdir(parents=True, exist_ok=True)
        content = {"format": FORMAT, "run": os.path.relpath(run.path, folder)}
        write_atomically(folder / f"{job.label}-{run.path.name.rpartition('-')[2]}.json", json.dumps(content).encode())


def _rename(temporary: Path, prefix: Path, fingerprint: str) -> Path:
    """The first free name: 8 digits of the fingerprint, or more where two jobs share these."""
    for digits in (8, 16, 64):
        path = prefix.with_name(prefix.name + fingerprint[:digits])
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
        "seeds": {choice.kind: choice.seed for choice in job.choices},
        "created": now(),
        "resumed_from": [],
        "seconds": 0.0,
        **provenance(job.settings.device),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written to run.json")
