"""Keep freed memory in the process (glibc `mallopt`) while a stack trains, instead of returning it to the system.

By default glibc unmaps large arrays as soon as they are freed, so every step page-faults all of them in again, which
takes up to 40 % of a step.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # parameters of mallopt, from malloc.h
NO_TRIM = 2**31 - 1
# mallopt turns off glibc's dynamic thresholds for good. These are the values that they converge to with large arrays;
# the initial ones would slow down every model trained in the same process afterwards.
RESTORED = {M_MMAP_MAX: 65536, M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 64 << 20}


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


GLIBC = _glibc()


@contextmanager
def keep_freed_memory(library: ctypes.CDLL | None = GLIBC) -> Iterator[None]:
    """Keep freed memory in the process within the block, and return it to the system after it.

    Does nothing without glibc (`library` is None).
    """
    if library is None:
        yield
        return
    library.mallopt(M_MMAP_MAX, 0)
    library.mallopt(M_TRIM_THRESHOLD, NO_TRIM)
    try:
        yield
    finally:
        for parameter, value in RESTORED.items():
            library.mallopt(parameter, value)
        library.malloc_trim(ctypes.c_size_t(0))
