"""What the first layer looks for: its weights as pictures, as Krizhevsky, Sutskever & Hinton (2012, "ImageNet
classification with deep convolutional neural networks", figure 3) show theirs.

A convolution's weights are pictures already. Those of a layer that reads a whole input, or a patch or a window of it,
are measured at a validation row, for nobody says in which order it reads:

    w_u = d(sum of unit u) / dx    the weights themselves, where x is only moved about before

Departs from the source in showing each input channel alone, in colours that tell signs apart.
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
from nnexp.probing import View, calls_of, differentiable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_FILTERS, MOST_CHANNELS, MOST_PIXELS = 16, 3, 32
IN_A_ROW = 8
Pick = Callable[[Tensor], Tensor]


@probe
@dataclass(kw_only=True)
class Filters(Probe):
    """The weights of the first layer as pictures, where it reads several positions at once."""

    def __call__(self, view: View) -> Observation | None:
        if view.data.kind == "vector":
            return None
        with torch.no_grad():
            calls = calls_of(view.module, view.rows("val", 1)[0])
        first = next((call for call in calls if _has_weights(call.module)), None)
        if first is None:
            return None
        weights = _weights(view, first.name, first.module)
        if weights is None or weights[0, 0].numel() == 1:
            return None  # it reads one position: there is no picture of that
        num_filters = len(next(p for p in first.module.parameters() if p.ndim > 1))
        return Observation(pictures={"first_layer": _picture(first.name, weights, num_filters)})


def _has_weights(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Linear):
        return True
    return not list(layer.children()) and any(p.ndim > 1 for p in layer.parameters())


def _weights(view: View, name: str, layer: nn.Module) -> Tensor | None:
    """The first filters over an image (filters, C, height, width), or over a sequence (filters, C, positions)."""
    if isinstance(layer, nn.Conv1d | nn.Conv2d):
        return layer.weight[:MOST_FILTERS]
    if not isinstance(layer, nn.Linear) or view.data.kind == "tokens":
        return None
    is_last, seen = _where_it_reads(view, name, layer.weight)
    size = min(MOST_FILTERS, layer.out_features)
    weights = _gradient(view, name, size, lambda units: _at(units, is_last)[:, :size].diagonal())
    if weights is None or not seen.any():
        return None
    for axis in range(1, seen.ndim):
        at = seen.movedim(axis, 0).flatten(1).any(1).nonzero()
        weights = weights.narrow(axis + 1, int(at[0]), int(at[-1] - at[0]) + 1)
    return weights


def _where_it_reads(view: View, name: str, weight: Tensor) -> tuple[bool, Tensor]:
    """Whether it is seen best at the last place where it is used, and what of the input (C, ...) it reads there.

    Of the middle and the last, the place that sees more: windows are cut off at the ends of a sequence, patches at the
    last of an image. Asked with weights drawn at random, for those that are there may be zero.
    """
    kept = weight.detach().clone()
    with torch.no_grad():
        weight.copy_(torch.rand(weight.shape, generator=view.generator, dtype=weight.dtype))
    gradient = _gradient(view, name, 2, lambda units: _at(units, False)[0, 0] + _at(units, True)[1, 0])
    with torch.no_grad():
        weight.copy_(kept)
    if gradient is None:
        return False, torch.zeros(1)
    seen = gradient != 0
    is_last = bool(seen[1].sum() > seen[0].sum())
    return is_last, seen[int(is_last)]


def _at(units: Tensor, is_last: bool) -> Tensor:
    """(copies, places, units) -> (copies, units), of the last place or the middle."""
    return units[:, -1 if is_last else units.shape[1] // 2]


def _gradient(view: View, name: str, copies: int, pick: Pick) -> Tensor | None:
    """(copies, C, ...): what each copy of a row has to do with one number of a layer.

    Args:
        pick: these numbers, one for each copy, of what the layer gave (copies, places, units).
    """
    row = view.rows("val", 1)[0]
    x = differentiable(row.expand(copies, *row.shape[1:]), view.data)
    with torch.enable_grad():
        output = next(call.output for call in calls_of(view.module, x) if call.name == name)
        if not output.requires_grad:
            return None
        total = pick(output.reshape(copies, -1, output.shape[-1])).sum()
        (gradient,) = torch.autograd.grad(total, x, allow_unused=True)
    return gradient if gradient is None or view.data.kind == "image" else gradient.mT


def _picture(name: str, weights: Tensor, num_filters: int) -> Picture:
    is_image = weights.ndim == 4
    shown = weights[:, : MOST_CHANNELS if is_image else MOST_PIXELS]
    if not is_image and shown.shape[1] > IN_A_ROW:
        shown = shown[:IN_A_ROW]  # they are high
    if is_image:
        height, width = shown.shape[2:]
        shown = adaptive_avg_pool2d(shown.detach().float(), (min(height, MOST_PIXELS), min(width, MOST_PIXELS)))
    else:
        shown = shown[:, :, :MOST_PIXELS].unsqueeze(1)  # (filters, 1, channels, positions)
    counts = {"filters": (len(shown), num_filters), "channels": (shown.shape[1 if is_image else 2], weights.shape[1])}
    cut = [f"first {few} of {whole} {what}" for what, (few, whole) in counts.items() if few < whole]
    numbers = {"layer": name, "is_image": is_image, "counts": counts, "filters": rounded(shown)}
    size = _size(shown.shape, is_image)
    return Picture(", ".join([f"Filters of {shortened(name)}", *cut]), numbers, _draw, size)


def _size(shape: Sequence[int], is_image: bool) -> tuple[float, float]:
    """Inches, so that images are as large as their number allows."""
    num_filters, num_channels, height, width = shape
    columns = num_filters if num_channels > 1 else min(num_filters, IN_A_ROW)
    rows = num_channels if num_channels > 1 else -(-num_filters // IN_A_ROW)
    of_one = min(6.2 / columns, 1.2)
    high = of_one * height / width if is_image else min(2.4, max(0.4, 0.15 * height))
    return 7.0 if columns > 3 else 4.5, min(7.0, 1.1 + rows * high)


def _draw(figure: Figure, numbers: dict[str, Any]) -> None:
    filters, is_image = numbers["filters"], numbers["is_image"]
    num_channels = len(filters[0])
    if num_channels > 1:  # a row for each
        images = [[each[channel] for each in filters] for channel in range(num_channels)]
    else:
        images = [[each[0] for each in filters[at : at + IN_A_ROW]] for at in range(0, len(filters), IN_A_ROW)]
    names = [f"channel {number}" for number in range(num_channels)] if num_channels > 1 else []
    axes = figure.subplots()
    image = mosaic(axes, images, is_diverging=True, row_names=names, is_square=is_image)
    height, width = len(filters[0][0]), len(filters[0][0][0])
    size = f"{height} x {width} pixels" if is_image else f"{width} positions, side by side"
    label(axes, f"{len(filters)} filters of {size}", "" if is_image else f"channels ({height})")
    colour_bar(figure, image, "weight", axes, is_below=True)
