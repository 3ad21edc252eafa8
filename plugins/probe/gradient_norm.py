"""Norms of gradients and updates by layer. The ratio of update to weights is monitored as Karpathy advises (2019, "A
recipe for training neural networks"); dead relu units are described by Maas, Hannun & Ng (2013, "Rectifier
nonlinearities improve neural network acoustic models").

    gradient g = dL/dw of the next batch,  clipped g' = g min(1, clip_norm / |g|),  ratio |w_new - w| / |w|

A unit is dead if its output is practically the same for every row of a batch: relu at zero, and also tanh in
saturation. Departs from the sources in measuring all layers of any model, and the update that the optimiser makes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from nnexp import Observation, Picture, Probe, probe
from nnexp.plotting import dots, widen
from nnexp.probing import Call, View, forward_calls

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_SPREAD = 1e-6  # of a dead unit, relative to the largest absolute output of its layer
NORMS = ("gradient", "clipped gradient", "update", "weights")


@probe
@dataclass(kw_only=True)
class GradientNorm(Probe):
    """Norms of gradients, updates and weights by layer, and the fraction of dead units."""

    def __call__(self, view: View) -> Observation:
        """Return norms and update ratios by layer, and the fraction of dead units by layer."""
        update = view.update
        x, _, *lengths = view.rows("train", 256)
        with torch.no_grad():
            calls = [call for call in forward_calls(view.module, x, *lengths) if call.name and call.output.ndim > 1]
            dead = {call.name: _share_dead(call) for call in calls if not list(call.module.children())}
        change = torch.full_like(update.weights, math.nan) if update.change is None else update.change
        vectors = (update.gradient, update.clipped, change, update.weights)
        by_layer = torch.stack([update.layer_norms(vector) for vector in vectors])
        total = torch.stack([update.norm(vector) for vector in vectors]).unsqueeze(1)
        norms = torch.cat([total, by_layer], dim=1)
        sizes = [len(dead), norms.numel()]
        together = torch.cat([*(t.view(1) for t in dead.values()), norms.flatten()])
        shares, flat = together.cpu().split(sizes)  # one transfer from the device
        shares_by_layer = dict(zip(dead, shares.tolist(), strict=True))
        return _observation(["total", *update.layers], flat.view(norms.shape).tolist(), shares_by_layer)


def _share_dead(call: Call) -> torch.Tensor:
    """Return (), the fraction of dead units: channels of a convolution, else entries of the last axis."""
    is_channel = isinstance(call.module, nn.modules.conv._ConvNd)
    units = (call.output.movedim(1, -1) if is_channel else call.output).flatten(0, -2)
    spread = units.amax(0) - units.amin(0)
    return (spread <= MAX_SPREAD * units.abs().amax()).to(spread.dtype).mean()


def _observation(layers: list[str], norms: list[list[float]], dead: dict[str, float]) -> Observation:
    by_name = dict(zip(NORMS, norms, strict=True))
    ratios = [change / weights if weights else math.nan for change, weights in zip(norms[2], norms[3], strict=True)]
    scalars = {f"before_clipping/{layer}": value for layer, value in zip(layers, norms[0], strict=True)}
    scalars |= {f"after_clipping/{layer}": value for layer, value in zip(layers, norms[1], strict=True)}
    scalars |= {f"update_ratio/{layer}": v for layer, v in zip(layers, ratios, strict=True) if math.isfinite(v)}
    scalars |= {f"dead_units/{layer}": share for layer, share in dead.items()}
    numbers = {"layers": layers, "norms": by_name, "update / weights": ratios, "dead units": dead}
    height = 1.6 + 0.24 * len(layers)
    return Observation(scalars, {"layers": Picture("Gradients and updates by layer", numbers, _draw, (7.0, height))})


def _draw(figure: Figure, numbers: dict[str, Any]) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    norms = numbers["norms"]
    is_clipped = norms["gradient"] != norms["clipped gradient"]
    gradients = {"before clipping": norms["gradient"], "after": norms["clipped gradient"]}
    series = gradients if is_clipped else {"gradient": norms["gradient"]}
    _dots(left, numbers["layers"], series, "norm of the gradient (log10)")
    _dots(right, numbers["layers"], {"ratio": numbers["update / weights"]}, "update / weights (log10)")


def _dots(axes: Axes, layers: list[str], series: dict[str, list[float | None]], xlabel: str) -> None:
    """Draw logarithms, on an axis of at least one decade so that noise looks small; zeros are written as 0."""
    logs = {name: [math.log10(value) if value else None for value in values] for name, values in series.items()}
    dots(axes, layers, logs, xlabel)
    widen(axes, 1.0)
    for place, values in enumerate(zip(*series.values(), strict=True)):
        if 0 in values:
            axes.text(0.02, place, "0", transform=axes.get_yaxis_transform(), va="center")
