"""What a model plugin provides."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Model(Protocol):
    """An `nn.Module` made with the data's specification: forward only, no loss and no optimiser.

    It may draw from the global generators, which it finds seeded. What changes while it trains must be a parameter or
    a buffer, for these alone are in a checkpoint. Models are stacked by `torch.func.vmap`, traced once: where `forward`
    branches on the numbers in tensors, its lanes are trained one by one. A module with an attribute `fused` takes,
    where that is False, code that works under vmap.
    """

    def __call__(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """x (B, *data.shape), lengths (B,) -> (B, outputs), or (B, T, outputs) where `data.per_step`."""
