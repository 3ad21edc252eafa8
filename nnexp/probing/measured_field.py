"""Receptive fields of the layers of any model, measured by changing input positions and comparing outputs.

The position axes of an output are known for torch's layers; for others they are the axes along which the measured
fields are smallest. Changes are made to random inputs, and are large and of both signs, so that they win a maximum.
Where an input has more than 256 pixels, whole rows and columns are changed; along an axis longer than that, positions
outside its middle are changed in blocks, and a field that ends within a block is reported as the smallest that fits.

Shapes: B rows, G changes, P output positions, A axes of the input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor, nn

from nnexp.probing.hooks import Call, forward_calls
from nnexp.probing.input_changes import MAX_SINGLE, change_masks, changed_inputs
from nnexp.probing.view import View

TOLERANCE = 1e-12  # relative to a layer's largest number; smaller differences are rounding
MAX_OUTPUTS = 32  # output positions along each axis of a map
MAX_BATCH_NUMBERS = 1 << 17


@dataclass
class LayerField:
    """Measured receptive fields of one layer.

    Attributes:
        axes: position axes of the output, whose axis 0 is the batch; empty for an output without positions.
        moved: (G, P), whether a change moved an output position.
        positions: (P, number of axes), indices of the output positions.
        size: length of the output along each of `axes`.
        fields: (A, P), size of the field of each output position.
        centre: index, of the P, of the position with the largest field; of several the one nearest to the middle.
    """

    axes: tuple[int, ...]
    moved: Tensor
    positions: Tensor
    size: tuple[int, ...]
    fields: Tensor = field(default_factory=lambda: torch.empty(0))
    centre: int = 0

    @property
    def centre_position(self) -> list[int]:
        """Return the indices of the centre along `axes`; empty for an output without positions."""
        return [int(index) for index in self.positions[self.centre]] if self.axes else []

    def at_centre(self, output: Tensor) -> Tensor | None:
        """Return the values (B, channels) at the centre.

        Args:
            output: output of the layer, batch first.

        Returns:
            None where the output has another size than the measured one.
        """
        if output.ndim <= max(self.axes, default=0) or tuple(output.shape[axis] for axis in self.axes) != self.size:
            return None
        for axis, index in sorted(zip(self.axes, self.centre_position, strict=True), reverse=True):
            output = output.select(axis, index)
        return output.flatten(1)


class MeasuredFields:
    """Receptive fields of all layers whose outputs have positions, and of the model's output.

        with view.exact() as exact:
            fields = MeasuredFields(exact)
        sizes = {name: layer.fields.amax(1).tolist() for name, layer in fields.layers.items()}

    Args:
        view: the model to measure, in float64 so that small effects are seen.

    Attributes:
        grid: lengths of the A axes of the input along which positions lie.
        layers: the measured fields by layer name, in order of execution.
    """

    def __init__(self, view: View) -> None:
        self.view, self.data = view, view.data
        self.grid = self.data.shape[1:] if self.data.kind == "image" else self.data.shape[:1]
        self.masks, self.first, self.last = change_masks(self.grid)
        self.sizes = {tuple(self.grid)}  # along the position axes of the layers so far
        self.layers: dict[str, LayerField] = {}
        with torch.no_grad():
            for rows, batch in self._changed_rows():
                for name, (call, output) in positional_outputs(forward_calls(view.module, rows), len(rows)).items():
                    self._add(name, call.module, output, batch)
        for layer in self.layers.values():
            layer.fields = self._fields(layer.moved)
            score = layer.fields.prod(0)
            middle = (torch.tensor(layer.size) - 1) / 2
            distance = (layer.positions - middle).square().sum(1).masked_fill(score < score.max(), math.inf)
            layer.centre = int(distance.argmin())

    def field_mask(self, name: str) -> Tensor:
        """Return the field of a layer's centre as a mask (*grid): True where a change of the input moves it."""
        layer = self.layers[name]
        moved = layer.moved[:, layer.centre]
        return torch.stack([self.masks[moved & (first >= 0)].any(0) for first in self.first]).all(0)

    def reach(self, name: str) -> tuple[int, int]:
        """Return how many steps before and after its own an output position depends on, at most.

        Only for layers of sequences with as many output positions as inputs.
        """
        layer = self.layers[name]
        change, index = layer.moved.nonzero().T
        step = layer.positions[index, 0].long()
        behind, ahead = step - self.last[0, change], self.first[0, change] - step
        return (int(behind.max()), int(ahead.max())) if len(step) else (0, 0)

    def _changed_rows(self) -> Iterator[tuple[Tensor, slice]]:
        """Yield batches of an input followed by changed copies of it, and the slice of the changes in the batch."""
        size = max(1, MAX_BATCH_NUMBERS // math.prod(self.data.shape))
        masks = self.masks.unsqueeze(1) if self.data.kind == "image" else self.masks
        masks = masks.unsqueeze(-1) if self.data.kind == "sequence" else masks
        for x, other in changed_inputs(self.view.data, self.view.generator):
            for begin in range(0, len(masks), size):
                start = max(0, min(begin, len(masks) - size))  # batches of one size, by which the batch axis is found
                batch = slice(start, start + size)
                yield torch.cat([x.unsqueeze(0), torch.where(masks[batch], other, x)]), batch

    def _add(self, name: str, module: nn.Module, output: Tensor, batch: slice) -> None:
        if name in self.layers and self.layers[name].moved[batch].all():
            return
        low, high = output.aminmax()
        change = (output[1:] - output[:1]).abs_() > TOLERANCE * torch.maximum(high, -low)
        if name not in self.layers:
            axes = self._axes(module, change, batch)
            if axes is None:
                return
            size = tuple(change.shape[axis] for axis in axes)
            self.sizes.add(size)
            along = [_output_indices(n, MAX_OUTPUTS if len(size) > 1 else MAX_SINGLE) for n in size]
            positions = torch.cartesian_prod(*along).view(-1, len(size)) if size else torch.zeros(1, 0)
            moved = torch.zeros(len(self.masks), len(positions), dtype=torch.bool)
            self.layers[name] = LayerField(axes, moved, positions, size)
        layer = self.layers[name]
        moved = _by_position(change, layer.axes)
        if layer.axes:
            moved = moved[(slice(None), *layer.positions.long().T)]
        layer.moved[batch] |= moved.view(len(change), -1)

    def _axes(self, module: nn.Module, change: Tensor, batch: slice) -> tuple[int, ...] | None:
        """Return the position axes of an output: those of torch's layers, else the ones with the smallest fields.

        None where no axis has smaller fields than the output as a whole.
        """
        if change.ndim < 3:
            return ()
        dimensions = _dimensions(module)
        if dimensions and change.ndim > dimensions + 1:
            return tuple(range(change.ndim - dimensions, change.ndim))
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            return (1,)
        one = [(axis,) for axis in range(1, change.ndim)]
        two = list(combinations(range(1, change.ndim), 2)) if len(self.grid) == 2 and change.ndim > 3 else []
        shares = {axes: self._share(_by_position(change, axes), batch) for axes in [*reversed(two), *one, ()]}
        has_known_size = {axes: tuple(change.shape[axis] for axis in axes) in self.sizes for axes in shares}
        best = min(shares, key=lambda axes: (shares[axes], not has_known_size[axes]))
        return best if best and (has_known_size[best] or shares[best] < shares[()]) else None

    def _share(self, moved: Tensor, batch: slice) -> float:
        """Return the mean share of the input that moves an output position."""
        fields = self._fields(moved.reshape(len(moved), -1), batch).prod(0) / math.prod(self.grid)
        return round(float(fields[fields > 0].mean()), 9) if fields.any() else 1.0

    def _fields(self, moved: Tensor, batch: slice = slice(None)) -> Tensor:
        """Return field sizes (A, P) of changes (G, P): the distance from the first to the last that moves, plus one."""
        sizes = []
        for first, last in zip(self.first[:, batch], self.last[:, batch], strict=True):
            is_moved = moved & (first >= 0).unsqueeze(1)
            end = first.unsqueeze(1).masked_fill(~is_moved, -1).amax(0)
            begin = last.unsqueeze(1).masked_fill(~is_moved, 1 << 40).amin(0)
            sizes.append(torch.where(is_moved.any(0), (end - begin + 1).clamp(min=1), 0))
        return torch.stack(sizes)


def _dimensions(module: nn.Module) -> int:
    """Return the number of position axes of a torch layer or its subclass, read from a name such as Conv2d; else 0."""
    names = [each.__name__ for each in type(module).__mro__ if each.__module__.startswith("torch.nn.modules")]
    return next((int(name[-2]) for name in names if name.endswith(("1d", "2d", "3d"))), 0)


def _by_position(moved: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Reduce (G, ...) to (G, *sizes of the axes): whether any channel of a position moved."""
    others = [axis for axis in range(1, moved.ndim) if axis not in axes]
    return moved.any(dim=others) if others else moved


def positional_outputs(calls: list[Call], num_rows: int) -> dict[str, tuple[Call, Tensor]]:
    """Return the calls whose outputs have positions, and the last call, with their outputs, batch first, by layer name.

    A tensor that several layers return, such as a container and its last layer, is listed once. Further calls of one
    layer are named `<name>.call2` and so on, the call of the model itself `output`.

    Args:
        calls: calls of one forward pass, from `forward_calls`.
        num_rows: batch size, by which the batch axis of each output is found.
    """
    found: dict[str, tuple[Call, Tensor]] = {}
    listed: list[Tensor] = []
    for call in calls:
        is_last, output = call is calls[-1], call.output
        row_axis = next((axis for axis, size in enumerate(output.shape) if size == num_rows), None)
        has_positions = output.is_floating_point() and row_axis is not None and (output.ndim > 2 or is_last)
        if not has_positions or any(output is other for other in listed):
            continue
        listed.append(output)
        name, number = call.name or "output", 2
        while name in found:
            name, number = f"{call.name}.call{number}", number + 1
        found[name] = (call, output.movedim(row_axis or 0, 0))
    return found


def _output_indices(size: int, limit: int) -> Tensor:
    """Return the measured positions along an output axis: all, or both ends and the middle."""
    low = (size - limit + 2) // 2
    return torch.arange(size) if size <= limit else torch.tensor([0, *range(low, low + limit - 2), size - 1])
