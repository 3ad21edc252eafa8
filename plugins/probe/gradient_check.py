"""The gradient of autograd against finite differences, in numbers of 64 bits, as by Karpathy et al. (2015, CS231n,
"Gradient checks").

    n = (L(w + e v) - L(w - e v)) / 2e,  a = g v,  error = |a - n| / max(|a| + |n|, floor)

v is one weight, or a random direction of one tensor of weights, which a mistake in any of them moves. Departs from the
source in the floor, below which a difference of rounded losses has fewer than the digits that are asked for, and in
setting apart what lies at a kink, as of relu at 0: between w - e v and w + e v the slope a changes by more than a and n
differ, by a jump and not evenly. A wrong gradient does not: it is as wrong at both ends. Rows are chosen so that all
classes are among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from torch import Tensor

from nnexp import Observation, Picture, Probe, Range, probe
from nnexp.data import valid_positions
from nnexp.plotting import dots
from nnexp.probing import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AGREES, WRONG = 1e-6, 1e-2
UNEVEN = 0.5  # of a change of slope, which no even change misses by more
LARGE = 1e-4  # an epsilon for which differences themselves may be wrong
SEEN_SLOPE = 1e-9  # of an example that shows something
ROUNDING = 10 * torch.finfo(torch.float64).eps  # of a loss of 1
LEAST_ROWS, MOST_ROWS, MOST_SEEN = 16, 64, 4096
ROWS_PER_STEP = 4  # each of them with many predictions
MOST_WEIGHTS, MOST_SHOWN = 64, 16


@dataclass(frozen=True)
class Check:
    """One comparison: `weight` is the tensor with the place in it, or with the word direction."""

    tensor: str
    weight: str
    autograd: float
    differences: float
    error: float
    at_kink: bool


@probe
@dataclass(kw_only=True)
class GradientCheck(Probe):
    """Whether the gradient that is trained with is that of the loss, by moving weights a little.

    Args:
        epsilon: how far weights are moved.
        weights_per_tensor: weights of each tensor that are moved one by one; fewer in models of many tensors.
    """

    every: Annotated[int, Range(min=1)] | Literal["log", "ends"] = "ends"
    epsilon: Annotated[float, Range(gt=0)] = 1e-5
    weights_per_tensor: Annotated[int, Range(min=0)] = 4

    def __call__(self, view: View) -> Observation:
        with view.exact() as exact:
            function, checks, start = _Loss(exact), [], 0
            num_single = min(self.weights_per_tensor, MOST_WEIGHTS // len(exact.weights.names))
            for name, p in zip(exact.weights.names, exact.weights.params, strict=True):
                for weight, direction in _directions(p, num_single, view.generator):
                    checks.append(self._check(function, name, f"{name}{weight}", start, direction))
                start += p.numel()
        return _seen(checks, self.epsilon)

    def _check(self, function: _Loss, tensor: str, weight: str, start: int, direction: Tensor) -> Check:
        own = slice(start, start + len(direction))
        shift = self.epsilon * direction
        with function.moved(own, shift):
            above = function.value()
        with function.moved(own, -shift):
            below = function.value()
        slope, difference = float(function.gradient[own] @ direction), (above - below) / (2 * self.epsilon)
        gap = abs(slope - difference)
        floor = ROUNDING * max(1.0, abs(above)) / (self.epsilon * AGREES)
        error = gap / max(abs(slope) + abs(difference), floor)
        at_kink = error >= AGREES and gap <= function.jump(own, shift, direction)
        return Check(tensor, weight, slope, difference, error, at_kink)


class _Loss:
    """The loss of some rows as a function of the weights.

    Attributes:
        gradient: (P,) where the weights are.
    """

    def __init__(self, view: View) -> None:
        self.view, self.rows = view, _rows(view)
        self._before = view.weights.vector.detach().clone()
        self.gradient = self._gradient()

    def _loss(self) -> Tensor:
        x, y, *lengths = self.rows
        return self.view.loss(self.view.module(x, *lengths), y, *lengths)

    @torch.no_grad()
    def value(self) -> float:
        return self._loss().item()

    def _gradient(self) -> Tensor:
        with torch.enable_grad():
            return torch.cat([part.reshape(-1) for part in self.view.weights.gradient(self._loss())])

    @contextmanager
    def moved(self, own: slice, shift: Tensor) -> Iterator[None]:
        """In the block, a part of the weights stands elsewhere."""
        vector = self.view.weights.vector
        with torch.no_grad():
            vector[own] += shift
        yield
        with torch.no_grad():
            vector.copy_(self._before)

    def jump(self, own: slice, shift: Tensor, direction: Tensor) -> float:
        """By how much the slope changes from here to both ends, as autograd has it; 0 where it only bends: then it
        changes by as much at one end as at the other, and by half of it half way.
        """
        changes = [self._change(own, factor * shift, direction) for factor in (1.0, -1.0, 0.5, -0.5)]
        up, down, half_up, half_down = changes
        whole, half = abs(up) + abs(down), abs(half_up) + abs(half_down)
        is_even = abs(half - whole / 2) < UNEVEN * whole and abs(up + down) < UNEVEN * whole
        return 0.0 if is_even else whole

    def _change(self, own: slice, shift: Tensor, direction: Tensor) -> float:
        with self.moved(own, shift):
            return float((self._gradient() - self.gradient)[own] @ direction)


def _directions(p: Tensor, num_single: int, generator: torch.Generator) -> list[tuple[str, Tensor]]:
    """Vectors of length 1, by what they are: the places of some weights, and a random mix of all."""
    size = p.numel()
    found = []
    for place in torch.randperm(size, generator=generator)[:num_single].tolist():
        one = torch.zeros(size)
        one[place] = 1
        found.append((str(_place(place, p.shape)), one))
    mix = torch.randn(size, generator=generator)
    return [*found, (" in a random direction", mix / torch.linalg.vector_norm(mix))] if size > 1 else found


def _place(flat: int, shape: Sequence[int]) -> list[int]:
    """The place in a tensor of the number at a place in its flat form."""
    places: list[int] = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        places.insert(0, rest)
    return places


def _rows(view: View) -> tuple[Tensor, ...]:
    """Training rows in 64 bits, evenly spaced over the split, or of classes chosen in turn."""
    split = view.dataset.train
    seen = torch.linspace(0, len(split[0]) - 1, min(len(split[0]), MOST_SEEN)).round().long()
    number = ROWS_PER_STEP if view.data.per_step else max(LEAST_ROWS, min(2 * view.data.outputs, MOST_ROWS))
    number = min(number, len(seen))
    if view.data.target == "class":
        chosen = _of_all_classes(split[1][seen].long(), view, number, *(t[seen] for t in split[2:]))
    else:
        chosen = torch.linspace(0, len(seen) - 1, number).round().long()
    rows = (t[seen[chosen]].to(view.device) for t in split)
    return tuple(t.to(torch.float64) if t.is_floating_point() else t for t in rows)


def _of_all_classes(y: Tensor, view: View, number: int, *lengths: Tensor) -> Tensor:
    """(number,): rows of y (N,) or (N, T), each time the one with most of the classes that came least so far."""
    valid = torch.ones(y.shape)
    if lengths and view.data.per_step:
        valid = valid_positions(lengths[0], y.shape[1]).to(valid.dtype)
    has = torch.zeros(len(y), view.data.outputs)
    has.scatter_reduce_(1, y.view(len(y), -1), valid.view(len(y), -1), "amax")
    count, left, chosen = torch.zeros(view.data.outputs), torch.zeros(len(y)), []
    for _ in range(number):
        row = int((has @ 0.1**count + left).argmax())
        chosen.append(row)
        count += has[row]
        left[row] = -math.inf
    return torch.tensor(chosen)


def _seen(checks: list[Check], epsilon: float) -> Observation:
    counted = [check for check in checks if not check.at_kink]
    scalars: dict[str, float] = {"at_kinks": float(len(checks) - len(counted))}
    by_tensor: dict[str, list[float]] = {check.tensor: [] for check in checks}
    for check in counted:
        by_tensor[check.tensor].append(check.error)
    if counted:
        errors = [check.error for check in counted]
        scalars |= {"largest_error": max(errors), "median_error": median(errors)}
    scalars |= {f"error/{name}": max(errors) for name, errors in by_tensor.items() if errors}
    most = sorted(by_tensor, key=lambda name: -max(by_tensor[name], default=0))[:MOST_SHOWN]
    shown = {name if own else f"{name} (kink)": own for name, own in by_tensor.items() if name in most}
    title = "Gradient against finite differences"
    title += f", worst {MOST_SHOWN} of {len(by_tensor)} tensors" if len(by_tensor) > MOST_SHOWN else ""
    picture = Picture(title, {"errors": shown}, _draw, (6.0, 1.5 + 0.24 * len(shown)))
    verdict = _verdict(checks, counted, epsilon)
    is_wrong = max((check.error for check in counted), default=0.0) >= WRONG
    return Observation(
        scalars, {"errors": picture}, {"verdict": verdict}, warning=verdict.replace("\n\n", " ") if is_wrong else ""
    )


def _verdict(checks: list[Check], counted: list[Check], epsilon: float) -> str:
    if not counted:
        return f"Nothing can be said: the loss has a kink at all {len(checks)} comparisons."
    worst = max(counted, key=lambda check: check.error)
    if worst.error < AGREES:
        word = "The gradient **agrees** with finite differences"
    elif worst.error < WRONG:
        word = "The gradient agrees **less well** than rounding explains, as where the loss bends sharply"
    else:
        word = "The gradient is **wrong**" + (f", or epsilon, {epsilon:g}, is too large" if epsilon > LARGE else "")
    shown = max(counted, key=lambda check: (abs(check.autograd) > SEEN_SLOPE, check.error))
    values = f"For example `{shown.weight}`: {shown.autograd:.9g} by autograd, {shown.differences:.9g} by differences"
    kinks = f" {len(checks) - len(counted)} more lie at kinks of the loss." if len(counted) < len(checks) else ""
    return f"{word}: the largest relative error of {len(counted)} is {worst.error:.2g}.\n\n{values}.{kinks}"


def _draw(figure: Figure, numbers: dict[str, Any]) -> None:
    errors = numbers["errors"]
    logs = [[math.log10(max(error, 1e-16)) for error in own if error is not None] for own in errors.values()]
    series = {
        "largest": [max(own, default=None) for own in logs],
        "median": [median(own) if own else None for own in logs],
    }
    axes = figure.subplots()
    dots(axes, list(errors), series, f"relative error (log10); below {math.log10(AGREES):.0f} it agrees")
    axes.axvline(math.log10(AGREES), color="0.3", linestyle=":")
