"""How a model is trained: the base of every trainer plugin.

Imports no torch at run time, for it is read where jobs are composed. P weights of a model, K lanes of a stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from nnexp.registry import PerLane, Range
from nnexp.training.lr_schedule import lr_factor

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from torch import Tensor


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
    lr: Annotated[float, Range(gt=0), PerLane] = 0.01
    weight_decay: Annotated[float, Range(min=0), PerLane] = 0.0
    clip_norm: Annotated[float, Range(gt=0), PerLane] | None = None
    eval_every: Annotated[int, Range(min=1)] = 100
    patience: Annotated[int, Range(min=1)] | None = None
    warmup_steps: Annotated[int, Range(min=0)] = 0
    schedule: Literal["constant", "cosine"] = "constant"

    def lr_factor(self, step: int) -> float:
        """Return the factor of lr at an update, counted from 1; override it for another schedule."""
        return lr_factor(step, schedule=self.schedule, warmup_steps=self.warmup_steps, max_steps=self.max_steps)

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
