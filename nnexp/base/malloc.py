"""Memory that a stack frees is kept for its next step: to fault large arrays in again costs up to 40 % of one.

glibc gives large arrays back to the system as soon as they are freed, and each step would fault all of them in again.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Of malloc.h: what mallopt sets.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
NEVER = 2**31 - 1
# Once set, glibc's own rule for the thresholds stays off. These are the values at which it ends where arrays are large;
# those at which it begins would make every model slower that is trained in the same process afterwards.
AFTERWARDS = {M_MMAP_MAX: 65536, M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 64 << 20}


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


GLIBC = _glibc()


@contextmanager
def keep_freed_memory(library: ctypes.CDLL | None = GLIBC) -> Iterator[None]:
    """Within the block, what is freed stays in the process; after it, it goes back. Nothing happens without glibc."""
    if library is None:
        yield
        return
    library.mallopt(M_MMAP_MAX, 0)
    library.mallopt(M_TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        for parameter, value in AFTERWARDS.items():
            library.mallopt(parameter, value)
        library.malloc_trim(ctypes.c_size_t(0))
