"""Provenance of a run: package versions, git commit, machine, command."""

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
    """Return the provenance entries of run.json.

    Args:
        device: the device that the job asks for, as in its configuration.
    """
    git = _git_state(os.getcwd(), int(time.monotonic() / GIT_SECONDS))
    machine = {"platform": platform.platform(), "processor": processor()}
    process = {"host": socket.gethostname(), "pid": os.getpid(), "command": [Path(sys.argv[0]).name, *sys.argv[1:]]}
    return {"versions": versions(), "git": git, **machine, "device": device, **process}


@cache
def processor() -> str:
    """Return the processor's name, for which kernels are compiled; its architecture where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that influence results."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


@lru_cache(maxsize=1)
def _git_state(_folder: str, _time: int) -> dict[str, Any] | None:
    """Cache `git_state` by working directory and half minute, for the lanes of a cohort share it."""
    return git_state()


def git_state() -> dict[str, Any] | None:
    """Return commit and dirty flag of the working directory, or None outside a repository or without git."""
    try:
        commit = _git("rev-parse", "HEAD")
        return {"commit": commit, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, timeout=10)
    return result.stdout.strip()
