"""Random numbers within a stack: each lane's own, whatever other lanes there are.

A generator would give its numbers to all lanes in turn, and a lane's would depend on how many come before it. Here each
number is a hash of the lane's seed, the step, the draw and the place in it (SplitMix64, Steele, Lea & Flood, 2014,
doi:10.1145/2660193.2660195). A run alone draws from torch's generator: with it a lane is equal in distribution only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from nnexp.data import derive_seed


def _signed(number: int) -> int:
    """The same 64 bits as a tensor holds them."""
    return (number + 2**63) % 2**64 - 2**63


GAMMA = _signed(0x9E3779B97F4A7C15)
MIXERS = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)))


def first_keys(seeds: Sequence[int], device: torch.device) -> Tensor:
    """(K,): where the draws of each lane begin."""
    return torch.tensor([derive_seed(seed, "draws") for seed in seeds], device=device)


def step_keys(first: Tensor, step: int) -> Tensor:
    """(K,): where the draws of an update begin."""
    return _mixed(first + _signed(step * GAMMA))


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shifted to the right, with zeros from the left."""
    result: Tensor = (x >> bits) & (2 ** (64 - bits) - 1)
    return result


def _mixed(x: Tensor) -> Tensor:
    for bits, factor in MIXERS:
        x = (x ^ _shifted(x, bits)) * factor
    return x ^ _shifted(x, 31)


def uniform(key: Tensor, shape: Iterable[int], dtype: torch.dtype) -> Tensor:
    """Numbers in [0, 1) of 24 bits."""
    shape = tuple(shape)
    places = torch.arange(1, math.prod(shape) + 1, device=key.device) * GAMMA
    return (_shifted(_mixed(key + places), 40).to(dtype) * 2.0**-24).view(shape)


class LaneRandom(TorchFunctionMode):
    """In the block, what a module draws comes from `key`, a tensor () under vmap. Other draws are refused by vmap."""

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self.key, self.count = key, 0

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        drawn = DRAWN.get(func)
        return drawn(self, *args, **(kwargs or {})) if drawn else func(*args, **(kwargs or {}))

    def uniform(self, shape: Iterable[int], dtype: torch.dtype) -> Tensor:
        self.count += 1
        return uniform(_mixed(self.key + self.count), shape, dtype)

    def dropout(
        self,
        input: Tensor,  # noqa: A002  # torch's name
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
        *,
        channels: bool = False,
    ) -> Tensor:
        """Of single numbers, or of whole channels (B, C, ...)."""
        if not training or not p:
            return input
        shape = (*input.shape[:2], *[1] * (input.dim() - 2)) if channels else input.shape
        is_kept = self.uniform(shape, torch.float32) >= p
        return torch.where(is_kept, input / (1 - p), torch.zeros_like(input)) if p < 1 else torch.zeros_like(input)

    def rand_like(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        return self.uniform(x.shape, dtype or x.dtype)

    def randn_like(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """By Box & Muller (1958, doi:10.1214/aoms/1177706645)."""
        radius = (-2 * (1 - self.uniform(x.shape, dtype or x.dtype)).log()).sqrt()
        return radius * (2 * math.pi * self.uniform(x.shape, dtype or x.dtype)).cos()


DRAWN: dict[Any, Callable[..., Tensor]] = {
    torch.dropout: LaneRandom.dropout,
    functional.dropout: LaneRandom.dropout,
    functional.dropout1d: partial(LaneRandom.dropout, channels=True),
    functional.dropout2d: partial(LaneRandom.dropout, channels=True),
    functional.dropout3d: partial(LaneRandom.dropout, channels=True),
    torch.rand_like: LaneRandom.rand_like,
    torch.randn_like: LaneRandom.randn_like,
}
