"""Splits of a dataset: tensors (x, y) or (x, y, lengths), their check, and their device."""

from __future__ import annotations

import torch
from torch import Tensor

from nnexp.base import NnexpError
from nnexp.data.data_spec import DataSpec

BLOCK_BYTES = 1 << 20
Split = tuple[Tensor, ...]


def to_device(split: Split, dtype: torch.dtype, device: torch.device) -> Split:
    """The tensors of a split on a device, real numbers in the given precision."""
    return tuple(_moved(t, dtype if t.is_floating_point() else t.dtype, device) for t in split)


def _moved(t: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Rows that overlap in memory, such as windows of a text, still do so afterwards: what they view is moved."""
    num_stored = t.untyped_storage().nbytes() // t.element_size()
    if t.numel() <= num_stored:
        return t.to(device, dtype)
    stored = t.as_strided((num_stored,), (1,), 0).to(device, dtype)
    return stored.as_strided(t.shape, t.stride(), t.storage_offset())


def _bounds(y: Tensor) -> tuple[float, float]:
    """The smallest and the largest label. In parts, for torch would write out rows that overlap in memory."""
    rows = max(1, BLOCK_BYTES // max(1, y[0].numel() * y.element_size()))
    parts = [(part.min().item(), part.max().item()) for part in y.split(rows)]
    return min(low for low, _ in parts), max(high for _, high in parts)


def check_split(name: str, split: Split, data: DataSpec) -> None:
    """Raise NnexpError where the tensors of a split are not what their specification says."""
    if len(split) < 2 or not all(isinstance(t, Tensor) and len(t) == len(split[0]) > 0 for t in split):
        raise NnexpError(f"the dataset's '{name}' must be a tuple (x, y) or (x, y, lengths) of tensors with rows.")
    x, y = split[:2]
    if tuple(x.shape[1:]) != tuple(data.shape):
        raise NnexpError(
            f"the dataset's '{name}' has inputs of shape {tuple(x.shape[1:])}, its spec says {data.shape}."
        )
    if data.target == "value":
        return
    low, high = _bounds(y)
    if y.is_floating_point() or low < 0 or high >= data.outputs:
        wrong = f"labels of {y.dtype} from {low} to {high}"
        raise NnexpError(f"the dataset's '{name}' has {wrong}; needed are whole numbers from 0 to {data.outputs - 1}.")
