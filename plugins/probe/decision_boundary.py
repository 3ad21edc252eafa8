"""Predictions over the plane of two features: the decision regions of Lippmann (1987, "An introduction to computing
with neural nets", IEEE ASSP Magazine 4).

    p(c | x) = softmax(y(x))_c,  the boundary is where the most probable class changes: p = 1/2 for two classes

For classification of two features; for regression on one or two features, the predicted value is drawn. Departs from
the source in showing probabilities, not only the predicted class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nnexp import Observation, Picture, Probe, probe
from nnexp.plotting import COLOURS, colour_bar, heatmap, label, legend, points, probability, regions, rounded
from nnexp.probing import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE = 100  # points along an axis of the grid
MARGIN = 0.15  # around the data, as a fraction of their range
MAX_POINTS = 400
NAMES = ("feature 1", "feature 2")


@probe
@dataclass(kw_only=True)
class DecisionBoundary(Probe):
    """Predicted class or value over the plane, for data with two features (regression: one or two)."""

    def __call__(self, view: View) -> Observation | None:
        """Return a picture of the predictions on a grid; None for data without a plane or a line of inputs."""
        data = view.data
        num_features = data.features if data.kind == "vector" else 0
        is_value = data.target == "value" and data.outputs == 1 and num_features in (1, 2)
        is_class = data.target == "class" and data.outputs > 1 and num_features == 2
        if data.per_step or not (is_value or is_class):
            return None
        x, y, *_ = view.rows("train", MAX_POINTS)
        low, high = _limits(x)
        with torch.no_grad():
            output = view.module(_grid(low, high)).cpu().double()
        extent = torch.stack([low, high], dim=1).flatten()
        numbers = {"extent": rounded(extent, 6), "points": rounded(x.T), "targets": rounded(y.flatten())}
        if is_class:
            return Observation(pictures={"plane": _classes(output.softmax(-1), numbers)})
        values = {"values": rounded(output.view([SIDE] * num_features))}
        draw = _draw_curve if num_features == 1 else _draw_surface
        return Observation(pictures={"plane": Picture("Predicted value", numbers | values, draw, (5.2, 3.8))})


def _limits(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lower and upper ends (F,) of the grid."""
    low, high = x.amin(0), x.amax(0)
    span = torch.where(high > low, high - low, torch.ones_like(low))
    return low - MARGIN * span, high + MARGIN * span


def _grid(low: Tensor, high: Tensor) -> Tensor:
    """Return the centres (SIDE ** F, F) of equal cells, the first feature changing fastest."""
    at = (torch.arange(SIDE, device=low.device, dtype=low.dtype) + 0.5) / SIDE
    axes = low + (high - low) * at.unsqueeze(1)  # (SIDE, F)
    if axes.shape[1] == 1:
        return axes
    return torch.stack(torch.meshgrid(*axes.unbind(1), indexing="xy"), dim=-1).flatten(0, 1)


def _classes(chances: Tensor, numbers: dict[str, Any]) -> Picture:
    """Return the picture of probabilities (SIDE ** 2, classes), with rows in the order of the second feature."""
    plane = chances.view(SIDE, SIDE, -1)
    numbers = numbers | {"num_classes": plane.shape[-1]}
    if plane.shape[-1] == 2:
        numbers["probability of class 1"] = plane[..., 1].round(decimals=4)
    else:
        highest = plane.max(-1)
        numbers["probability of the class"] = highest.values.round(decimals=4)
        numbers["class"] = highest.indices
    return Picture("Decision boundary", numbers, _draw_classes, (5.2, 3.8))


def _draw_classes(figure: Figure, numbers: dict[str, Any]) -> None:
    axes, extent, num_classes = figure.subplots(), tuple(numbers["extent"]), numbers["num_classes"]
    if num_classes == 2:
        probability(axes, numbers["probability of class 1"], extent, "probability of class 1")
    else:
        chance = 1 / num_classes
        sure = [
            [None if p is None else max(0.0, (p - chance) / (1 - chance)) for p in row]
            for row in numbers["probability of the class"]
        ]
        regions(axes, numbers["class"], sure, extent)
    names = [f"class {number}" for number in range(num_classes)]
    x1, x2 = numbers["points"]
    points(axes, x1, x2, [int(y) for y in numbers["targets"]], names)
    _finish(axes, extent, *NAMES)


def _draw_surface(figure: Figure, numbers: dict[str, Any]) -> None:
    axes, extent = figure.subplots(), tuple(numbers["extent"])
    targets = [y for y in numbers["targets"] if y is not None]
    finite = [v for row in numbers["values"] for v in row if v is not None] + targets
    limits = (min(finite), max(finite)) if finite and max(finite) > min(finite) else (0.0, 1.0)
    image = heatmap(axes, numbers["values"], *NAMES, "", limits=limits, extent=extent)
    x1, x2 = numbers["points"]
    colours = [float("nan") if y is None else y for y in numbers["targets"]]
    axes.scatter(x1, x2, 14, colours, cmap=image.get_cmap(), norm=image.norm, edgecolors="white", linewidths=0.4)
    colour_bar(figure, image, "value (points: training rows)", axes)
    _finish(axes, extent, *NAMES)


def _draw_curve(figure: Figure, numbers: dict[str, Any]) -> None:
    axes, (low, high) = figure.subplots(), numbers["extent"]
    axes.plot(numbers["points"][0], numbers["targets"], "o", color="0.6", label="training rows")
    at = [low + (high - low) * (place + 0.5) / SIDE for place in range(SIDE)]
    axes.plot(at, [float("nan") if v is None else v for v in numbers["values"]], color=COLOURS[0], label="predicted")
    axes.grid(True)
    label(axes, NAMES[0], "value")
    legend(axes, 2)


def _finish(axes: Any, extent: tuple[float, ...], xlabel: str, ylabel: str) -> None:
    axes.set_xlim(extent[0], extent[1])
    axes.set_ylim(extent[2], extent[3])
    label(axes, xlabel, ylabel)
