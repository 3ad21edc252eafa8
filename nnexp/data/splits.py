"""The splits of a dataset, tuples of tensors (x, y) or (x, y, lengths), moved to a device."""

from __future__ import annotations

import torch
from torch import Tensor

Split = tuple[Tensor, ...]


COMMON_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)  # that torch computes with


def to_device(split: Split, dtype: torch.dtype, device: torch.device) -> Split:
    """Return the tensors of a split on a device; real numbers get `dtype`, integers keep their type.

    Lengths become int64, as the kernels of recurrent layers take them, and so do bool and the larger unsigned integers,
    with which torch hardly computes.
    """
    x, y, *lengths = split
    moved = (_moved(t, dtype if t.is_floating_point() else _integer_type(t), device) for t in (x, y))
    return *moved, *(t.to(device, torch.int64) for t in lengths)


def _integer_type(t: Tensor) -> torch.dtype:
    return t.dtype if t.dtype in COMMON_INTEGERS else torch.int64


def _moved(t: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Move a tensor; overlapping rows, such as windows of a text, stay views: their storage is moved instead."""
    stored = stored_numbers(t)
    if stored is None:
        return t.to(device, dtype)
    return stored.to(device, dtype).as_strided(t.shape, t.stride(), t.storage_offset())


def stored_numbers(t: Tensor) -> Tensor | None:
    """Return the whole storage of a tensor with overlapping rows, as a vector; None for any other tensor."""
    num_stored = t.untyped_storage().nbytes() // t.element_size()
    return t.as_strided((num_stored,), (1,), 0) if t.numel() > num_stored else None
