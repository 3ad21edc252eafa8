"""Where a run's numbers come from: versions, commit, machine, command."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import time
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("nnexp", "torch", "pytorch-lightning", "hydra-core", "tensorboard", "numpy")
GIT_SECONDS = 30


def provenance_facts(device: str) -> dict[str, Any]:
    """Where a run's numbers come from."""
    git = _git_state(os.getcwd(), int(time.monotonic() / GIT_SECONDS))
    process = {"host": socket.gethostname(), "pid": os.getpid(), "command": [Path(sys.argv[0]).name, *sys.argv[1:]]}
    return {"versions": versions(), "git": git, "platform": platform.platform(), "device": device, **process}


@cache
def versions() -> dict[str, str]:
    """Of Python and of the packages that make the numbers."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


@lru_cache(maxsize=1)
def _git_state(_folder: str, _time: int) -> dict[str, Any] | None:
    """Asked once for all lanes of a cohort, and again where the folder or the commit may be another."""
    return git_state()


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
