"""Distribution and saturation of each layer's outputs, after Glorot & Bengio (2010, "Understanding the difficulty of
training deep feedforward neural networks").

    saturated: |tanh| > 0.97,  sigmoid < 0.03 or > 0.97,  relu = 0;  states of rnn, lstm and gru as tanh

Departs from the paper, which studies one network, in finding layers and functions by tracing a forward pass. A
function that is not a layer is named after the layer before it, such as `layers.0.relu`; calls with the same name are
pooled, and padding is excluded.
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
from nnexp.probing import View, record_calls, trace_operations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUCKETS = 30
MAX_LAYERS, MAX_NUMBERS = 12, 2**16
SATURATION = 0.97
TANH = ("tanh", "rnn_tanh", "lstm", "gru", "rnn_tanh_cell", "lstm_cell", "gru_cell")
RELU = ("relu", "rnn_relu", "rnn_relu_cell")
BOUNDED = (*TANH, *RELU, "sigmoid")


@dataclass
class Layer:
    """Outputs of a layer in all its calls, and the bounded function that made them, if any."""

    outputs: list[Tensor] = field(default_factory=list)
    activation: str | None = None


@probe
@dataclass(kw_only=True)
class Activations(Probe):
    """Distribution of each layer's outputs, and the fraction of saturated values.

    Args:
        rows: number of validation rows.
    """

    rows: Annotated[int, Range(min=1)] = 64

    def __call__(self, view: View) -> Observation | None:
        """Return means, standard deviations and saturation by layer; None where no layer is called."""
        x, _, *lengths = view.rows("val", self.rows)
        all_layers = _layers(view.module, x, *lengths)
        layers = _select(all_layers)
        if not layers:
            return None
        with torch.no_grad():
            valid = valid_positions(lengths[0], view.data.max_length) if lengths else None
            measured = torch.stack([_measure(layer, valid) for layer in layers.values()]).tolist()
        return _observation(layers, measured, len(all_layers))


def _layers(module: nn.Module, x: Tensor, *lengths: Tensor) -> dict[str, Layer]:
    """Return layers and bounded functions by name, in the order of their first call."""
    leaves = {name for name, layer in module.named_modules() if name and _is_leaf(name, layer)}
    with record_calls(module) as calls:
        operations, _ = trace_operations(module, x, *lengths)
    outputs = {id(call.output): call for call in calls if call.name in leaves}
    layers: dict[str, Layer] = {}
    last = ""
    for operation in operations:
        first = operation.outputs[0]
        activation = operation.name if operation.name in BOUNDED else None
        call = outputs.get(id(first))
        if call is not None and call.name == operation.scope:
            last = call.name
            _add(layers, last, first, activation)
        elif activation and operation.scope not in leaves:
            _add(layers, f"{last}.{operation.name}".lstrip("."), first, activation)
    return layers


def _is_leaf(name: str, layer: nn.Module) -> bool:
    """Check that a layer has no sublayers; parametrizations of weights and dropout are not layers."""
    is_skipped = "parametrizations" in name.split(".") or isinstance(layer, nn.modules.dropout._DropoutNd)
    return not is_skipped and all(child == "parametrizations" for child, _ in layer.named_children())


def _select(layers: dict[str, Layer]) -> dict[str, Layer]:
    """Return at most MAX_LAYERS, evenly spaced, with the first and the last."""
    names = list(layers)
    places = torch.linspace(0, len(names) - 1, min(len(names), MAX_LAYERS)).round().long().tolist()
    return {names[place]: layers[names[place]] for place in places}


def _add(layers: dict[str, Layer], name: str, output: Tensor, activation: str | None) -> None:
    if output.is_floating_point():
        layer = layers.setdefault(name, Layer())
        layer.outputs.append(output.detach())
        layer.activation = activation


def _measure(layer: Layer, valid: Tensor | None) -> Tensor:
    """Return (5 + BUCKETS,): minimum, maximum, mean, standard deviation, fraction saturated, counts; on the device."""
    parts = [_flat(output, valid) for output in layer.outputs]
    values, counted = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    step = -(-len(values) // MAX_NUMBERS)
    values, counted = values[::step].to(torch.get_default_dtype()), counted[::step]
    counted = counted & values.isfinite()
    values, weight = torch.where(counted, values, 0), counted.to(values.dtype)
    number = weight.sum()
    mean = values.sum() / number
    spread = ((values - mean).square() * weight).sum().div(number).sqrt()
    saturated = (_is_saturated(values, layer.activation) * weight).sum() / number
    low, high = torch.where(counted, values, torch.inf).amin(), torch.where(counted, values, -torch.inf).amax()
    half = torch.where(high > low, 0.0, 0.5)
    low, high = low - half, high + half
    bucket = ((values - low) / (high - low) * BUCKETS).nan_to_num().long().clamp(0, BUCKETS - 1)
    counts = torch.zeros(BUCKETS, dtype=values.dtype, device=values.device).scatter_add(0, bucket, weight)
    return torch.cat([torch.stack([low, high, mean, spread, saturated]), counts])


def _flat(output: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the flattened output, and which of its numbers are not padding, for valid positions (B, T)."""
    if valid is None or output.ndim < 3 or valid.shape not in (output.shape[:2], output.shape[:: output.ndim - 1]):
        return output.flatten(), torch.ones_like(output, dtype=torch.bool).flatten()
    is_second = valid.shape == output.shape[:2]
    shape = (*valid.shape, *[1] * (output.ndim - 2)) if is_second else (len(valid), *[1] * (output.ndim - 2), -1)
    return output.flatten(), valid.view(shape).expand_as(output).flatten()


