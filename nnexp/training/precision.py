"""Floating-point precision of a job: default dtype and autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

DTYPES = {32: torch.float32, 64: torch.float64, "bf16": torch.float32}


@contextmanager
def precision_context(precision: int | str, device: torch.device) -> Iterator[None]:
    """Set the default dtype to that of the weights inside the block, and autocast to bfloat16 for "bf16".

    The default dtype applies to tensors that a model creates itself, such as one-hot tokens. With "bf16" the weights
    have 32 bits.

    Args:
        precision: 32, 64 or "bf16".
        device: device of the weights, for autocast.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[precision])
    try:
        # No cache: it would reuse the cast weights of the chunk's first update.
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False):
            yield
    finally:
        torch.set_default_dtype(before)
