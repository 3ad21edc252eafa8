"""One optimiser step, through the trainer's pure functions or through an optimiser of torch."""

from __future__ import annotations

import copy
from typing import Any, cast

from torch import Tensor

from nnexp.checkpoint import plain
from nnexp.spec import PureTrainer, Trainer
from nnexp.weights import FlatWeights


def clip(grads: Tensor, norm: Tensor, clip_norm: float | None) -> Tensor:
    """Scale a flat gradient to at most `clip_norm`, as `torch.nn.utils.clip_grad_norm_` does."""
    if clip_norm is None:
        return grads
    return grads * (clip_norm / (norm + 1e-6)).clamp(max=1.0)


class PureUpdate:
    """Through `init` and `update` of the trainer."""

    def __init__(self, trainer: Trainer, weights: FlatWeights) -> None:
        self.trainer = trainer
        self.pure = cast(PureTrainer, trainer)
        self.weights = weights
        self.optimizer_state = self.pure.init(weights.vector)

    def step(self, grads: Tensor, step: int) -> None:
        new, self.optimizer_state = self.pure.update(
            self.weights.vector,
            grads,
            self.optimizer_state,
            step,
            lr=self.trainer.lr,
            weight_decay=self.trainer.weight_decay,
        )
        self.weights.set(new)

    @property
    def lr(self) -> float:
        return self.trainer.lr

    def state(self) -> dict[str, Any]:
        return dict(self.optimizer_state)

    def restore(self, state: dict[str, Any]) -> None:
        device = self.weights.vector.device
        self.optimizer_state = {name: value.to(device) for name, value in state.items()}


class TorchUpdate:
    """Through `optimizer(params)` of the trainer."""

    def __init__(self, trainer: Trainer, weights: FlatWeights) -> None:
        self.weights = weights
        self.optimizer = trainer.optimizer(weights.params)
        self.sizes = [p.numel() for p in weights.params]

    def step(self, grads: Tensor, step: int) -> None:
        for p, part in zip(self.weights.params, grads.split(self.sizes), strict=True):
            p.grad = part.view(p.shape)
        self.optimizer.step()

    @property
    def lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = plain(copy.deepcopy(self.optimizer.state_dict()))
        return state

    def restore(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(copy.deepcopy(state))


def make_update(trainer: Trainer, weights: FlatWeights) -> PureUpdate | TorchUpdate:
    """The trainer's pure functions where it has them, else its optimiser."""
    is_pure = hasattr(trainer, "init") and hasattr(trainer, "update")
    return PureUpdate(trainer, weights) if is_pure else TorchUpdate(trainer, weights)
