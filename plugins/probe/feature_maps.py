"""Feature maps of convolutions (LeCun et al., 1989, doi:10.1162/neco.1989.1.4.541, figure 3).

    map_k = (W_k * x)(position) + b_k    the layer's output; after the activation if that works in place

One validation row of each class goes through the model, and the first channels of its convolutions are shown side by
side: differences down a column separate classes. Departs from the source in finding convolutions in any model: layers
with a weight that has as many axes as the output, and one filter per output channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from nnexp import Observation, Picture, Probe, probe
from nnexp.plotting import colour_bar, mosaic, rounded, shortened
from nnexp.probing import Call, View, forward_calls

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_EXAMPLES, MAX_LAYERS, MAX_COLUMNS = 4, 3, 16
MAX_PIXELS, MAX_POSITIONS = 28, 64  # larger maps are averaged over squares, longer sequences cut


@probe
@dataclass(kw_only=True)
class FeatureMaps(Probe):
    """Outputs of the convolutions for one validation row of each class."""

    def __call__(self, view: View) -> Observation | None:
        """Return the maps of up to MAX_LAYERS convolutions; None where the model has none."""
        if view.data.kind == "vector":
            return None
        x, y, *lengths = view.rows("val", 256)
        rows, names = _examples(y, view.data.target == "class" and not view.data.per_step)
        with torch.no_grad():
            calls = forward_calls(view.module, x[rows], *(t[rows] for t in lengths))
        layers = _innermost([call for call in calls if _is_convolution(call, len(rows))])
        if not layers:
            return None
        last = len(layers) - 1
        count = min(MAX_LAYERS, len(layers))
        places = [round(number * last / max(1, count - 1)) for number in range(count)]
        return Observation(pictures={"maps": _picture([layers[place] for place in places], len(layers), names)})


def _examples(y: Tensor, is_class: bool) -> tuple[list[int], list[str]]:
    """Return rows and their names: the first row of each of the first classes, or the first rows."""
    if not is_class:
        count = min(MAX_EXAMPLES, len(y))
        return list(range(count)), [f"row {number}" for number in range(count)]
    first: dict[int, int] = {}
    for row, label in enumerate(y.tolist()):
        first.setdefault(label, row)
    chosen = sorted(first)[:MAX_EXAMPLES]
    return [first[label] for label in chosen], [f"class {label}" for label in chosen]


def _is_convolution(call: Call, num_rows: int) -> bool:
    """Check that a layer returned maps (B, channels, ...) and has a filter for each channel."""
    output, layer = call.output, call.module
    if not call.name or output.ndim not in (3, 4) or len(output) != num_rows or output[0, 0].numel() == 1:
        return False
    weights = [p for p in layer.parameters() if p.ndim == output.ndim and p.shape[0] == output.shape[1]]
    return isinstance(layer, nn.modules.conv._ConvNd) or bool(weights)


def _innermost(calls: list[Call]) -> list[Call]:
    """Return the calls of layers that contain no other of these layers."""
    names = [call.name for call in calls]
    return [call for call in calls if not any(name.startswith(f"{call.name}.") for name in names)]


def _picture(calls: list[Call], num_layers: int, names: list[str]) -> Picture:
    channels = min(8, MAX_COLUMNS // len(calls))
    layers = []
    for first in calls[0].inputs[:1]:
        if isinstance(first, Tensor) and first.ndim == calls[0].output.ndim and len(first) == len(names):
            layers.append(_maps("input", first, 3))
    layers += [_maps(call.name, call.output, channels) for call in calls]
    cut = [f"{len(calls)} of {num_layers} layers"] if len(calls) < num_layers else []
    numbers = {"examples": names, "layers": layers}
    return Picture(", ".join(["Feature maps", *cut]), numbers, _draw, _size(layers))


def _size(layers: list[dict[str, Any]]) -> tuple[float, float]:
    """Return the size in inches, with maps as large as their number allows."""
    examples, columns = len(layers[0]["maps"]), sum(layer["maps"].shape[1] for layer in layers)
    if not all(layer["is_image"] for layer in layers):
        return min(7.2, 1.0 + 1.9 * columns), 1.6 + 0.6 * examples
    side = min(0.6, 6.2 / columns)
    highest = max(layer["maps"].shape[2] / layer["maps"].shape[3] for layer in layers)
    return max(4.5, 1.0 + side * columns), min(7.0, 1.35 + examples * side * highest)


def _maps(name: str, maps: Tensor, channels: int) -> dict[str, Any]:
    """Return the first channels of (examples, channels, height, width), or one image per (channels, positions)."""
    is_image, shape = maps.ndim == 4, list(maps.shape[1:])
    if is_image:
        height, width = (min(side, MAX_PIXELS) for side in shape[1:])
        maps = adaptive_avg_pool2d(maps[:, :channels].float(), (height, width))
    else:
        maps = maps[:, :MAX_PIXELS, :MAX_POSITIONS].unsqueeze(1)
    return {"name": name, "is_image": is_image, "shape": shape, "maps": rounded(maps)}


def _draw(figure: Figure, numbers: dict[str, Any]) -> None:
    layers = numbers["layers"]
    columns = [len(layer["maps"][0]) for layer in layers]
    widths = [each + (each - 1) / 24 for each in columns]  # with the gaps between maps
    grid = figure.subplots(1, len(layers), squeeze=False, width_ratios=widths)[0]
    for number, (axes, layer) in enumerate(zip(grid, layers, strict=True)):
        names = numbers["examples"] if number == 0 else [""] * len(numbers["examples"])
        image = mosaic(
            axes,
            _scaled(layer["maps"]),
            limits=(-1, 1),
            is_diverging=True,
            row_names=names,
            is_square=layer["is_image"],
        )
        axes.set_title(_title(layer))
        if not layer["is_image"]:
            axes.set_xlabel(f"first {MAX_POSITIONS} positions" if layer["shape"][1] > MAX_POSITIONS else "positions")
    colour_bar(figure, image, "value / largest |value| of the layer shown", list(grid), is_below=True)


def _title(layer: dict[str, Any]) -> str:
    channels, *sides = layer["shape"]
    few = len(layer["maps"][0]) if layer["is_image"] else len(layer["maps"][0][0])
    size = " x ".join(map(str, sides))
    if layer["name"] == "input" and few == channels == 1:
        return f"input\n{size}"
    shown = f"{few} of {channels}" if few < channels else f"{channels}"
    return f"{shortened(layer['name'], 16)}\n{shown} maps, {size}"


def _scaled(maps: list[Any]) -> list[Any]:
    """Divide by the largest absolute value."""
    finite = [abs(v) for row in maps for image in row for line in image for v in line if v is not None]
    largest = max(finite, default=0.0) or 1.0
    return [[[[None if v is None else v / largest for v in line] for line in image] for image in row] for row in maps]
