"""Gradient of autograd compared with central finite differences in 64 bits, after Karpathy et al. (2015, CS231n,
"Gradient checks").

    n = (L(w + e v) - L(w - e v)) / 2e,  a = g v,  error = |a - n| / max(|a| + |n|, floor)

v is one weight, or a random direction within one weight tensor, which reveals an error in any of its weights. Departs
from the source in three points. The noise of the loss is measured first, from fourth differences on a line, because a
model may round its own numbers to 32 bits: e is then larger, and a difference of a few noises / e tells nothing. Where
a and n differ, smaller steps are tried, within which no relu of a deep net may have its kink. And comparisons at a kink
of the weights themselves are excluded: there the slope a changes between w - e v and w + e v by more than a and n
differ, while a wrong gradient is equally wrong at both ends. Rows are chosen to cover all classes.
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
MIN_SLOPE = 1e-9  # of a comparison that is worth quoting
ROUNDING = torch.finfo(torch.float64).eps  # smallest noise of a loss of 1
NOISES = 10  # a difference of so many noises of the loss tells nothing
SMALLER = (1.0, 1e-1, 1e-2)  # steps, as parts of the first
NUM_LINES, NUM_POINTS = 5, 9  # on which the noise is measured
MIN_ROWS, MAX_ROWS, MAX_CANDIDATES = 16, 64, 4096
ROWS_PER_STEP = 4  # rows of data with a target at each position
MAX_WEIGHTS, MAX_SHOWN = 64, 16


@dataclass(frozen=True)
class Check:
    """One comparison along a direction.

    Args:
        tensor: name of the weight tensor.
        weight: that name with the index of one weight, or with the words `in a random direction`.
        autograd: slope from autograd.
        differences: slope from finite differences.
        error: relative error.
        at_kink: whether the loss has a kink between the two evaluations.
        in_noise: whether both slopes differ by no more than the noise of the loss explains, and too much to agree.
    """

    tensor: str
    weight: str
    autograd: float
    differences: float
    error: float
    at_kink: bool
    in_noise: bool


@probe
@dataclass(kw_only=True)
class GradientCheck(Probe):
    """Gradient of the training loss compared with finite differences: relative errors, and a verdict.

    Args:
        epsilon: first step of the finite differences; a tenth and a hundredth follow where they differ from autograd.
        weights_per_tensor: single weights checked in each tensor; fewer in models with many tensors.
    """

    every: Annotated[int, Range(min=1)] | Literal["log", "ends"] = "ends"
    epsilon: Annotated[float, Range(gt=0)] = 1e-5
    weights_per_tensor: Annotated[int, Range(min=0)] = 4

    def __call__(self, view: View) -> Observation:
        """Return relative errors by tensor, and a verdict in words."""
        with view.exact() as exact:
            function, checks, start = _Loss(exact), [], 0
            values = function.value(), function.value()
            if values[0] != values[1]:
                return _no_answer(*values)
            noise = function.noise(self.epsilon, view.generator)
            step = max(self.epsilon, noise ** (1 / 3)) if noise > 100 * ROUNDING else self.epsilon
            num_single = min(self.weights_per_tensor, MAX_WEIGHTS // len(exact.weights.names))
            for name, p in zip(exact.weights.names, exact.weights.params, strict=True):
                for weight, direction in _directions(p, num_single, view.generator):
                    part = slice(start, start + p.numel())
                    checks.append(_check(function, name, f"{name}{weight}", part, direction, step, noise))
                start += p.numel()
        return _observation(checks, noise)


def _check(
    function: _Loss, tensor: str, weight: str, part: slice, direction: Tensor, step: float, noise: float
) -> Check:
    """Compare along a direction, with the step at which both slopes agree best."""
    slope, found = float(function.gradient[part] @ direction), []
    floor = NOISES * function.rounding / (step * AGREES)
    for factor in SMALLER:
        e = factor * step
        difference = function.difference(part, e * direction, e)
        gap = abs(slope - difference)
        found.append((gap / max(abs(slope) + abs(difference), floor), gap, difference, e))
        if found[-1][0] < AGREES:
            break
    best = min(error for error, *_ in found)
    error, gap, difference, e = next(each for each in found if each[0] <= 2 * best)  # larger steps have less noise
    at_kink = error >= AGREES and found[-1][1] <= function.jump(part, found[-1][3] * direction, direction)
    in_noise = error >= AGREES and not at_kink and gap <= NOISES * noise / e
    return Check(tensor, weight, slope, difference, error, at_kink, in_noise)


class _Loss:
    """The loss of some rows as a function of the weights.

    Attributes:
        gradient: (P,) at the model's own weights.
        rounding: of the loss in 64 bits.
    """

    def __init__(self, view: View) -> None:
        self.view, self.rows = view, _rows(view)
        self._before = view.weights.vector.detach().clone()
        self.gradient = self._gradient()
        self.rounding = ROUNDING * max(1.0, abs(self.value()))

    def _loss(self) -> Tensor:
        x, y, *lengths = self.rows
        return self.view.loss(self.view.module(x.clone(), *lengths), y, *lengths)  # it may write into its input

    @torch.no_grad()
    def value(self) -> float:
        """Return the loss at the current weights."""
        return self._loss().item()

    def _gradient(self) -> Tensor:
        with torch.enable_grad():
            return torch.cat([grad.reshape(-1) for grad in self.view.weights.gradient(self._loss())])

    @contextmanager
    def shifted(self, part: slice, shift: Tensor) -> Iterator[None]:
        """Add a shift to a part of the weights, within the block."""
        vector = self.view.weights.vector
        with torch.no_grad():
            vector[part] += shift
        yield
        with torch.no_grad():
            vector.copy_(self._before)

    def difference(self, part: slice, shift: Tensor, step: float) -> float:
        """Return the slope from central finite differences."""
        with self.shifted(part, shift):
            above = self.value()
        with self.shifted(part, -shift):
            return (above - self.value()) / (2 * step)

    def noise(self, step: float, generator: torch.Generator) -> float:
        """Return the typical rounding error of the loss, from its fourth differences on lines beside the weights.

        They vanish where the loss is smooth. The median over lines leaves out those that cross a kink.
        """
        everything, found = slice(0, len(self.gradient)), []
        for _ in range(NUM_LINES):
            line = torch.randn(len(self.gradient), generator=generator)
            line *= step / torch.linalg.vector_norm(line)
            values = []
            for number in range(1, NUM_POINTS + 1):
                with self.shifted(everything, number * line):
                    values.append(self.value())
            fourth = torch.tensor(values).diff(n=4)
            found.append(float((fourth.square().mean() / 70).sqrt()))  # 70 = 1 + 16 + 36 + 16 + 1
        return max(median(found), self.rounding)

    def jump(self, part: slice, shift: Tensor, direction: Tensor) -> float:
        """Return the change of autograd's slope from the weights to both ends."""
        return sum(abs(self._change(part, sign * shift, direction)) for sign in (1.0, -1.0))

    def _change(self, part: slice, shift: Tensor, direction: Tensor) -> float:
        with self.shifted(part, shift):
            return float((self._gradient() - self.gradient)[part] @ direction)


