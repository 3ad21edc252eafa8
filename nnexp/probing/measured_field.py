"""What each layer of a model sees of its input, measured: a position is changed, and what moves is looked at.

Nothing is asked of a model. Where positions lie in what a layer gives is known of torch's own layers; of any other it
is measured too: along the axes that tell most of where it looks. Changes are large and of both signs, so that a maximum
lets them win, and made to random inputs. More than 256 pixels are changed by whole rows and columns; of an axis longer
than that, blocks outside its middle are changed as one, and a field that ends in a block is taken for as small as it
may be.

Shapes: B rows, G changes, P output positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from nnexp.probing.hooks import Call, calls_of
from nnexp.probing.view import View

AMOUNT = 50.0
SAME = 1e-12  # of a layer's largest number: less is rounding
MOST, WINDOW = 256, 128  # positions that are changed one by one
MOST_OUTPUTS = 32  # along each axis of a map
NUM_INPUTS, ROW_NUMBERS = 2, 1 << 17


@dataclass
class Layer:
    """What is known of one layer.

    Args:
        axes: of its output, rows first, along which positions lie; none for the output of a whole row.
        moved: (G, P) whether a change moved an output position.
        places: (P, number of axes) of these positions, in the output.
        size: of the output along its axes.
        fields: (axes of the input, P) sizes of what moves each of them.
        centre: of the P: the one with the largest field, of several the one nearest to the middle.
    """

    axes: tuple[int, ...]
    moved: Tensor
    places: Tensor
    size: tuple[int, ...]
    fields: Tensor = field(default_factory=lambda: torch.empty(0))
    centre: int = 0

    @property
    def place(self) -> list[int]:
        """Where in the output the centre is."""
        return [int(index) for index in self.places[self.centre]] if self.axes else []

    def at_centre(self, output: Tensor) -> Tensor | None:
        """(B, numbers): those at the centre, of an output with rows first; None where it has another size."""
        if output.ndim <= max(self.axes, default=0) or tuple(output.shape[axis] for axis in self.axes) != self.size:
            return None
        for axis, index in sorted(zip(self.axes, self.place, strict=True), reverse=True):
            output = output.select(axis, index)
        return output.flatten(1)


class Measured:
    """The measured field of every layer that has positions, and of the output."""

    def __init__(self, view: View) -> None:
        self.view, self.data = view, view.data
        self.grid = self.data.shape[1:] if self.data.kind == "image" else self.data.shape[:1]
        self.masks, self.first, self.last = _changes(self.grid)
        self.sizes = {tuple(self.grid)}  # along the positions of the layers so far
        self.layers: dict[str, Layer] = {}
        with torch.no_grad():
            for rows, which in self._rows():
                for name, (call, output) in measure_outputs(calls_of(view.module, rows), len(rows)).items():
                    self._note(name, call.module, output, which)
        for layer in self.layers.values():
            layer.fields = self._fields(layer.moved)
            score = layer.fields.prod(0)
            middle = (torch.tensor(layer.size) - 1) / 2
            away = (layer.places - middle).square().sum(1).masked_fill(score < score.max(), math.inf)
            layer.centre = int(away.argmin())

    def seen(self, name: str) -> Tensor:
        """(*grid): whether a change there moves the centre of a layer."""
        layer = self.layers[name]
        moved = layer.moved[:, layer.centre]
        return torch.stack([self.masks[moved & (first >= 0)].any(0) for first in self.first]).all(0)

    def reach(self, name: str) -> tuple[int, int]:
        """How many steps behind and ahead of itself an output position sees, at most; for as many steps as inputs."""
        layer = self.layers[name]
        change, place = layer.moved.nonzero().T
        own = layer.places[place, 0].long()
        behind, ahead = own - self.last[0, change], self.first[0, change] - own
        return (int(behind.max()), int(ahead.max())) if len(own) else (0, 0)

    def _rows(self) -> Iterator[tuple[Tensor, slice]]:
        """An input and, after it, the same with changes; and which of the changes."""
        most = max(1, ROW_NUMBERS // math.prod(self.data.shape))
        masks = self.masks.unsqueeze(1) if self.data.kind == "image" else self.masks
        masks = masks.unsqueeze(-1) if self.data.kind == "sequence" else masks
        for x, other in _inputs(self.view):
            for begin in range(0, len(masks), most):
                start = max(0, min(begin, len(masks) - most))  # all batches are of one size, which tells rows apart
                which = slice(start, start + most)
                yield torch.cat([x.unsqueeze(0), torch.where(masks[which], other, x)]), which

    def _note(self, name: str, module: nn.Module, output: Tensor, which: slice) -> None:
        if name in self.layers and self.layers[name].moved[which].all():
            return
        low, high = output.aminmax()
        change = (output[1:] - output[:1]).abs_() > SAME * torch.maximum(high, -low)
        if name not in self.layers:
            axes = self._axes(module, change, which)
            if axes is None:
                return
            size = tuple(change.shape[axis] for axis in axes)
            self.sizes.add(size)
            kept = [_kept(n, MOST_OUTPUTS if len(size) > 1 else MOST) for n in size]
            places = torch.cartesian_prod(*kept).view(-1, len(size)) if size else torch.zeros(1, 0)
            self.layers[name] = Layer(axes, torch.zeros(len(self.masks), len(places), dtype=torch.bool), places, size)
        layer = self.layers[name]
        positions = _by_position(change, layer.axes)
        if layer.axes:
            positions = positions[(slice(None), *layer.places.long().T)]
        layer.moved[which] |= positions.view(len(change), -1)

    def _axes(self, module: nn.Module, change: Tensor, which: slice) -> tuple[int, ...] | None:
        """Where positions lie: as torch's own layers have it, else along the axes that tell most; None: nowhere."""
        if change.ndim < 3:
            return ()
        dimensions = _dimensions(module)
        if dimensions and change.ndim > dimensions + 1:
            return tuple(range(change.ndim - dimensions, change.ndim))
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            return (1,)
        one = [(axis,) for axis in range(1, change.ndim)]
        two = list(combinations(range(1, change.ndim), 2)) if len(self.grid) == 2 and change.ndim > 3 else []
        shares = {axes: self._share(_by_position(change, axes), which) for axes in [*reversed(two), *one, ()]}
        known = {axes: tuple(change.shape[axis] for axis in axes) in self.sizes for axes in shares}
        best = min(shares, key=lambda axes: (shares[axes], not known[axes]))
        return best if best and (known[best] or shares[best] < shares[()]) else None

    def _share(self, moved: Tensor, which: slice) -> float:
        """Which part of the input an output position sees, in the mean."""
        fields = self._fields(moved.reshape(len(moved), -1), which).prod(0) / math.prod(self.grid)
        return round(float(fields[fields > 0].mean()), 9) if fields.any() else 1.0

    def _fields(self, moved: Tensor, which: slice = slice(None)) -> Tensor:
        """(G, P) -> (number of input axes, P): what lies between the first and the last that moves, with both."""
        found = []
        for first, last in zip(self.first[:, which], self.last[:, which], strict=True):
            seen = moved & (first >= 0).unsqueeze(1)
            end = first.unsqueeze(1).masked_fill(~seen, -1).amax(0)
            begin = last.unsqueeze(1).masked_fill(~seen, 1 << 40).amin(0)
            found.append(torch.where(seen.any(0), (end - begin + 1).clamp(min=1), 0))
        return torch.stack(found)


