"""Weights of the first layer as images, as in Krizhevsky, Sutskever & Hinton (2012, "ImageNet classification with deep
convolutional neural networks", figure 3).

A convolution's weights are images already. A linear layer may read the input, or patches or windows of it, in any
order, so its weights are measured as gradients at a validation row:

    w_u = d(sum of unit u) / dx    equal to the weights if x is only rearranged before the layer

Departs from the source in showing each input channel by itself, in a diverging colour map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from nnexp import Observation, Picture, Probe, probe
from nnexp.plotting import colour_bar, label, mosaic, rounded, shortened
from nnexp.probing import View, differentiable_input, forward_calls

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_FILTERS, MAX_CHANNELS, MAX_PIXELS = 16, 3, 32
PER_ROW = 8
Pick = Callable[[Tensor], Tensor]


@probe
@dataclass(kw_only=True)
class Filters(Probe):
    """Weights of the first layer as images, for layers that read several positions at once."""

    def __call__(self, view: View) -> Observation | None:
        """Return a picture of the filters; None where the first layer reads single positions."""
        if view.data.kind == "vector":
            return None
        with torch.no_grad():
            calls = forward_calls(view.module, view.rows("val", 1)[0])
        first = next((call for call in calls if _has_weights(call.module)), None)
        if first is None:
            return None
        weights = _weights(view, first.name, first.module)
        if weights is None or weights[0, 0].numel() == 1:
            return None  # a single position makes no image
        num_filters = len(next(p for p in first.module.parameters() if p.ndim > 1))
        return Observation(pictures={"first_layer": _picture(first.name, weights, num_filters)})


def _has_weights(layer: nn.Module) -> bool:
    """Check that a layer has a weight matrix of its own."""
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Linear):
        return True
    return not list(layer.children()) and any(p.ndim > 1 for p in layer.parameters())


def _weights(view: View, name: str, layer: nn.Module) -> Tensor | None:
    """Return the first filters over an image (filters, C, height, width) or a sequence (filters, C, positions).

    Returns None for layers whose weights cannot be placed on the input.
    """
    if isinstance(layer, nn.Conv1d | nn.Conv2d):
        return layer.weight[:MAX_FILTERS]
    if not isinstance(layer, nn.Linear) or view.data.kind == "tokens":
        return None
    is_last, is_read = _find_input(view, name, layer.weight)
    size = min(MAX_FILTERS, layer.out_features)
    weights = _gradient(view, name, size, lambda units: _at(units, is_last)[:, :size].diagonal())
    if weights is None or not is_read.any():
        return None
    for axis in range(1, is_read.ndim):
        at = is_read.movedim(axis, 0).flatten(1).any(1).nonzero()
        weights = weights.narrow(axis + 1, int(at[0]), int(at[-1] - at[0]) + 1)
    return weights


def _find_input(view: View, name: str, weight: Tensor) -> tuple[bool, Tensor]:
    """Return whether the layer reads more at its last application than in the middle, and the input (C, ...) it reads.

    The application that reads more is used, because windows are cut off at the start of a sequence and patches at the
    end of an image. Measured with random weights, because the actual ones may be zero.
    """
    original = weight.detach().clone()
    with torch.no_grad():
        weight.copy_(torch.rand(weight.shape, generator=view.generator, dtype=weight.dtype))
    gradient = _gradient(view, name, 2, lambda units: _at(units, False)[0, 0] + _at(units, True)[1, 0])
    with torch.no_grad():
        weight.copy_(original)
    if gradient is None:
        return False, torch.zeros(1)
    is_read = gradient != 0
    is_last = bool(is_read[1].sum() > is_read[0].sum())
    return is_last, is_read[int(is_last)]


def _at(units: Tensor, is_last: bool) -> Tensor:
    """Select the last or the middle place, (copies, places, units) -> (copies, units)."""
    return units[:, -1 if is_last else units.shape[1] // 2]


def _gradient(view: View, name: str, copies: int, pick: Pick) -> Tensor | None:
    """Return the gradients (copies, C, ...) of one output of a layer per copy of a row; None where there is no path.

    Args:
        pick: selects the outputs, one per copy, from the layer's output (copies, places, units).
    """
    row = view.rows("val", 1)[0]
    x = differentiable_input(row.expand(copies, *row.shape[1:]), view.data)
    with torch.enable_grad():
        output = next(call.output for call in forward_calls(view.module, x) if call.name == name)
        if not output.requires_grad:
            return None
        total = pick(output.reshape(copies, -1, output.shape[-1])).sum()
        (gradient,) = torch.autograd.grad(total, x, allow_unused=True)
    return gradient if gradient is None or view.data.kind == "image" else gradient.mT


def _picture(name: str, weights: Tensor, num_filters: int) -> Picture:
    is_image = weights.ndim == 4
    shown = weights[:, : MAX_CHANNELS if is_image else MAX_PIXELS]
    if not is_image and shown.shape[1] > PER_ROW:
        shown = shown[:PER_ROW]  # they are tall: one row of them
    if is_image:
        height, width = shown.shape[2:]
        shown = adaptive_avg_pool2d(shown.detach().float(), (min(height, MAX_PIXELS), min(width, MAX_PIXELS)))
    else:
        shown = shown[:, :, :MAX_PIXELS].unsqueeze(1)  # (filters, 1, channels, positions)
    counts = {"filters": (len(shown), num_filters), "channels": (shown.shape[1 if is_image else 2], weights.shape[1])}
    cut = [f"first {few} of {whole} {what}" for what, (few, whole) in counts.items() if few < whole]
    numbers = {"layer": name, "is_image": is_image, "counts": counts, "filters": rounded(shown)}
    size = _size(shown.shape, is_image)
    return Picture(", ".join([f"Filters of {shortened(name)}", *cut]), numbers, _draw, size)


def _size(shape: Sequence[int], is_image: bool) -> tuple[float, float]:
    """Return the size in inches, with images as large as their number allows."""
    num_filters, num_channels, height, width = shape
    columns = num_filters if num_channels > 1 else min(num_filters, PER_ROW)
    rows = num_channels if num_channels > 1 else -(-num_filters // PER_ROW)
    cell_width = min(6.2 / columns, 1.2)
    cell_height = cell_width * height / width if is_image else min(2.4, max(0.4, 0.15 * height))
    return 7.0 if columns > 3 else 4.5, min(7.0, 1.1 + rows * cell_height)


def _draw(figure: Figure, numbers: dict[str, Any]) -> None:
    filters, is_image = numbers["filters"], numbers["is_image"]
    num_channels = len(filters[0])
    if num_channels > 1:  # one row per channel
        images = [[each[channel] for each in filters] for channel in range(num_channels)]
    else:
        images = [[each[0] for each in filters[at : at + PER_ROW]] for at in range(0, len(filters), PER_ROW)]
    names = [f"channel {number}" for number in range(num_channels)] if num_channels > 1 else []
    axes = figure.subplots()
    image = mosaic(axes, images, is_diverging=True, row_names=names, is_square=is_image)
    height, width = len(filters[0][0]), len(filters[0][0][0])
    size = f"{height} x {width} pixels" if is_image else f"{width} positions, side by side"
    label(axes, f"{len(filters)} filters of {size}", "" if is_image else f"channels ({height})")
    colour_bar(figure, image, "weight", axes, is_below=True)
