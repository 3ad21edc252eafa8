"""What each layer gives: how its numbers are distributed, and whether they lie at the ends of a bounded function, after
Glorot & Bengio (2010, "Understanding the difficulty of training deep feedforward neural networks").

    saturated: |tanh| > 0.97,  sigmoid < 0.03 or > 0.97,  relu = 0;  states of rnn, lstm and gru as tanh

Departs from the paper, which watches the layers of one network, in finding layers and functions by watching a forward
pass. A function that is no layer has the name of the layer before it, such as `layers.0.relu`; calls of the same name
count together, and padding does not count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import torch
from torch import Tensor, nn

from nnexp import Observation, Picture, Probe, Range, probe
from nnexp.data import valid_positions
from nnexp.plotting import ridges
from nnexp.probing import View, operations_of, watching

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUCKETS = 30
MOST_LAYERS, MOST_NUMBERS = 12, 2**16
END = 0.97
TANH = ("tanh", "rnn_tanh", "lstm", "gru", "rnn_tanh_cell", "lstm_cell", "gru_cell")
RELU = ("relu", "rnn_relu", "rnn_relu_cell")
BOUNDED = (*TANH, *RELU, "sigmoid")


@dataclass
class Layer:
    """Outputs of a layer, and the bounded function that they are of, if of any."""

    outputs: list[Tensor] = field(default_factory=list)
    bent_by: str | None = None


@probe
@dataclass(kw_only=True)
class Activations(Probe):
    """The distribution of what each layer gives, and how much of it is saturated.

    Args:
        rows: inputs of the validation split that are looked at.
    """

    rows: Annotated[int, Range(min=1)] = 64

    def __call__(self, view: View) -> Observation | None:
        x, _, *lengths = view.rows("val", self.rows)
        found = _layers(view.module, x, *lengths)
        layers = _some(found)
        if not layers:
            return None
        with torch.no_grad():
            valid = valid_positions(lengths[0], view.data.max_length) if lengths else None
            measured = torch.stack([_measured(layer, valid) for layer in layers.values()]).tolist()
        return _seen(layers, measured, len(found))


def _layers(module: nn.Module, x: Tensor, *lengths: Tensor) -> dict[str, Layer]:
    """By name, in the order in which they are first called."""
    leaves = {name for name, layer in module.named_modules() if name and _is_leaf(name, layer)}
    with watching(module) as calls:
        operations, _ = operations_of(module, x, *lengths)
    outputs = {id(call.output): call for call in calls if call.name in leaves}
    layers: dict[str, Layer] = {}
    last = ""
    for operation in operations:
        first = operation.outputs[0]
        bent_by = operation.name if operation.name in BOUNDED else None
        call = outputs.get(id(first))
        if call is not None and call.name == operation.scope:
            last = call.name
            _add(layers, last, first, bent_by)
        elif bent_by and operation.scope not in leaves:
            _add(layers, f"{last}.{operation.name}".lstrip("."), first, bent_by)
    return layers


def _is_leaf(name: str, layer: nn.Module) -> bool:
    """Whether a layer is of one piece. What computes its weights is no part of it; dropout does nothing here."""
    is_computing = "parametrizations" in name.split(".") or isinstance(layer, nn.modules.dropout._DropoutNd)
    return not is_computing and all(child == "parametrizations" for child, _ in layer.named_children())


def _some(layers: dict[str, Layer]) -> dict[str, Layer]:
    """At most so many, the first and the last among them."""
    names = list(layers)
    places = torch.linspace(0, len(names) - 1, min(len(names), MOST_LAYERS)).round().long().tolist()
    return {names[place]: layers[names[place]] for place in places}


def _add(layers: dict[str, Layer], name: str, output: Tensor, bent_by: str | None) -> None:
    if output.is_floating_point():
        layer = layers.setdefault(name, Layer())
        layer.outputs.append(output.detach())
        layer.bent_by = bent_by


def _measured(layer: Layer, valid: Tensor | None) -> Tensor:
    """(5 + BUCKETS,): lowest, highest, mean, standard deviation, share saturated, counts. It stays on the device."""
    parts = [_flat(output, valid) for output in layer.outputs]
    values, counted = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    step = -(-len(values) // MOST_NUMBERS)
    values, counted = values[::step].to(torch.get_default_dtype()), counted[::step]
    counted = counted & values.isfinite()
    values, weight = torch.where(counted, values, 0), counted.to(values.dtype)
    number = weight.sum()
    mean = values.sum() / number
    spread = ((values - mean).square() * weight).sum().div(number).sqrt()
    saturated = (_is_saturated(values, layer.bent_by) * weight).sum() / number
    low, high = torch.where(counted, values, torch.inf).amin(), torch.where(counted, values, -torch.inf).amax()
    half = torch.where(high > low, 0.0, 0.5)
    low, high = low - half, high + half
    bucket = ((values - low) / (high - low) * BUCKETS).nan_to_num().long().clamp(0, BUCKETS - 1)
    counts = torch.zeros(BUCKETS, dtype=values.dtype, device=values.device).scatter_add(0, bucket, weight)
    return torch.cat([torch.stack([low, high, mean, spread, saturated]), counts])


def _flat(output: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """The numbers of an output, and whether each counts: those of padded positions (B, T) do not."""
    if valid is None or output.ndim < 3 or valid.shape not in (output.shape[:2], output.shape[:: output.ndim - 1]):
        return output.flatten(), torch.ones_like(output, dtype=torch.bool).flatten()
    is_second = valid.shape == output.shape[:2]
    shape = (*valid.shape, *[1] * (output.ndim - 2)) if is_second else (len(valid), *[1] * (output.ndim - 2), -1)
    return output.flatten(), valid.view(shape).expand_as(output).flatten()


def _is_saturated(values: Tensor, bent_by: str | None) -> Tensor:
    if bent_by in TANH:
        return values.abs() > END
    if bent_by in RELU:
        return values == 0
    return (values > END) | (values < 1 - END) if bent_by == "sigmoid" else torch.full_like(values, torch.nan)


def _seen(layers: dict[str, Layer], measured: Sequence[Sequence[float]], num_found: int) -> Observation:
    scalars: dict[str, float] = {}
    rows, numbers = {}, {}
    for (layer, about), (low, high, mean, spread, saturated, *counts) in zip(layers.items(), measured, strict=True):
        if not sum(counts):
            continue  # not one finite number
        name = re.sub(r"[^\w./-]", "_", layer)[-80:]
        scalars |= {f"mean/{name}": mean, f"spread/{name}": spread}
        scalars |= {f"saturated/{name}": saturated} if about.bent_by else {}
        edges = [low + (high - low) * place / BUCKETS for place in range(BUCKETS + 1)]
        rows[f"outputs/{name}"] = [(*ends, count) for ends, count in zip(pairwise(edges), counts, strict=True)]
        note = f"{saturated:.0%} {'zero' if about.bent_by in RELU else 'saturated'}" if about.bent_by else ""
        numbers[layer] = {"edges": edges, "counts": counts, "mean": mean, "spread": spread, "note": note}
    if not numbers:
        return Observation()
    title = "Outputs by layer" if num_found == len(layers) else f"Outputs of {len(layers)} of {num_found} layers"
    picture = Picture(title, {"layers": numbers}, _draw, (6.0, 1.1 + 0.36 * len(numbers)))
    return Observation(scalars, {"layers": picture}, histograms=rows)


def _draw(figure: Figure, numbers: dict[str, Any]) -> None:
    layers = numbers["layers"]
    edges, counts, notes = ([layer[part] for layer in layers.values()] for part in ("edges", "counts", "note"))
    label = "output of a unit, from the lowest to the highest; line at 0"
    ridges(figure.subplots(), list(layers), edges, counts, label, notes)
