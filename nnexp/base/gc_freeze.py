"""Exclude the objects of large imports from garbage collection (`gc.freeze`), which shortens start-up and exit."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen_import(module: str) -> Iterator[None]:
    """Disable garbage collection within the block, then exclude all live objects from it permanently.

    Importing torch and Lightning creates a million objects; scanning them takes a third of the time that a short run
    spends outside training. Existing garbage is collected first, since everything alive after the block is kept.

    Args:
        module: the module that the block imports; where it is already imported, this context manager does nothing.

    >>> with frozen_import("torch"):
    ...     import torch
    """
    if module in sys.modules:
        yield
        return
    is_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if is_enabled:
            gc.enable()
