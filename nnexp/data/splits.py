"""Check the splits of a dataset, tuples of tensors (x, y) or (x, y, lengths), and move them to a device."""

from __future__ import annotations

import torch
from torch import Tensor

from nnexp.base import NnexpError
from nnexp.data.data_spec import DataSpec

BLOCK_BYTES = 1 << 20
Split = tuple[Tensor, ...]


def to_device(split: Split, dtype: torch.dtype, device: torch.device) -> Split:
    """Return the tensors of a split on a device; real numbers get `dtype`, integers keep their type."""
    return tuple(_moved(t, dtype if t.is_floating_point() else t.dtype, device) for t in split)


def _moved(t: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Move a tensor; overlapping rows, such as windows of a text, stay views: their storage is moved instead."""
    num_stored = t.untyped_storage().nbytes() // t.element_size()
    if t.numel() <= num_stored:
        return t.to(device, dtype)
    stored = t.as_strided((num_stored,), (1,), 0).to(device, dtype)
    return stored.as_strided(t.shape, t.stride(), t.storage_offset())


def _bounds(y: Tensor) -> tuple[float, float]:
    """Return the smallest and the largest label, in blocks: torch materialises overlapping rows."""
    rows = max(1, BLOCK_BYTES // max(1, y[0].numel() * y.element_size()))
    parts = [(part.min().item(), part.max().item()) for part in y.split(rows)]
    return min(low for low, _ in parts), max(high for _, high in parts)


def check_split(name: str, split: Split, data: DataSpec) -> None:
    """Raise NnexpError unless the tensors of a split agree with the specification.

    Args:
        name: "train", "val" or "test", for the message.
        split: (x, y) or (x, y, lengths): x (N, *data.shape), y (N,) or (N, T), lengths (N,).
        data: specification of the dataset.
    """
    if len(split) < 2 or not all(isinstance(t, Tensor) and len(t) == len(split[0]) > 0 for t in split):
        raise NnexpError(f"the dataset's '{name}' must be a tuple (x, y) or (x, y, lengths) of tensors with rows.")
    x, y = split[:2]
    if tuple(x.shape[1:]) != tuple(data.shape):
        raise NnexpError(
            f"the dataset's '{name}' has inputs of shape {tuple(x.shape[1:])}, its spec has shape {data.shape}."
        )
    if data.target == "value":
        return
    low, high = _bounds(y)
    if y.is_floating_point() or low < 0 or high >= data.outputs:
        wrong = f"labels of {y.dtype} from {low} to {high}"
        raise NnexpError(
            f"the dataset's '{name}' has {wrong}; its spec requires integers from 0 to {data.outputs - 1}."
        )
