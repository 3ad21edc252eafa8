"""Base class and contract of trainer plugins.

Does not import torch at run time, because configurations are composed without torch. Shapes: P weights of a model,
K lanes of a stack.
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

LANE_VALUES = ("lr", "weight_decay", "clip_norm")  # a stack has one of each for each lane


@dataclass(kw_only=True)
class Trainer:
    """Base class of trainer plugins: number of updates, batches, learning rate, clipping, early stopping.

    A trainer defines `optimizer`. If it also defines `init` and `update` of `PureTrainer`, these are used instead: they
    are faster on small models, and only they can train the lanes of a stack.

        @trainer
        @dataclass(kw_only=True)
        class SGD(Trainer):
            def optimizer(self, params):
                return torch.optim.SGD(params, lr=self.lr, weight_decay=self.weight_decay)

    Args:
        max_steps: number of updates; 0 evaluates the untrained model.
        batch_size: rows in a batch, or `full` for all training rows at every step.
        lr: learning rate.
        weight_decay: L2 penalty, added to the gradient as `weight_decay * weight`.
        clip_norm: largest norm of the whole gradient; null does not clip.
        eval_every: updates between evaluations on the validation split.
        patience: stop after this many evaluations without a lower validation loss; null trains to max_steps.
        warmup_steps: updates over which the learning rate rises linearly to lr.
        schedule: after warm-up, constant keeps the learning rate, cosine decays it to almost zero at max_steps.
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
        """Return the factor that multiplies lr at update `step`, counted from 1; override it for another schedule."""
        return lr_factor(step, schedule=self.schedule, warmup_steps=self.warmup_steps, max_steps=self.max_steps)

    def optimizer(self, params: Iterable[Tensor]) -> torch.optim.Optimizer:
        """Return a `torch.optim` optimiser that makes the same updates as `update`.

        Args:
            params: the model's trainable parameters.
        """
        raise TypeError(f"{type(self).__name__} must define optimizer(params)")


class PureTrainer(Protocol):
    """The optimiser step as pure functions of tensors, for one model (P,) or for K lanes (K, P)."""

    def init(self, weights: Tensor) -> dict[str, Tensor]:
        """Return the optimiser's state before the first update, each tensor of the shape of `weights` (P,)."""

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
        """Return weights and optimiser state after one update, without changing the arguments.

        Args:
            weights: (P,), or (K, P).
            grads: of the shape of `weights`, already clipped.
            state: as returned by `init` or the last `update`.
            step: the update, counted from 1.
            lr: learning rate; a tensor (K, 1) for K lanes.
            weight_decay: L2 penalty; a tensor (K, 1) for K lanes, or 0.
        """
