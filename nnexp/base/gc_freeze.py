"""What is imported stays for good: it is not searched for garbage."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen_import(module: str) -> Iterator[None]:
    """What the block imports is searched for garbage neither while it is imported, nor later, nor at the exit.

    Torch and Lightning make a million objects; to look through them takes a third of the time that a short run
    spends outside its training. Garbage from before is collected first, for all that is there stays.

    Args:
        module: what is imported; where it already is, the block is as any other.
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
