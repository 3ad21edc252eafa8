"""What a plugin and the harness say to each other: data specifications, parameter marks, the contracts.

Nothing here imports torch at run time, so that reading schemas and composing jobs stay fast.
Shapes: B rows of a batch, T positions of a sequence, C channels, F features, P weights of a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from torch import Tensor

    from nnexp.seen import Seen
    from nnexp.view import View

Class = TypeVar("Class", bound=type)


@dataclass(frozen=True)
class Range:
    """Bounds of a number, for `Annotated[int, Range(min=1)]`.

    Args:
        min: the smallest value allowed.
        max: the largest value allowed.
        above: a bound that the value must exceed.
        below: a bound that the value must stay under.
    """

    min: float | None = None
    max: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        return not (
            (self.min is not None and not value >= self.min)
            or (self.max is not None and not value <= self.max)
            or (self.above is not None and not value > self.above)
            or (self.below is not None and not value < self.below)
        )

    def __str__(self) -> str:
        bounds = ((">=", self.min), (">", self.above), ("<=", self.max), ("<", self.below))
        return " and ".join(f"{sign} {bound}" for sign, bound in bounds if bound is not None)


class PerLane:
    """Marks a parameter that only changes numbers, never shapes or code: `Annotated[float, PerLane]`.

    It may differ between the lanes of a cohort, which are trained as one stack where their forward pass, run once for
    all of them, gives each what its own module would. So a value that `forward` reads must be a buffer of the module,
    `self.register_buffer("gain", torch.tensor(gain))`; kept in any other way, its lanes are trained one by one.
    """


class File:
    """Marks a parameter that names a file whose content, not whose path, is part of the job: `Annotated[str, File]`.

    A file that is renamed leaves a run what it was; one that is written anew makes another run.
    """


@dataclass(frozen=True)
class DataSpec:
    """What a dataset says of its tensors, and all that a model needs to know of them.

    Args:
        kind: "vector" rows are (F,), "sequence" (T, C), "tokens" (T,) integers, "image" (C, H, W).
        shape: the shape of one input, without the batch.
        target: "class" (integer labels, cross-entropy) or "value" (real numbers, mean squared error).
        outputs: numbers that the model gives per prediction: the classes, or the size of the value.
        vocab: number of different tokens, for kind "tokens".
        per_step: one prediction per position, not one per row.
    """

    kind: Literal["vector", "sequence", "tokens", "image"]
    shape: tuple[int, ...]
    target: Literal["class", "value"] = "class"
    outputs: int = 2
    vocab: int = 0
    per_step: bool = False

    @property
    def max_length(self) -> int:
        """Positions of the longest sequence that `nnexp.views.as_sequence` makes of one input."""
        return self.shape[1] if self.kind == "image" else self.shape[0]

    @property
    def channels(self) -> int:
        """Numbers per position of that sequence."""
        return self.vocab if self.kind == "tokens" else math.prod(self.shape) // self.max_length

    @property
    def features(self) -> int:
        """Numbers in the flat vector that `nnexp.views.as_vector` makes of one input."""
        return self.max_length * self.channels


class Dataset(Protocol):
    """Made with a generator of its own, seeded by `dataset.seed`.

    Each split is `(x, y)` or `(x, y, lengths)`: x (N, *spec.shape), y (N,) or (N, T) where `spec.per_step`.
    Tokens and labels may be of any integer type, and rows may be views that overlap, such as windows of a text.
    Labels are classes at padded positions too, where they do not count.
    """

    spec: DataSpec
    train: tuple[Tensor, ...]
    val: tuple[Tensor, ...]
    test: tuple[Tensor, ...]


class Model(Protocol):
    """An `nn.Module` made with the data's specification: forward only, no loss and no optimiser.

    It may draw from the global generators, which it finds seeded. What changes while it trains must be a parameter or
    a buffer, for these alone are in a checkpoint. Models are stacked by `torch.func.vmap`, traced once: where `forward`
    branches on the numbers in tensors, its lanes are trained one by one. A module with an attribute `fused` takes,
    where that is False, code that works under vmap.
    """

    def __call__(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """x (B, *data.shape), lengths (B,) -> (B, outputs), or (B, T, outputs) where `data.per_step`."""


@dataclass(kw_only=True)
class Trainer:
    """How a model is trained: the base of every trainer plugin.

    A trainer gives `optimizer`. One that also gives `init` and `update`, as `PureTrainer` writes them out, is
    trained through these: they are faster on small models, and can train many models as one.

    Args:
        max_steps: number of updates; 0 evaluates the untrained model.
        batch_size: rows in a batch, or `full` for all training rows at every step.
        lr: learning rate.
        weight_decay: L2 penalty, added to the gradient as `weight_decay * weight`.
        clip_norm: largest norm of the whole gradient; null does not clip.
        eval_every: updates between evaluations on the validation split.
        patience: evaluations without a lower validation loss after which training ends; null trains to max_steps.
        warmup_steps: updates over which the learning rate rises to lr, in equal steps.
        schedule: constant keeps it there, cosine lets it fall to almost zero at max_steps.
    """

    max_steps: Annotated[int, Range(min=0)] = 4000
    batch_size: Annotated[int, Range(min=1)] | Literal["full"] = 32
    lr: Annotated[float, Range(above=0), PerLane] = 0.01
    weight_decay: Annotated[float, Range(min=0), PerLane] = 0.0
    clip_norm: Annotated[float, Range(above=0), PerLane] | None = None
    eval_every: Annotated[int, Range(min=1)] = 100
    patience: Annotated[int, Range(min=1)] | None = None
    warmup_steps: Annotated[int, Range(min=0)] = 0
    schedule: Literal["constant", "cosine"] = "constant"

    def lr_factor(self, step: int) -> float:
        """What lr is multiplied by at an update, counted from 1 (cosine: Loshchilov & Hutter, arXiv:1608.03983)."""
        if step <= self.warmup_steps:
            return step / self.warmup_steps
        if self.schedule == "constant":
            return 1.0
        done = (step - 1 - self.warmup_steps) / (self.max_steps - self.warmup_steps)
        return 0.5 + 0.5 * math.cos(math.pi * done)

    def optimizer(self, params: Iterable[Tensor]) -> torch.optim.Optimizer:
        """The same update as an optimiser of torch."""
        raise TypeError(f"{type(self).__name__} must define optimizer(params)")


class PureTrainer(Protocol):
    """The update as pure functions of tensors.

    weights and grads are (P,) for one model or (K, P) for K lanes; lr and weight_decay are then numbers or
    tensors (K, 1). `step` counts updates from 1. Nothing is changed in place.
    """

    def init(self, weights: Tensor) -> dict[str, Tensor]:
        """The optimiser's state before the first update."""

    def update(
        self,
        weights: Tensor,
        grads: Tensor,
        state: dict[str, Tensor],
        step: int,
        *,
        lr: float | Tensor,
        weight_decay: float | Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Weights and state after one update."""


@dataclass(kw_only=True)
class Probe:
    """What looks into a model while it trains: the base of every probe plugin.

    It is made once for a run, and called at its steps with a `nnexp.view.View` of one lane: its own copy of the model
    and of all that training goes on from, so that nothing it does is felt by training.

        @probe
        @dataclass(kw_only=True)
        class Weight(Probe):
            def __call__(self, view: View) -> Seen:
                norm = view.weights.vector.norm().item()
                return Seen({"norm": norm}, {"norm": Picture("Norm of the weights", {"norm": [norm]}, draw)})

        def draw(figure, numbers):
            nnexp.charts.dots(figure.subplots(), ["all"], {"norm": numbers["norm"]}, "norm")

    Args:
        every: updates between two looks; log looks at steps 0, 10, 100, 1000 and so on, ends at the first and the
            last alone. All look at the last step. Of each picture at most ten are drawn.
    """

    every: Annotated[int, Range(min=1)] | Literal["log", "ends"] = "log"

    def __call__(self, view: View) -> Seen | None:
        """What there is to see; None where this probe has nothing to say of such a model or such data, and need not be
        asked again.
        """
        raise TypeError(f"{type(self).__name__} must define __call__(view)")


def _mark(kind: str) -> Callable[[Class], Class]:
    def decorate(cls: Class) -> Class:
        cls.nnexp_kind = kind  # type: ignore[attr-defined]  # the registry checks it against the folder
        return cls

    return decorate


dataset = _mark("dataset")
model = _mark("model")
trainer = _mark("trainer")
probe = _mark("probe")
