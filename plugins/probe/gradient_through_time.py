"""Gradient norm at each time step of a sequence (Bengio, Simard & Frasconi, 1994, doi:10.1109/72.279181; Pascanu,
Mikolov & Bengio, 2013, arXiv:1211.5063), and the memory horizon of recurrent states.

    dL/dh_t = (dh_{t+1}/dh_t)^T dL/dh_{t+1} + (dL/dh_t at fixed h_{t+1}),    log10 |dL/dx_t| ~ a + decay t
    horizon = the first t with |h_t(s) - h_t(s')| < tolerance, of two initial states s, s' and the same inputs

L is the loss of one row; with a target at each step, the loss of its last step, since in a sum the terms of nearby
steps hide those of distant ones. Means of log10 are over rows whose gradient is not 0. All is computed in 64 bits,
because numbers of 32 bits end at 1e-45. A gradient of exactly 0, for lack of a path, is null. Departs from the papers
in measuring the whole gradient, through all layers and gates, where they bound the product of one layer's factors. The
reported horizon is the median over rows; it is "> T" where half of the rows have none within T steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import torch
from torch import Tensor, nn

from nnexp import DataSpec, Observation, Picture, Probe, Range, probe, to_plain
from nnexp.data import valid_positions
from nnexp.plotting import MAX_SERIES, lines, trend
from nnexp.probing import (
    FoundCells,
    StateTrack,
    View,
    accepts_one_hot,
    detached_embeddings,
    differentiable_input,
    record_states,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Logs = list[float | None]
Panels = dict[str, dict[str, Logs]]
PANELS = (("gates", "mean of the gate", "gate"), ("norms", "norm of the state", "state"))


@probe
@dataclass(kw_only=True)
class GradientThroughTime(Probe):
    """Gradient norm at each time step, its decay per step, and the memory horizon of recurrent states.

    Args:
        tolerance: distance below which two states count as equal.
        num_rows: number of training rows.
    """

    tolerance: Annotated[float, Range(gt=0)] = 0.01
    num_rows: Annotated[int, Range(min=1)] = 8

    def __call__(self, view: View) -> Observation | None:
        """Return norms by time step, their decay and the memory horizon; None for data or models without time steps."""
        if view.data.kind == "vector":
            return None
        with view.exact() as exact, torch.enable_grad():
            x, y, *lengths = exact.rows("train", self.num_rows)
            flow = flow_of(exact.module, exact.data, lambda out: _loss(exact, out, y, *lengths), x, *lengths)
            if not flow.tracks and (view.data.kind == "image" or flow.inputs is None):
                return None
            distance = distances(exact.module, flow.found_cells, view.generator, x, *lengths) if flow.tracks else None
        panels = _panels(flow, *lengths)
        scalars, texts = _scalars(flow, panels), {}
        if distance is not None:
            steps = first_step(distance, self.tolerance, *lengths)
            scalars |= {"horizon_never": 1.0} if steps is None else {"horizon_steps": steps, "horizon_never": 0.0}
            texts["memory"] = _memory_text(steps, distance, self.tolerance)
        return Observation(scalars, _pictures(flow, panels), texts)


@dataclass(frozen=True)
class Flow:
    """Gradient norms over time: means over rows of log10 of the norm, by position.

    Args:
        inputs: of dL/dx_t; None where the model has no differentiable input.
        states: of dL/dh_t, by state.
        tracks: the states themselves, by layer.
        found_cells: recurrent cells other than torch's modules.
    """

    inputs: Logs | None
    states: dict[str, Logs]
    tracks: dict[str, StateTrack]
    found_cells: FoundCells


def flow_of(
    module: nn.Module, data: DataSpec, quantity: Callable[[Tensor], Tensor], x: Tensor, *lengths: Tensor
) -> Flow:
    """Return the gradients of `quantity(output)`, a sum of independent rows."""
    axis = 2 if data.kind == "image" else 1  # of positions
    is_embedded = data.kind == "tokens" and not accepts_one_hot(module, data, x, *lengths)
    leaf = x if is_embedded else differentiable_input(x, data)
    with record_states(module) as record, detached_embeddings(module, x) as embedded:
        output = module(leaf, *lengths)
    inputs = embedded[:1] if is_embedded else [leaf]
    record.find_cells(data.max_length, inputs[0] if inputs else None, axis)
    states = {f"{letter} {path}": steps for path, t in record.tracks.items() for letter, steps in t.states.items()}
    states = dict(sorted(states.items(), key=lambda item: item[0][0] != "h"))  # hidden states before others
    tensors = [*inputs, *(state for steps in states.values() for state in steps)]
    if not tensors:
        return Flow(None, {}, {}, {})
    grads = iter(torch.autograd.grad(quantity(output), tensors, allow_unused=True, materialize_grads=True))
    by_input = [_mean_logs(next(grads).movedim(axis, 1)) for _ in inputs]
    by_state = {name: _mean_logs(torch.stack([next(grads) for _ in steps], 1)) for name, steps in states.items()}
    return Flow(by_input[0] if by_input else None, by_state, record.tracks, record.found_cells)


@torch.no_grad()
def distances(
    module: nn.Module, found_cells: FoundCells, generator: torch.Generator, x: Tensor, *lengths: Tensor
) -> Tensor | None:
    """Return distances (T, B) between the states of two passes, with initial states drawn uniformly from -1 to 1.

    Returns None where the model has no forward recurrent layer.
    """

    def initial_state(state: Tensor) -> Tensor:
        two = torch.rand(2, 1, state.shape[-1], generator=generator, dtype=state.dtype) * 2 - 1
        return two.expand(2, len(x), -1).flatten(0, 1)

    with record_states(module, initial_state, found_cells) as record:
        module(torch.cat([x, x]), *(torch.cat([each, each]) for each in lengths))
    record.add_found_cells()
    forward = [track for track in record.tracks.values() if not track.is_reverse]
    states = [torch.stack(steps) for track in forward for steps in track.states.values()]
    if not states:
        return None
    pairs = torch.cat([state for state in states if len(state) == len(states[0])], -1).unflatten(1, (2, -1))
    distance: Tensor = torch.linalg.vector_norm(pairs[:, 0] - pairs[:, 1], dim=-1)
    return distance


def first_step(distance: Tensor, tolerance: float, *lengths: Tensor) -> int | None:
    """Return the first step by which half of the rows have been below the tolerance, for distances (T, B); or None."""
    is_below = distance < tolerance
    for each in lengths:
        is_below &= valid_positions(each, len(distance)).T
    firsts = torch.where(is_below.any(0), is_below.int().argmax(0) + 1, len(distance) + 1)
    half = int(firsts.median())  # the lower of two
    return half if half <= len(distance) else None


def _loss(view: View, output: Tensor, y: Tensor, *lengths: Tensor) -> Tensor:
    """Return the sum over rows of the loss of their last prediction."""
    if not view.data.per_step:
        return torch.stack([view.loss(output[row : row + 1], y[row : row + 1]) for row in range(len(y))]).sum()
    ends = lengths[0].tolist() if lengths else [view.data.max_length] * len(y)
    last = [(slice(row, row + 1), slice(end - 1, end)) for row, end in enumerate(ends)]
    return torch.stack([view.loss(output[at], y[at]) for at in last]).sum()


def _mean_logs(grads: Tensor) -> Logs:
    """Return the mean over rows of log10 of the norm, for (B, T, ...), scaled against underflow."""
    flat = grads.flatten(2)
    largest = flat.abs().amax(-1)
    is_zero = largest == 0
    unit = torch.where(is_zero, torch.ones_like(largest), largest)
    logs = unit.log10() + torch.linalg.vector_norm(flat / unit.unsqueeze(-1), dim=-1).clamp(min=1).log10()
    means: Logs = to_plain(torch.where(is_zero, 0.0, logs).sum(0) / (~is_zero).sum(0))
    return means


def fit_line(logs: Logs) -> tuple[float, float] | None:
    """Return slope and intercept of the least-squares line; None for fewer than two points."""
    points = [(float(t), value) for t, value in enumerate(logs) if value is not None]
    if len(points) < 2:
        return None
    slope, intercept = statistics.linear_regression(*zip(*points, strict=True))
    return slope, intercept


def _scalars(flow: Flow, panels: Panels) -> dict[str, float]:
    """Return first and last value and decay of each series, and the mean of each gate."""
    scalars: dict[str, float] = {}
    for name, logs in {"": flow.inputs or [None], **flow.states}.items():
        line = fit_line(logs)
        values = {"first_log10": logs[0], "last_log10": logs[-1], "decay_log10_per_step": line[0] if line else None}
        path = f"{name.replace(' ', '/')}/" if name else ""
        scalars |= {path + key: value for key, value in values.items() if value is not None}
    for name, means in panels["gates"].items():
        finite = [value for value in means if value is not None]
        scalars |= {f"gate/{name.replace(' ', '/')}": statistics.fmean(finite)} if finite else {}
    return scalars


def _memory_text(steps: int | None, distance: Tensor, tolerance: float) -> str:
    length, rows = distance.shape
    horizon = f"> {length}" if steps is None else str(steps)
    return (
        f"Memory horizon: **{horizon}** steps. Two initial states, drawn uniformly from -1 to 1, read the same inputs; "
        f"the horizon is the step by which their distance has fallen below {tolerance:g} in half of the {rows} rows."
    )


def _panels(flow: Flow, *lengths: Tensor) -> Panels:
    """Return the mean gate and the norm of the state, by position."""
    gates = {f"{n} {path}": steps for path, track in flow.tracks.items() for n, steps in track.gates.items()}
    states = {f"{n} {path}": steps for path, track in flow.tracks.items() for n, steps in track.states.items()}
    norms = {name: torch.linalg.vector_norm(torch.stack(steps), dim=-1) for name, steps in states.items()}
    return {
        "gates": {name: _mean_valid(torch.stack(steps).mean(-1), *lengths) for name, steps in gates.items()},
        "norms": {name: _mean_valid(each, *lengths) for name, each in norms.items()},
    }


def _pictures(flow: Flow, panels: Panels) -> dict[str, Picture]:
    series = ({} if flow.inputs is None else {"x": flow.inputs}) | flow.states
    line = fit_line(next(iter(series.values())))
    numbers = {"log10 of the norm": series, "slope and start of the line": line}
    pictures = {"gradient": Picture("Gradient through time", numbers, _draw_gradient)}
    if panels["norms"]:
        title, height = ("Gates and states over time", 5.0) if panels["gates"] else ("States over time", 3.6)
        pictures["states"] = Picture(title, panels, _draw_states, (6.0, height))
    return pictures


def _mean_valid(values: Tensor, *lengths: Tensor) -> Logs:
    """Return the mean over rows without padding, (T, B) -> (T,) as a list."""
    valid = torch.ones_like(values, dtype=torch.bool)
    for each in lengths:
        valid = valid_positions(each, len(values)).T
    mean: Logs = to_plain((values.detach() * valid).sum(1) / valid.sum(1))
    return mean


def _draw_gradient(figure: Figure, numbers: dict[str, Any]) -> None:
    axes, series = figure.subplots(), numbers["log10 of the norm"]
    length = len(next(iter(series.values())))
    shown = {f"dL/d{name}": _resample(logs, length) for name, logs in list(series.items())[: MAX_SERIES - 1]}
    lines(axes, shown, _label("position t", len(series), MAX_SERIES - 1, "curves"), "norm of the gradient (log10)")
    line = numbers["slope and start of the line"]
    if line:
        name = f"{next(iter(shown))}: x {10 ** -line[0]:.2g} per step back"
        trend(axes, range(length), [line[1] + line[0] * t for t in range(length)], name)


def _draw_states(figure: Figure, numbers: dict[str, Any]) -> None:
    panels = [(numbers[name], *of) for name, *of in PANELS if numbers[name]]
    all_axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    length = max(len(values) for series, *_ in panels for values in series.values())
    for axes, (series, label, what) in zip(all_axes, panels, strict=True):
        shown = {each: _resample(values, length) for each, values in list(series.items())[:MAX_SERIES]}
        lines(axes, shown, _label("position t", len(series), MAX_SERIES, f"{what}s"), label)
        if what == "gate":
            axes.set_ylim(-0.02, 1.02)  # the whole range, so that noise looks small


def _label(text: str, count: int, max_count: int, what: str) -> str:
    return text if count <= max_count else f"{text} (first {max_count} of {count} {what})"


def _resample(values: Logs, length: int) -> Logs:
    """Spread values over `length` positions, for layers with more or fewer steps than the input."""
    return [values[t * len(values) // length] for t in range(length)]
