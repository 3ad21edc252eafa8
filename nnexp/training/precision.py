"""The precision in which a job computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

DTYPES = {32: torch.float32, 64: torch.float64, "bf16": torch.float32}


@contextmanager
def precision_context(precision: int | str, device: torch.device) -> Iterator[None]:
    """Real numbers that a model makes itself, such as one-hot tokens, have the precision of its weights; with bf16
    the operations for which that is safe are computed in it, on weights of 32 bits.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[precision])
    try:
        # Without its cache, which would keep the weights of the chunk's first update.
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
            yield
    finally:
        torch.set_default_dtype(before)
