"""Receptive field of each layer: measured, from the formula of convolutions, and effective.

    measured   last - first + 1 of the input positions whose perturbation changes an output, see `measured_field`
    formula    r <- r + (k - 1) * dilation * j,  j <- j * stride, see `field_formula`
    effective  g = mean |d(+-y_1 +-y_2 ...) / dx| over data, y the features at one output position; (sum g)^2 / sum g^2

The formula is that of Araujo, Norris & Sim (2019, doi:10.23915/distill.00021), the effective field that of Luo et al.
(2016, arXiv:1701.04128). Departs from Luo et al. in random signs, because the plain sum over the features of a
normalised layer is constant, and in the size: the participation ratio of g along an axis is n if g is equal on n
positions and zero elsewhere, and needs no threshold. All is computed in 64 bits. Measured and effective fields are
computed at each observation, the formula at the first, since it does not depend on weights.

The measured size is the largest over all output positions, so that borders do not reduce it; the effective field is
that of the same position. Among equally large fields, the one nearest to the middle is used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nnexp import Observation, Picture, Probe, probe
from nnexp.plotting import dots, heatmap, legend, lines, shortened
from nnexp.probing import (
    LayerField,
    MeasuredFields,
    View,
    differentiable_input,
    forward_calls,
    positional_outputs,
    receptive_field_formulas,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NUM_ROWS = 29  # unlikely to be the size of another axis of a layer
MAX_LAYERS = 24
Sizes = list[int | None] | list[float | None] | None


@probe
@dataclass(kw_only=True)
class ReceptiveField(Probe):
    """Receptive field of each layer: measured by perturbing inputs, from a formula, and from gradients."""

    def __post_init__(self) -> None:
        self._formulas: dict[str, list[int | None]] | None = None

    def __call__(self, view: View) -> Observation | None:
        """Return field sizes by layer and kind; None where the data or all layers have no positions."""
        if view.data.kind == "vector" or (view.data.kind == "tokens" and view.data.vocab < 2):
            return None
        with view.exact() as exact:
            measured = MeasuredFields(exact)
            names = list(measured.layers)
            if not any(layer.axes for layer in measured.layers.values()):
                return None
            shown = names if len(names) <= MAX_LAYERS else names[: MAX_LAYERS - 2] + names[-2:]
            layers = {name: measured.layers[name] for name in shown}
            self._formulas = self._formulas or _formulas(exact)
            effects = _effects(exact, layers)
        return _observation(measured, layers, self._formulas, effects)


def _formulas(view: View) -> dict[str, list[int | None]]:
    """Return field sizes along each axis from the formula, by layer; None where it is not defined."""
    x, *_ = view.rows("val", NUM_ROWS)
    axes = [2, 3] if view.data.kind == "image" else [1]
    found = receptive_field_formulas(view.module, x, axes)
    sizes = {id(call): each for call, each in found}
    outputs = positional_outputs([call for call, _ in found], len(x))
    return {name: sizes[id(call)] for name, (call, _) in outputs.items()}


def _effects(view: View, layers: dict[str, LayerField]) -> dict[str, Tensor]:
    """Return g over the input positions, by layer; layers without a gradient path are left out."""
    x, _, *lengths = view.rows("val", 8 * NUM_ROWS)
    if lengths:  # the longest rows, passed without lengths, as if without padding
        x = x[lengths[0] == lengths[0].max()]
    x = differentiable_input(x[:NUM_ROWS], view.data)
    try:
        found = positional_outputs(forward_calls(view.module, x), len(x))
    except Exception:
        if view.data.kind == "tokens":
            return {}  # a model with an embedding takes no one-hot rows
        raise
    result = {}
    for name, layer in layers.items():
        centre = layer.at_centre(found[name][1]) if name in found else None
        if centre is None or not centre.requires_grad:
            continue
        signs = torch.randint(2, centre.shape, generator=view.generator) * 2 - 1
        (gradient,) = torch.autograd.grad((signs * centre).sum(), x, retain_graph=True, allow_unused=True)
        if gradient is not None:
            result[name] = gradient.abs().mean((0, 1) if view.data.kind == "image" else (0, 2))
    return result


def _participation(g: Tensor) -> list[float | None]:
    """Return the participation ratio of g along each axis."""
    along = [g.sum([other for other in range(g.ndim) if other != axis]) if g.ndim > 1 else g for axis in range(g.ndim)]
    along = [each / each.max() for each in along]
    return [float(each.sum() ** 2 / each.square().sum()) if each.isfinite().all() else None for each in along]


def _largest(sizes: Sizes) -> float | None:
    """Return the largest of height and width; None where one is not defined."""
    defined = [size for size in sizes or [None] if size is not None]
    return max(defined) if sizes and len(defined) == len(sizes) else None


def _observation(
    measured: MeasuredFields,
    layers: dict[str, LayerField],
    formulas: dict[str, list[int | None]],
    effects: dict[str, Tensor],
) -> Observation:
    sizes: dict[str, dict[str, Sizes]] = {
        "measured": {name: layer.fields.amax(1).tolist() for name, layer in layers.items()},
        "formula": {name: formulas.get(name) for name in layers},
        "effective": {name: _participation(effects[name]) if name in effects else None for name in layers},
    }
    numbers: dict[str, Any] = {"layers": list(layers), "of": len(measured.layers), "input": list(measured.grid)}
    numbers |= {kind: [_largest(each) for each in by_layer.values()] for kind, by_layer in sizes.items()}
    numbers["sizes along each axis"] = sizes
    scalars = {
        f"{re.sub(r'[^A-Za-z0-9_./-]', '_', name)}/{kind}": float(value)
        for kind in sizes
        for name, value in zip(layers, numbers[kind], strict=True)
        if value is not None
    }
    pictures = {"depth": Picture("Receptive fields", numbers, _draw_depth, (6.4, 1.9 + 0.26 * len(layers)))}
    last = [name for name, layer in layers.items() if layer.axes][-1]
    if len(measured.grid) == 2:
        pictures["map"] = Picture(f"Receptive field of {last}", _map(measured, last, effects), _draw_map, (7.0, 3.2))
    else:
        time = {name: _in_time(measured, name, effects) for name in dict.fromkeys([last, list(layers)[-1]])}
        pictures["time"] = Picture("Receptive field in time", {"layers": time}, _draw_time, (6.4, 4.0))
    return Observation(scalars, pictures)


def _map(measured: MeasuredFields, name: str, effects: dict[str, Tensor]) -> dict[str, Any]:
    g = effects.get(name)
    relative = None if g is None else g / g.max()
    position, moved = measured.layers[name].centre_position, measured.field_mask(name)
    return {"layer": name, "position": position, "moved": moved, "effective": relative}


def _in_time(measured: MeasuredFields, name: str, effects: dict[str, Tensor]) -> dict[str, Any]:
    """Return the field along a sequence, by lag behind the output position (the last, if there is no position)."""
    layer, length = measured.layers[name], measured.grid[0]
    position = round((layer.centre_position[0] + 0.5) * length / layer.size[0] - 0.5) if layer.axes else length - 1
    moved = measured.field_mask(name)
    g = effects.get(name)
    logs = None if g is None else (g / g.max()).log10()  # -inf where g is 0, which is not drawn
    numbers = {"lags": [position - step for step in range(length)], "moved": moved.long(), "log10 effective": logs}
    if layer.axes and layer.size[0] == length:
        behind, ahead = measured.reach(name)
        numbers |= {"most steps behind": behind, "most steps ahead": ahead}
    return numbers


def _draw_depth(figure: Figure, numbers: dict[str, Any]) -> None:
    axes, size = figure.subplots(), max(numbers["input"])
    shown = _by_axis(numbers)
    unit = "pixels" if len(numbers["input"]) == 2 else "steps"
    some = f"; first {MAX_LAYERS - 2} and last 2 of {numbers['of']} layers" * (numbers["of"] > len(numbers["layers"]))
    dots(axes, numbers["layers"], shown, f"size of the field ({unit}){some}")
    axes.axvline(size, color="0.5", linestyle=":", label=f"input ({size})")
    legend(axes, len(shown) + 1)
    axes.set_xlim(0, 1.04 * size)
    axes.locator_params(axis="x", integer=True)


def _by_axis(numbers: dict[str, Any]) -> dict[str, list[float | None]]:
    """Return sizes by kind, and by axis where fields are not square."""
    of_axes = numbers["sizes along each axis"]
    kinds = [kind for kind in ("measured", "formula", "effective") if any(map(bool, numbers[kind]))]
    exact = [sizes for kind in kinds if kind != "effective" for sizes in of_axes[kind].values() if sizes]
    if all(len(set(sizes)) == 1 for sizes in exact):
        return {kind: numbers[kind] for kind in kinds}
    sides = ("height", "width")
    return {
        f"{kind}, {side}": [sizes[axis] if (sizes := of_axes[kind][name]) else None for name in numbers["layers"]]
        for kind in kinds
        for axis, side in enumerate(sides)
    }


def _draw_map(figure: Figure, numbers: dict[str, Any]) -> None:
    left, right = figure.subplots(1, 2)
    heatmap(left, numbers["moved"], "column (pixels)", "row (pixels)", "", limits=(0, 1))
    left.set_title(f"measured: yellow changes {_position_name(numbers['position'])}")
    if numbers["effective"] is not None:
        heatmap(right, numbers["effective"], "column (pixels)", "", "mean |gradient| / largest", limits=(0, 1))
        right.set_title("effective, measured outlined")
        _outline(right, numbers["moved"])
    for axes in (left, right):
        axes.set_aspect("equal")


def _position_name(position: list[int]) -> str:
    """Return the name of an output position."""
    return f"output {tuple(position)}" if len(position) > 1 else f"output {position[0]}" if position else "the output"


def _outline(axes: Axes, moved: list[list[bool]]) -> None:
    """Draw the bounding box of the measured field."""
    rows = [number for number, row in enumerate(moved) if any(row)]
    columns = [number for number, column in enumerate(zip(*moved, strict=True)) if any(column)]
    if rows:
        top, bottom, left, right = rows[0] - 0.5, rows[-1] + 0.5, columns[0] - 0.5, columns[-1] + 0.5
        axes.plot([left, right, right, left, left], [top, top, bottom, bottom, top], color="#D55E00", clip_on=False)


def _draw_time(figure: Figure, numbers: dict[str, Any]) -> None:
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    layers = numbers["layers"]
    lags = sorted({lag for each in layers.values() for lag in each["lags"]})
    effective = {name: _at(lags, each, "log10 effective") for name, each in layers.items() if each["log10 effective"]}
    lines(upper, effective, "", "mean |gradient|\n/ largest (log10)", lags)
    extent = (lags[0] - 0.5, lags[-1] + 0.5, -0.5, len(layers) - 0.5)
    xlabel = "steps back from the output position"
    lower.set_title("measured: changing a yellow step changes the output", fontsize=8)
    heatmap(lower, [_at(lags, e, "moved") for e in layers.values()], xlabel, "", "", limits=(0, 1), extent=extent)
    lower.set_yticks(range(len(layers)), [shortened(name, 12) for name in layers])


def _at(lags: list[int], numbers: dict[str, Any], name: str) -> list[float | None]:
    """Return the values at these lags, None where there is none."""
    by_lag = dict(zip(numbers["lags"], numbers[name], strict=True))
    return [by_lag.get(lag) for lag in lags]
