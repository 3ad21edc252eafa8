"""Start method of worker processes: a fork server that has imported everything once, where the system has one."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import multiprocessing.util
import os
import signal
import tempfile
from collections.abc import Iterator

from nnexp.base import SIGNALS

START_METHOD = "forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn"
SAFE_PATH = "PYTHONSAFEPATH"
MAX_FOLDER_BYTES = 60


def start_forkserver() -> None:
    """Start the fork server if it is not running; signals for the main process are blocked in it."""
    if START_METHOD != "forkserver":
        return
    from multiprocessing import forkserver, resource_tracker

    resource_tracker.ensure_running()  # started before signals are blocked, because it unblocks them
    before, safe = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS), os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"  # a file in the working directory must not shadow a module of the standard library
    try:
        with short_temporary_folder():
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        del os.environ[SAFE_PATH]
        if safe is not None:
            os.environ[SAFE_PATH] = safe


@contextlib.contextmanager
def short_temporary_folder() -> Iterator[None]:
    """Use /tmp for the sockets of multiprocessing if TMPDIR is long.

    The path of a socket has at most 108 bytes on Linux and 104 on macOS.
    """
    before, folder = tempfile.tempdir, tempfile.gettempdir()
    if len(os.fsencode(folder)) > MAX_FOLDER_BYTES:
        tempfile.tempdir = "/tmp"  # noqa: S108  # multiprocessing makes a private folder in it
    try:
        mp.util.get_temp_dir()
        yield
    finally:
        tempfile.tempdir = before
