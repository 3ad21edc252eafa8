"""The run directory of one job: run.json with its validation, error.txt, the lock and its heartbeat.

A directory is locked while its run trains, and files are replaced by rename, so a reader never sees half a file.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nnexp.base import TEMPORARY, RecordError, read_regular, write_atomically

FORMAT = 1
ENDED = ("finished", "diverged", "failed")
ERROR_FILE = "error.txt"
HEARTBEAT_SECONDS = 60


def _is_number(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and abs(value) < 2**63


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 2**63


def _are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(each is None or _is_number(each) for each in value.values())


# Entries of run.json that other code relies on: a check of the value, and whether the entry is required.
FACTS: dict[str, tuple[Callable[[Any], bool], bool]] = {
    "status": (lambda value: isinstance(value, str), True),
    "fingerprint": (lambda value: isinstance(value, str), True),
    "seconds": (_is_number, True),
    "resumed_from": (lambda value: isinstance(value, list), True),
    "steps": (_is_count, False),
    "lanes": (lambda value: _is_count(value) and value > 0, False),
    "parameters": (_is_count, False),
    "notes": (lambda value: isinstance(value, list) and all(isinstance(text, str) for text in value), False),
    "metrics": (_are_numbers, False),
    "probes": (_are_numbers, False),
    "looked": (lambda value: isinstance(value, dict), False),
    "probing": (lambda value: isinstance(value, dict) and all(map(_is_number, value.values())), False),
    "error": (
        lambda value: value is None or (isinstance(value, dict) and isinstance(value.get("message"), str)),
        False,
    ),
}


def utc_now() -> str:
    """Return the time in UTC as ISO 8601 text, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def max_locks() -> int:
    """Return the number of run directories that this process can lock at a time, each of them an open file.

    Raises the process's soft limit of open files to at most 4096 first.
    """
    try:
        import resource
    except ImportError:  # not a POSIX system
        return 256
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    with contextlib.suppress(OSError, ValueError):
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return max(1, soft - 128)


class Run:
    """One run directory: reads and writes run.json, holds the lock.

        run = Run(Path("runs/default/forget_bias=3-0a1b2c3d"))
        run.read()["metrics"]
        run.lock()
        run.write(status="finished", metrics={"val/loss": 0.25})
        run.unlock()

    While this object holds the lock no other process writes run.json, so its content is cached for that time.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # a plugin may change the working directory
        self.on_end: Callable[[], None] | None = None
        self._lock: FileLock | None = None
        self._cached: bytes | None = None
        self._last_heartbeat = 0.0

    def read(self) -> dict[str, Any]:
        """Return the content of run.json.

        Raises:
            RecordError: the file is missing, cannot be read, or an entry is invalid.
        """
        try:
            facts = json.loads((self._cached or read_regular(self.path / "run.json")).decode())
        except FileNotFoundError:
            raise RecordError(f"{self.path} has no run.json and is not a run directory.") from None
        except (OSError, ValueError, RecursionError) as error:
            raise RecordError(f"{self.path}: run.json cannot be read ({error}). Move the directory away.") from None
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise RecordError(f"{self.path}: not a run directory of format {FORMAT}. Move it away, or update nnexp.")
        for name, (is_valid, is_required) in FACTS.items():
            if (is_required or name in facts) and not is_valid(facts.get(name)):
                raise RecordError(f"{self.path}: run.json has no valid '{name}'. Move the directory away.")
        return facts

    def write(self, **facts: Any) -> None:
        """Set entries of run.json and replace the file atomically; call `on_end` when the status is in `ENDED`.

        An `error` is also written to error.txt; its traceback goes there only.

        Args:
            facts: entries to add or replace, of JSON's types or paths.

        Raises:
            RecordError: the present run.json cannot be read.
            OSError: the file cannot be written.
        """
        if "error" in facts:
            facts["error"] = self._write_error(facts["error"])
        content = run_json(self.read() | facts)
        write_atomically(self.path / "run.json", content)
        if self._lock is not None:
            self._cached = content
        if self.on_end is not None and facts.get("status") in ENDED:
            self.on_end()

    def _write_error(self, error: dict[str, str] | None) -> dict[str, str] | None:
        path = self.path / ERROR_FILE
        if error is None:
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):  # a full disk: run.json, if it can be written, has the message
            write_atomically(path, f"{error['message']}\n\n{error.get('traceback', '')}".encode(errors="replace"))
        return {name: text for name, text in error.items() if name != "traceback"}

    @property
    def status(self) -> str:
        """Status in run.json: new, running, finished, diverged, failed or interrupted.

        Raises:
            RecordError: run.json cannot be read.
        """
        return str(self.read().get("status"))

    @property
    def is_locked(self) -> bool:
        """True while a process on this host holds the lock."""
        try:
            with FileLock(self.path / "lock").acquire(timeout=0):
                return False
        except Timeout:
            return True
        except OSError:  # no such directory, or no permission to write
            return False

    def lock(self) -> None:
        """Lock the directory for this process and remove temporary files of a killed one.

        Raises:
            RecordError: another process trains in it, or run.json cannot be read.
        """
        path = self.path / "lock"
        facts = self.read()
        age = time.time() - path.stat().st_mtime if path.exists() else float("inf")
        elsewhere = facts.get("host") != socket.gethostname()
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RecordError(self._busy_message(facts)) from None
        self._lock = lock
        # A shared file system may not share locks between hosts, so a fresh heartbeat counts as a lock there.
        if facts["status"] == "running" and elsewhere and age < HEARTBEAT_SECONDS:
            self.unlock()
            raise RecordError(self._busy_message(facts))
        self._remove_temporary_files()
        # Read again: another process may have ended the run before the lock. `read` raises what fails here.
        with contextlib.suppress(OSError):
            self._cached = (self.path / "run.json").read_bytes()

    def _remove_temporary_files(self) -> None:
        for name in os.listdir(self.path):
            if re.fullmatch(TEMPORARY, name):
                with contextlib.suppress(OSError):
                    (self.path / name).unlink()

    def _busy_message(self, facts: dict[str, Any]) -> str:
        who = f"process {facts.get('pid')} on {facts.get('host')}"
        return f"{self.path} is being trained by {who}. Wait for it or stop it, then repeat the command."

    def heartbeat(self) -> None:
        """Touch the lock file, at most once in ten seconds, so that other hosts see that the run is alive."""
        if time.monotonic() - self._last_heartbeat > HEARTBEAT_SECONDS / 6:
            self._last_heartbeat = time.monotonic()
            os.utime(self.path / "lock")

    def unlock(self) -> None:
        """Release the lock, if held, and drop the cached run.json."""
        if self._lock is not None:
            self._lock.release()
            self._lock = self._cached = None


def run_json(facts: dict[str, Any]) -> bytes:
    """Return the bytes of run.json.

    Raises:
        TypeError: a value is neither of JSON's types nor a path.
    """
    return (json.dumps(facts, indent=1, default=_plain) + "\n").encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written to run.json")