def _dimensions(module: nn.Module) -> int:
    """Of a layer of torch for signals or images, or of one made of it, as the end of its name says."""
    names = [each.__name__ for each in type(module).__mro__ if each.__module__.startswith("torch.nn.modules")]
    return next((int(name[-2]) for name in names if name.endswith(("1d", "2d", "3d"))), 0)


def _by_position(moved: Tensor, axes: tuple[int, ...]) -> Tensor:
    """(G, ...) -> (G, *sizes of the axes): whether any number at a position moved."""
    others = [axis for axis in range(1, moved.ndim) if axis not in axes]
    return moved.any(dim=others) if others else moved


def measure_outputs(calls: list[Call], num_rows: int) -> dict[str, tuple[Call, Tensor]]:
    """By name, the calls that give positions, and the last; what they gave, rows first. Each once, though a
    container gives what its last layer gave.
    """
    found: dict[str, tuple[Call, Tensor]] = {}
    seen: list[Tensor] = []
    for call in calls:
        is_last, output = call is calls[-1], call.output
        row_axis = next((axis for axis, size in enumerate(output.shape) if size == num_rows), None)
        has_positions = output.is_floating_point() and row_axis is not None and (output.ndim > 2 or is_last)
        if not has_positions or any(output is other for other in seen):
            continue
        seen.append(output)
        name, number = call.name or "output", 2
        while name in found:
            name, number = f"{call.name}.call{number}", number + 1
        found[name] = (call, output.movedim(row_axis or 0, 0))
    return found


def _spans(size: int) -> list[tuple[int, int]]:
    """First and last of the positions that are changed together: one by one, but for blocks in a long axis."""
    if size <= MOST:
        return [(place, place) for place in range(size)]
    low = (size - WINDOW) // 2
    high, block = low + WINDOW, -(-size // WINDOW)
    edges = {0, 1, *range(1, low, block), *range(low, high), *range(high, size - 1, block), size - 1, size}
    return [(start, end - 1) for start, end in pairwise(sorted(edges))]


def _changes(grid: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Masks (G, *grid) of what is changed; along each axis its first and last position (axes, G), -1 for all of it."""
    if math.prod(grid) <= MOST:
        masks = torch.eye(math.prod(grid), dtype=torch.bool).view(-1, *grid)
        first = masks.nonzero()[:, 1:].T.contiguous()
        return masks, first, first
    spans = [_spans(size) for size in grid]
    first = torch.full((len(grid), sum(map(len, spans))), -1)
    last, masks, number = first.clone(), torch.zeros(first.shape[1], *grid, dtype=torch.bool), 0
    for axis, its in enumerate(spans):
        for start, end in its:
            first[axis, number], last[axis, number] = start, end
            masks[number].narrow(axis, start, end - start + 1).fill_(True)
            number += 1
    return masks, first, last


def _inputs(view: View) -> Iterator[tuple[Tensor, Tensor]]:
    """Random inputs, each with what stands in its place where it is changed."""
    shape = view.data.shape
    draws: dict[str, Any] = {"generator": view.generator}
    for _ in range(NUM_INPUTS):
        if view.data.kind == "tokens":
            x = torch.randint(view.data.vocab, shape, **draws)
            for _ in range(2):
                yield x, (x + torch.randint(1, view.data.vocab, shape, **draws)) % view.data.vocab
            continue
        x, sign = torch.randn(shape, **draws), torch.randint(2, shape, **draws) * 2 - 1
        amount = AMOUNT * sign * (0.5 + torch.rand(shape, **draws))  # alike, they would cancel in a filter of edges
        yield x, x + amount
        yield x, x - amount


def _kept(size: int, most: int) -> Tensor:
    """Output positions that are looked at: all, or the ends and the middle."""
    low = (size - most + 2) // 2
    return torch.arange(size) if size <= most else torch.tensor([0, *range(low, low + most - 2), size - 1])
