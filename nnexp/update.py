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
            lr=self.lr(step),
            weight_decay=self.trainer.weight_decay,
        )
        self.weights.set(new)

    def lr(self, step: int) -> float:
        return self.trainer.lr * self.trainer.lr_factor(step)

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
        self.trainer = trainer
        self.is_scheduled = trainer.warmup_steps > 0 or trainer.schedule != "constant"
        self.lrs = [group["lr"] for group in self.optimizer.param_groups]

    def step(self, grads: Tensor, step: int) -> None:
        for p, part in zip(self.weights.params, grads.split(self.sizes), strict=True):
            p.grad = part.view(p.shape)
        if self.is_scheduled:
            for group, lr in zip(self.optimizer.param_groups, self.lrs, strict=True):
                group["lr"] = lr * self.trainer.lr_factor(step)
        self.optimizer.step()

    def lr(self, step: int) -> float:
        if self.is_scheduled:
            return float(self.lrs[0] * self.trainer.lr_factor(step))
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
