"""The run directory: one job's results, readable without this program.

Created at once by a rename, locked while it is trained, its files replaced by rename; nothing finished is overwritten.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from nnexp.config import Job
from nnexp.errors import RecordError

FORMAT = 1
ENDED = ("finished", "diverged")
HEARTBEAT_SECONDS = 60
PACKAGES = ("nnexp", "torch", "pytorch-lightning", "hydra-core", "tensorboard", "numpy")


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


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by a rename, so that a reader sees the old content or the new, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Run:
    """One run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: FileLock | None = None
        self._beat = 0.0

    def read(self) -> dict[str, Any]:
        """What run.json says. Raises RecordError where it cannot be read."""
        try:
            facts = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.path}: run.json cannot be read ({error}). Move the directory away.") from None
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise RecordError(f"{self.path}: not a run directory of format {FORMAT}. Move it away, or update nnexp.")
        return facts

    def write(self, **facts: Any) -> None:
        """Change facts in run.json; a fact that is not in JSON's own types is an error of the caller."""
        content = json.dumps(self.read() | facts, indent=1, default=_plain)
        write_atomically(self.path / "run.json", (content + "\n").encode())

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
        # A shared file system may not pass locks between hosts: there the heartbeat decides.
        if facts["status"] == "running" and elsewhere and age < HEARTBEAT_SECONDS:
            lock.release()
            raise RecordError(self._busy(facts))
        self._lock = lock

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
            self._lock = None


class Index:
    """The run directories under a folder, looked at once, to be found by fingerprint."""

    def __init__(self, root: Path) -> None:
        self.paths: dict[str, list[Path]] = {}
        for path in sorted(root.glob("*/*-*")):
            self.paths.setdefault(path.name.rpartition("-")[2][:8], []).append(path)

    def find(self, fingerprint: str) -> Run | None:
        """The run of this fingerprint under any experiment, or None."""
        for path in self.paths.get(fingerprint[:8], []):
            with contextlib.suppress(RecordError):
                run = Run(path)
                if run.read().get("fingerprint") == fingerprint:
                    return run
        return None


def create(job: Job, fingerprint: str) -> Run:
    """A new run directory, complete from the moment it is there."""
    parent = Path(job.settings.runs) / (slug(job.experiment) or "default")
    parent.mkdir(parents=True, exist_ok=True)
    temporary = parent / f".new-{fingerprint[:8]}-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        (temporary / "config.yaml").write_text(yaml.safe_dump(job.plain(), sort_keys=False), encoding="utf-8")
        (temporary / "run.json").write_text(json.dumps(_facts(job, fingerprint), indent=1, default=_plain) + "\n")
        path = _rename(temporary, parent / f"{job.label}-", fingerprint)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Run(path)


def refer(job: Job, run: Run) -> None:
    """Record under the job's own experiment that its run lies under another one."""
    folder = Path(job.settings.runs) / (slug(job.experiment) or "default")
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
            if Run(path).read().get("fingerprint") == fingerprint:
                return path  # another process was first
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


def provenance(device: str) -> dict[str, Any]:
    """Where a run's numbers come from."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}
    process = {"host": socket.gethostname(), "pid": os.getpid(), "command": [Path(sys.argv[0]).name, *sys.argv[1:]]}
    return {"versions": versions, "git": git_state(), "platform": platform.platform(), "device": device, **process}


def git_state() -> dict[str, Any] | None:
    """Commit and dirty flag of the working directory, or None outside a repository."""
    try:
        commit = _git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, timeout=10)
    return result.stdout.strip()


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written to run.json")
