"""The run directory: one job's results, readable without this program.

Locked while it is trained, its files replaced by rename; nothing finished is overwritten.
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
ERROR = "error.txt"
HEARTBEAT_SECONDS = 60


def _is_number(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and abs(value) < 2**63


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 2**63


def _are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(each is None or _is_number(each) for each in value.values())


# What is relied on of each fact, and whether it is always there.
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
    return datetime.now(UTC).isoformat(timespec="seconds")


def most_locks() -> int:
    """How many directories this process can hold the locks of: each is an open file."""
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
    """One run directory. While its lock is held nobody else writes run.json, so it is read once for all that time."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # a plugin may change the working directory
        self.when_ended: Callable[[], None] | None = None
        self._lock: FileLock | None = None
        self._known: bytes | None = None
        self._beat = 0.0

    def read(self) -> dict[str, Any]:
        """What run.json says. Raises RecordError where it cannot be read."""
        try:
            facts = json.loads((self._known or read_regular(self.path / "run.json")).decode())
        except FileNotFoundError:
            raise RecordError(f"{self.path}: there is no run.json, so this is no run directory.") from None
        except (OSError, ValueError, RecursionError) as error:
            raise RecordError(f"{self.path}: run.json cannot be read ({error}). Move the directory away.") from None
        if not isinstance(facts, dict) or facts.get("format") != FORMAT:
            raise RecordError(f"{self.path}: not a run directory of format {FORMAT}. Move it away, or update nnexp.")
        for name, (is_sound, is_needed) in FACTS.items():
            if (is_needed or name in facts) and not is_sound(facts.get(name)):
                raise RecordError(f"{self.path}: run.json has no sound '{name}'. Move the directory away.")
        return facts

    def write(self, **facts: Any) -> None:
        """Change facts in run.json; a fact that is not in JSON's own types is an error of the caller.

        An error stands in error.txt too, with its traceback there only.
        """
        if "error" in facts:
            facts["error"] = self._tell_error(facts["error"])
        content = run_json(self.read() | facts)
        write_atomically(self.path / "run.json", content)
        if self._lock is not None:
            self._known = content
        if self.when_ended is not None and facts.get("status") in ENDED:
            self.when_ended()

    def _tell_error(self, error: dict[str, str] | None) -> dict[str, str] | None:
        path = self.path / ERROR
        if error is None:
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):  # a full disk: run.json, if that can be written, says the most of it
            write_atomically(path, f"{error['message']}\n\n{error.get('traceback', '')}".encode(errors="replace"))
        return {name: text for name, text in error.items() if name != "traceback"}

    @property
    def status(self) -> str:
        return str(self.read().get("status"))

    @property
    def is_locked(self) -> bool:
        """Whether a process has the directory now, on this host."""
        try:
            with FileLock(self.path / "lock").acquire(timeout=0):
                return False
        except Timeout:
            return True
        except OSError:  # it is gone, or may not be written
            return False

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
            self._known = (self.path / "run.json").read_bytes()

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


def run_json(facts: dict[str, Any]) -> bytes:
    """The content of run.json."""
    return (json.dumps(facts, indent=1, default=_plain) + "\n").encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written to run.json")
