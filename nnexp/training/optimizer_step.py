"""Optimiser steps, through the trainer's pure functions or through a `torch.optim` optimiser.

Shapes: P weights of a model, K lanes of a stack.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from nnexp.rundir import to_python_numbers
from nnexp.training.flat_weights import FlatWeights
from nnexp.training.trainer_base import PureTrainer, Trainer

State = dict[str, Tensor]


def clip_gradient(grads: Tensor, norm: Tensor, clip_norm: float | Tensor | None) -> Tensor:
    """Return a flat gradient scaled to a norm of at most `clip_norm`, as `torch.nn.utils.clip_grad_norm_` does.

    Args:
        grads: (P,), or (K, P).
        norm: its norm (), or (K, 1).
        clip_norm: the largest norm; (K, 1) for lanes with one each. None returns `grads`.
    """
    if clip_norm is None:
        return grads
    return grads * (clip_norm / (norm + 1e-6)).clamp(max=1.0)


@torch.no_grad()
def _two_trial_updates(
    update: PureUpdate | StackUpdate,
    weights: Tensor,
    grads: Tensor,
    state: State,
    step: int,
    clip_norm: float | Tensor | None,
) -> Tensor:
    for number, g in enumerate((grads, 0.5 * grads), step):
        clipped = clip_gradient(g, torch.linalg.vector_norm(g, dim=-1, keepdim=True), clip_norm)
        weights, state = update.updated(weights, clipped, state, number)
    return weights


class PureUpdate:
    """Optimiser step of one lane through `init` and `update` of its trainer.

    Args:
        trainer: a trainer with the methods of `PureTrainer`.
        weights: the lane's weights.
    """

    def __init__(self, trainer: Trainer, weights: FlatWeights) -> None:
        self.trainer = trainer
        self.pure = cast(PureTrainer, trainer)
        self.weights = weights
        self.optimizer_state = self.pure.init(weights.vector)

    def step(self, grads: Tensor, step: int) -> None:
        """Update the weights with gradients (P,), already clipped; updates count from 1."""
        new, self.optimizer_state = self.updated(self.weights.vector, grads, self.optimizer_state, step)
        self.weights.set(new)

    def updated(self, weights: Tensor, grads: Tensor, state: State, step: int) -> tuple[Tensor, State]:
        """Return weights (P,) and optimiser state after an update, without storing them."""
        return self.pure.update(weights, grads, state, step, lr=self.lr(step), weight_decay=self.trainer.weight_decay)

    def lr(self, step: int) -> float:
        """Return the learning rate at an update, counted from 1."""
        return self.trainer.lr * self.trainer.lr_factor(step)

    def trial_update(self, grads: Tensor, step: int) -> Tensor:
        """Return the weights (P,) after two updates, with `grads` (P,) and with half of them, without storing them."""
        return _two_trial_updates(self, self.weights.vector, grads, self.optimizer_state, step, self.trainer.clip_norm)

    def state(self) -> dict[str, Any]:
        """Return the optimiser's state for a checkpoint."""
        return dict(self.optimizer_state)

    def restore(self, state: dict[str, Any]) -> None:
        """Set the optimiser's state to one returned by `state`."""
        device = self.weights.vector.device
        self.optimizer_state = {name: value.to(device) for name, value in state.items()}