def _is_saturated(values: Tensor, activation: str | None) -> Tensor:
    """Return which values are saturated, or NaN for an unbounded function."""
    if activation in TANH:
        return values.abs() > SATURATION
    if activation in RELU:
        return values == 0
    if activation == "sigmoid":
        return (values > SATURATION) | (values < 1 - SATURATION)
    return torch.full_like(values, torch.nan)


def _observation(layers: dict[str, Layer], measured: Sequence[Sequence[float]], num_found: int) -> Observation:
    scalars: dict[str, float] = {}
    rows, numbers = {}, {}
    for (layer, info), (low, high, mean, spread, saturated, *counts) in zip(layers.items(), measured, strict=True):
        if not sum(counts):
            continue  # no finite number
        name = re.sub(r"[^\w./-]", "_", layer)[-80:]
        scalars |= {f"mean/{name}": mean, f"spread/{name}": spread}
        scalars |= {f"saturated/{name}": saturated} if info.activation else {}
        edges = [low + (high - low) * place / BUCKETS for place in range(BUCKETS + 1)]
        rows[f"outputs/{name}"] = [(*ends, count) for ends, count in zip(pairwise(edges), counts, strict=True)]
        note = f"{saturated:.0%} {'zero' if info.activation in RELU else 'saturated'}" if info.activation else ""
        numbers[layer] = {"edges": edges, "counts": counts, "mean": mean, "spread": spread, "note": note}
    if not numbers:
        return Observation()
    title = "Outputs by layer" if num_found == len(layers) else f"Outputs of {len(layers)} of {num_found} layers"
    picture = Picture(title, {"layers": numbers}, _draw, (6.0, 1.1 + 0.36 * len(numbers)))
    return Observation(scalars, {"layers": picture}, histograms=rows)


def _draw(figure: Figure, numbers: dict[str, Any]) -> None:
    layers = numbers["layers"]
    edges, counts, notes = ([layer[part] for layer in layers.values()] for part in ("edges", "counts", "note"))
    label = "output of a unit, from minimum to maximum; line at 0"
    ridges(figure.subplots(), list(layers), edges, counts, label, notes)
