"""Crash-safe file writing: after a kill, a file holds either its old content or its new content, never a mixture.

Data that was written survives a killed process; only data that was fsynced, which is slower, survives a power cut too.
A run is therefore fsynced once, at its end: weights and metrics, and their names in the run's folder, are on disk
before run.json says `finished`. Whatever a power cut destroys before that can be recomputed: a checkpoint holds a
checksum of itself and of the metrics it refers to, so a damaged one is replaced by the previous checkpoint, or training
starts again. A job whose run.json is damaged gets a new directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

TEMPORARY = r"\..+\.\d+\.part"  # regex of the names under which `write_atomically` writes
MAX_FSYNC_THREADS = 16


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by renaming a temporary one, so that readers see either the old content or the new.

    Raises OSError, and removes the temporary file, where the content cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary.unlink(missing_ok=True)  # never write through a symbolic link of that name
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_at(path: Path, offset: int, content: bytes) -> int:
    """Write into an existing file and return the offset after the content.

    Safe to repeat: the same call after a partial write leaves the same file.
    """
    with open_regular(path) as file:
        file.seek(offset)
        file.write(content)
    return offset + len(content)


def open_regular(path: Path, *, create: bool = False) -> BinaryIO:
    """Open a file for reading and writing; raise OSError for a symbolic link.

    Run directories may come from other people, and a link in one must not redirect writes to another file.
    """
    flags = os.O_RDWR | (os.O_CREAT if create else 0) | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, 0o666), "rb+")


def read_regular(path: Path) -> bytes:
    """Return the content of a file without blocking: a pipe without a writer reads as empty."""
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        return file.read() or b""


def fsync_all(groups: Sequence[Sequence[Path]]) -> list[OSError | None]:
    """Flush the files of many runs to disk in parallel, which takes a disk about as long as flushing one.

    Of a folder among them, the entries are flushed: after a rename, a power cut can lose a file's new name.

    Args:
        groups: the files of each run.

    Returns:
        For each group, the first error, or None.
    """
    with ThreadPoolExecutor(MAX_FSYNC_THREADS) as pool:
        return list(pool.map(_fsync, groups))


def _fsync(paths: Sequence[Path]) -> OSError | None:
    try:
        for path in paths:
            if path.is_dir():
                _fsync_folder(path)
            else:
                with open_regular(path) as file:
                    os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


def _fsync_folder(folder: Path) -> None:
    if os.name == "nt":  # opens no folders
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # on file systems that flush files only
            raise
    finally:
        os.close(opened)
