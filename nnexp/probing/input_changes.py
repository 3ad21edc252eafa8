"""Changes of input positions for the measurement of receptive fields.

Shapes: G changes, A axes of the input along which positions lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from nnexp.data import DataSpec

CHANGE = 50.0  # size of a change: 0.5 to 1.5 times this
MAX_SINGLE, WINDOW = 256, 128  # positions changed one by one: of a whole input, and in the middle of a longer axis
NUM_INPUTS = 2


def _spans(size: int) -> list[tuple[int, int]]:
    """Return the first and last position of each change along an axis: single ones, and blocks in a long axis."""
    if size <= MAX_SINGLE:
        return [(index, index) for index in range(size)]
    low = (size - WINDOW) // 2
    high, block = low + WINDOW, -(-size // WINDOW)
    edges = {0, 1, *range(1, low, block), *range(low, high), *range(high, size - 1, block), size - 1, size}
    return [(start, end - 1) for start, end in pairwise(sorted(edges))]


def change_masks(grid: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the masks (G, *grid) of the changes, and their first and last positions (A, G) along each axis.

    A change of a whole row or column has the position -1 along the axis that it covers.
    """
    if math.prod(grid) <= MAX_SINGLE:
        masks = torch.eye(math.prod(grid), dtype=torch.bool).view(-1, *grid)
        first = masks.nonzero()[:, 1:].T.contiguous()
        return masks, first, first
    spans = [_spans(size) for size in grid]
    first = torch.full((len(grid), sum(map(len, spans))), -1)
    last, masks, number = first.clone(), torch.zeros(first.shape[1], *grid, dtype=torch.bool), 0
    for axis, axis_spans in enumerate(spans):
        for start, end in axis_spans:
            first[axis, number], last[axis, number] = start, end
            masks[number].narrow(axis, start, end - start + 1).fill_(True)
            number += 1
    return masks, first, last


def changed_inputs(data: DataSpec, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield random inputs, each with the values that replace it where it is changed, both of shape `data.shape`."""
    shape = data.shape
    draws: dict[str, Any] = {"generator": generator}
    for _ in range(NUM_INPUTS):
        if data.kind == "tokens":
            x = torch.randint(data.vocab, shape, **draws)
            for _ in range(2):
                yield x, (x + torch.randint(1, data.vocab, shape, **draws)) % data.vocab
            continue
        x, sign = torch.randn(shape, **draws), torch.randint(2, shape, **draws) * 2 - 1
        amount = CHANGE * sign * (0.5 + torch.rand(shape, **draws))  # equal changes would cancel in an edge filter
        yield x, x + amount
        yield x, x - amount
