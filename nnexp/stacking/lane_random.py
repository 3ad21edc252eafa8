"""Random numbers for the lanes of a stack, independent of the other lanes in it.

A shared generator would hand its numbers to the lanes in turn, so that a lane's numbers depended on its place in the
stack. Here each number is a hash of the lane's seed, the step, the number of the draw and the index in it (SplitMix64,
Steele, Lea & Flood, 2014, doi:10.1145/2660193.2660195). A solo run draws from torch's generator, so the two agree in
distribution only.
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
    """Convert an unsigned 64-bit integer to the signed one with the same bits."""
    return (number + 2**63) % 2**64 - 2**63


GAMMA = _signed(0x9E3779B97F4A7C15)
MIXERS = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)))
DIGITS = {torch.float16: 11, torch.bfloat16: 8}  # of a number in [0, 1)


def first_keys(seeds: Sequence[int], device: torch.device) -> Tensor:
    """Return one key (K,) for each lane, from its seed."""
    return torch.tensor([derive_seed(seed, "draws") for seed in seeds], device=device)


def step_keys(first: Tensor, step: int) -> Tensor:
    """Return the keys (K,) of one update.

    Args:
        first: (K,), from `first_keys`.
        step: number of the update.
    """
    return _mixed(first + _signed(step * GAMMA))


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shift right, filling with zeros."""
    result: Tensor = (x >> bits) & (2 ** (64 - bits) - 1)
    return result


def _mixed(x: Tensor) -> Tensor:
    for bits, factor in MIXERS:
        x = (x ^ _shifted(x, bits)) * factor
    return x ^ _shifted(x, 31)


def uniform(key: Tensor, shape: Iterable[int], dtype: torch.dtype) -> Tensor:
    """Return uniform numbers in [0, 1), multiples of 2**-24, or of 2**-11 and 2**-8 for half and bfloat16.

    More digits would be rounded up to 1 there.

    Args:
        key: (), determines all numbers.
        shape: shape of the result.
        dtype: floating-point type of the result.
    """
    shape = tuple(shape)
    indices = torch.arange(1, math.prod(shape) + 1, device=key.device) * GAMMA
    digits = DIGITS.get(dtype, 24)
    return (_shifted(_mixed(key + indices), 64 - digits).to(dtype) * 2.0**-digits).view(shape)


class LaneRandom(TorchFunctionMode):
    """Replaces dropout and other random torch functions within its block by ones that draw from a key.

    Used under vmap, which raises for all other random functions.

    Args:
        key: () per lane, from `step_keys`.
    """

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self.key, self.count = key, 0

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        replacement = REPLACEMENTS.get(func)
        return replacement(self, *args, **(kwargs or {})) if replacement else func(*args, **(kwargs or {}))

    def uniform(self, shape: Iterable[int], dtype: torch.dtype) -> Tensor:
        """Draw uniform numbers in [0, 1)."""
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
        """Apply dropout to single numbers, or to whole channels of (B, C, ...)."""
        if not training or not p:
            return input
        shape = (*input.shape[:2], *[1] * (input.dim() - 2)) if channels else input.shape
        is_kept = self.uniform(shape, torch.float32) >= p
        return torch.where(is_kept, input / (1 - p), torch.zeros_like(input)) if p < 1 else torch.zeros_like(input)

    def rand_like(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Draw uniform numbers of the shape of x."""
        return self.uniform(x.shape, dtype or x.dtype)

    def randn_like(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Draw normal numbers of the shape of x, by Box & Muller (1958, doi:10.1214/aoms/1177706645)."""
        exact = torch.promote_types(dtype or x.dtype, torch.float32)
        radius = (-2 * (1 - self.uniform(x.shape, exact)).log()).sqrt()
        return (radius * (2 * math.pi * self.uniform(x.shape, exact)).cos()).to(dtype or x.dtype)


REPLACEMENTS: dict[Any, Callable[..., Tensor]] = {
    torch.dropout: LaneRandom.dropout,
    functional.dropout: LaneRandom.dropout,
    functional.dropout1d: partial(LaneRandom.dropout, channels=True),
    functional.dropout2d: partial(LaneRandom.dropout, channels=True),
    functional.dropout3d: partial(LaneRandom.dropout, channels=True),
    torch.rand_like: LaneRandom.rand_like,
    torch.randn_like: LaneRandom.randn_like,
}