def _directions(p: Tensor, num_single: int, generator: torch.Generator) -> list[tuple[str, Tensor]]:
    """Return named unit vectors: along some single weights, and in a random direction of the whole tensor."""
    size = p.numel()
    found = []
    for place in torch.randperm(size, generator=generator)[:num_single].tolist():
        one = torch.zeros(size)
        one[place] = 1
        found.append((str(_place(place, p.shape)), one))
    mix = torch.randn(size, generator=generator)
    return [*found, (" in a random direction", mix / torch.linalg.vector_norm(mix))] if size > 1 else found


def _place(flat: int, shape: Sequence[int]) -> list[int]:
    """Return the index in a tensor of a given shape, for an index in its flattened form."""
    places: list[int] = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        places.insert(0, rest)
    return places


def _rows(view: View) -> tuple[Tensor, ...]:
    """Return training rows in 64 bits: of all classes, or evenly spaced for regression."""
    split = view.dataset.train
    candidates = torch.linspace(0, len(split[0]) - 1, min(len(split[0]), MAX_CANDIDATES)).round().long()
    number = ROWS_PER_STEP if view.data.per_step else max(MIN_ROWS, min(2 * view.data.outputs, MAX_ROWS))
    number = min(number, len(candidates))
    if view.data.target == "class":
        chosen = _of_all_classes(split[1][candidates].long(), view, number, *(t[candidates] for t in split[2:]))
    else:
        chosen = torch.linspace(0, len(candidates) - 1, number).round().long()
    rows = (t[candidates[chosen]].to(view.device) for t in split)
    return tuple(t.to(torch.float64) if t.is_floating_point() else t for t in rows)


