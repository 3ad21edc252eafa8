"""Files that a kill at any moment leaves as they were or as they were to be.

What is handed to the system survives a kill; only what is settled, which costs more than writing, survives a power
cut as well. So a run is settled once, at its end: weights and metrics are on disk, under their names, before run.json
says `finished`, and then that is.
What a power cut can take before that can be made again: checkpoints have a checksum, and one of the metrics that they
refer to, so a torn one gives way to the one before, which the system wrote long ago, or training begins again. A job
whose run.json is torn gets a new directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

TEMPORARY = r"\..+\.\d+\.part"  # the names under which `write_atomically` writes
WAITS = 16


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by a rename, so that a reader sees the old content or the new, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary.unlink(missing_ok=True)  # a link that lies there must not lead to another file
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
    """Write from an offset of a file that is there; gives the end. One that failed half way is done again the same."""
    with open_regular(path) as file:
        file.seek(offset)
        file.write(content)
    return offset + len(content)


def open_regular(path: Path, *, create: bool = False) -> BinaryIO:
    """Open to read and write, never through a link: a directory from somebody else must not lead to another file."""
    flags = os.O_RDWR | (os.O_CREAT if create else 0) | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, 0o666), "rb+")


def read_regular(path: Path) -> bytes:
    """The content of a file; what would wait for a writer, as a pipe does, is an OSError."""
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        return file.read() or b""


def fsync_all(groups: Sequence[Sequence[Path]]) -> list[OSError | None]:
    """Wait until files are on disk, of many runs at once: a disk serves many waits in the time of one.

    Of a folder among them, the names of its files are: after a rename, a power cut can take a name from what it names.
    Returns for each group what went wrong.
    """
    with ThreadPoolExecutor(WAITS) as pool:
        return list(pool.map(_settle, groups))


def _settle(paths: Sequence[Path]) -> OSError | None:
    try:
        for path in paths:
            if path.is_dir():
                _settle_names(path)
            else:
                with open_regular(path) as file:
                    os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


def _settle_names(folder: Path) -> None:
    if os.name == "nt":  # opens no folders
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # of file systems that settle files alone
            raise
    finally:
        os.close(opened)