class StackUpdate:
    """Optimiser step of K lanes together. Keys that `Trainer` marks `PerLane` may differ between them.

    Args:
        updates: those of the lanes, in the order of the rows of `weights`.
        weights: (K, P), changed in place by `step`.
    """

    def __init__(self, updates: Sequence[PureUpdate], weights: Tensor) -> None:
        self.pure, self.trainer, self.weights = updates[0].pure, updates[0].trainer, weights
        names = updates[0].optimizer_state
        self.state = {name: torch.stack([update.optimizer_state[name] for update in updates]) for name in names}
        trainers = [update.trainer for update in updates]
        self.base_lr = torch.tensor([[t.lr] for t in trainers], dtype=torch.float64)
        self.lr_factor, self._lr = 1.0, self._column([t.lr for t in trainers])
        decays = [t.weight_decay for t in trainers]
        self.weight_decay = self._column(decays) if any(decays) else 0.0
        norms = [math.inf if t.clip_norm is None else t.clip_norm for t in trainers]
        self.clip_norm = None if all(map(math.isinf, norms)) else self._column(norms)

    def _column(self, values: list[float]) -> Tensor:
        return self.weights.new_tensor(values).unsqueeze(1)

    @torch.no_grad()
    def step(self, grads: Tensor, norms: Tensor, step: int) -> None:
        """Clip the gradients (K, P) with norms (K,), and update the weights; updates count from 1."""
        clipped = clip_gradient(grads, norms.unsqueeze(1), self.clip_norm)
        new, self.state = self.updated(self.weights, clipped, self.state, step)
        self.weights.copy_(new)

    def updated(self, weights: Tensor, grads: Tensor, state: State, step: int) -> tuple[Tensor, State]:
        """Return weights (K, P) and optimiser state after an update, without storing them."""
        return self.pure.update(weights, grads, state, step, lr=self.lr(step), weight_decay=self.weight_decay)

    def trial_update(self, grads: Tensor, step: int) -> Tensor:
        """Return the weights (K, P) after two updates, with `grads` (K, P) and with half of them, not storing them."""
        return _two_trial_updates(self, self.weights, grads, self.state, step, self.clip_norm)

    def lr(self, step: int) -> Tensor:
        """Return the learning rates (K, 1) at an update, counted from 1."""
        factor = self.trainer.lr_factor(step)
        if factor != self.lr_factor:
            self.lr_factor, self._lr = factor, (self.base_lr * factor).to(self.weights)
        return self._lr

    def row(self, lane: int) -> dict[str, Any]:
        """Return a copy of one lane's optimiser state, each tensor (P,)."""
        return {name: value[lane].clone() for name, value in self.state.items()}


class TorchUpdate:
    """Optimiser step of one lane through the `torch.optim` optimiser of its trainer.

    Args:
        trainer: the trainer.
        weights: the lane's weights.
    """

    def __init__(self, trainer: Trainer, weights: FlatWeights) -> None:
        self.weights = weights
        self.optimizer = trainer.optimizer(weights.params)
        self.sizes = [p.numel() for p in weights.params]
        self.trainer = trainer
        self.is_scheduled = trainer.warmup_steps > 0 or trainer.schedule != "constant"
        self.lrs = [group["lr"] for group in self.optimizer.param_groups]

    def step(self, grads: Tensor, step: int) -> None:
        """Update the weights with gradients (P,), already clipped; updates count from 1."""
        for p, part in zip(self.weights.params, grads.split(self.sizes), strict=True):
            p.grad = part.view(p.shape)
        if self.is_scheduled:
            for group, lr in zip(self.optimizer.param_groups, self.lrs, strict=True):
                group["lr"] = lr * self.trainer.lr_factor(step)
        self.optimizer.step()

    def lr(self, step: int) -> float:
        """Return the learning rate of the first parameter group at an update, counted from 1."""
        if self.is_scheduled:
            return float(self.lrs[0] * self.trainer.lr_factor(step))
        return float(self.optimizer.param_groups[0]["lr"])

    def state(self) -> dict[str, Any]:
        """Return a copy of the optimiser's `state_dict`, for a checkpoint."""
        state: dict[str, Any] = to_python_numbers(copy.deepcopy(self.optimizer.state_dict()))
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Set the optimiser's state to one returned by `state`."""
        self.optimizer.load_state_dict(copy.deepcopy(state))


def make_update(trainer: Trainer, weights: FlatWeights) -> PureUpdate | TorchUpdate:
    """Return the optimiser step of a lane: through the trainer's pure functions if it has them, else its optimiser."""
    is_pure = hasattr(trainer, "init") and hasattr(trainer, "update")
    return PureUpdate(trainer, weights) if is_pure else TorchUpdate(trainer, weights)