def _of_all_classes(y: Tensor, view: View, number: int, *lengths: Tensor) -> Tensor:
    """Return (number,) rows of y (N,) or (N, T), chosen greedily: each has most of the classes that are rare so far."""
    valid = torch.ones(y.shape)
    if lengths and view.data.per_step:
        valid = valid_positions(lengths[0], y.shape[1]).to(valid.dtype)
    has = torch.zeros(len(y), view.data.outputs)
    has.scatter_reduce_(1, y.view(len(y), -1), valid.view(len(y), -1), "amax")
    count, penalty, chosen = torch.zeros(view.data.outputs), torch.zeros(len(y)), []
    for _ in range(number):
        row = int((has @ 0.1**count + penalty).argmax())
        chosen.append(row)
        count += has[row]
        penalty[row] = -math.inf
    return torch.tensor(chosen)


def _no_answer(one: float, other: float) -> Observation:
    verdict = f"No verdict: asked twice, the model gives other losses, {one:.9g} and {other:.9g}."
    return Observation(texts={"verdict": verdict}, warning=verdict)


def _observation(checks: list[Check], noise: float) -> Observation:
    counted = [check for check in checks if not check.at_kink and not check.in_noise]
    scalars = {
        "at_kinks": float(sum(check.at_kink for check in checks)),
        "in_noise": float(sum(check.in_noise for check in checks)),
    }
    by_tensor: dict[str, list[float]] = {check.tensor: [] for check in checks}
    for check in counted:
        by_tensor[check.tensor].append(check.error)
    if counted:
        errors = [check.error for check in counted]
        scalars |= {"largest_error": max(errors), "median_error": median(errors)}
    scalars |= {f"error/{name}": max(errors) for name, errors in by_tensor.items() if errors}
    worst = sorted(by_tensor, key=lambda name: -max(by_tensor[name], default=0))[:MAX_SHOWN]
    shown = {name if each else f"{name} (not told)": each for name, each in by_tensor.items() if name in worst}
    title = "Gradient against finite differences"
    title += f", worst {MAX_SHOWN} of {len(by_tensor)} tensors" if len(by_tensor) > MAX_SHOWN else ""
    picture = Picture(title, {"errors": shown}, _draw, (6.0, 1.5 + 0.24 * len(shown)))
    verdict = _verdict(checks, counted, noise)
    is_wrong = max((check.error for check in counted), default=0.0) >= WRONG
    return Observation(
        scalars, {"errors": picture}, {"verdict": verdict}, warning=verdict.replace("\n\n", " ") if is_wrong else ""
    )


def _verdict(checks: list[Check], counted: list[Check], noise: float) -> str:
    """Return the verdict and an example in Markdown."""
    kinks, noisy = sum(check.at_kink for check in checks), sum(check.in_noise for check in checks)
    others = [f"{kinks} lie at kinks of the loss"] if kinks else []
    others += [f"{noisy} differ by no more than the noise of the loss, {noise:.2g}, explains"] if noisy else []
    more = f" Of {len(checks)} comparisons, {' and '.join(others)}." if others else ""
    if not counted:
        return f"Cannot tell.{more}"
    worst = max(counted, key=lambda check: check.error)
    if worst.error < AGREES:
        word = "The gradient **agrees** with finite differences"
    elif worst.error < WRONG:
        word = "The gradient agrees **less well** than rounding explains, as it does where the loss is strongly curved"
    else:
        word = "The gradient is **wrong**"
    shown = max(counted, key=lambda check: (abs(check.autograd) > MIN_SLOPE, check.error))
    slopes = f"{shown.autograd:.9g} by autograd, {shown.differences:.9g} by finite differences"
    example = f"For example `{shown.weight}`: {slopes}."
    return f"{word}: the largest relative error of {len(counted)} is {worst.error:.2g}.\n\n{example}{more}"


def _draw(figure: Figure, numbers: dict[str, Any]) -> None:
    errors = numbers["errors"]
    logs = [[math.log10(max(error, 1e-16)) for error in each if error is not None] for each in errors.values()]
    series = {
        "largest": [max(each, default=None) for each in logs],
        "median": [median(each) if each else None for each in logs],
    }
    axes = figure.subplots()
    dots(axes, list(errors), series, f"relative error (log10); agrees below {math.log10(AGREES):.0f}")
    axes.axvline(math.log10(AGREES), color="0.3", linestyle=":")
