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

from nnexp.base import NnexpError
from nnexp.rundir import to_python_numbers
from nnexp.training.flat_weights import FlatWeights
from nnexp.training.learning_rate import LearningRate
from nnexp.training.norms import scaled_norm
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
def _trial_updates(
    update: PureUpdate | StackUpdate,
    weights: Tensor,
    grads: Tensor,
    state: State,
    step: int,
    last: int,
    clip_norm: float | Tensor | None,
) -> Tensor:
    """Return the weights after updates `step`, the next one and `last`, with a gradient that is halved each time."""
    for number, g in ((step, grads), (step + 1, 0.5 * grads), (max(step + 2, last), 0.25 * grads)):
        clipped = clip_gradient(g, scaled_norm(g, keepdim=True), clip_norm)
        weights, state = update.updated(weights, clipped, state, number)
    return weights


class PureUpdate:
    """Optimiser step of one lane through `init` and `update` of its trainer.

    Args:
        trainer: a trainer with the methods of `PureTrainer`.
        weights: the lane's weights.
    """

    def __init__(self, trainer: Trainer, weights: FlatWeights) -> None:
        self.trainer, self.rate = trainer, LearningRate(trainer)
        self.pure = cast(PureTrainer, trainer)
        self.weights = weights
        self.optimizer_state = self.pure.init(weights.vector)
        self._is_checked = False

    def step(self, grads: Tensor, step: int) -> None:
        """Update the weights with gradients (P,), already clipped; updates count from 1."""
        new, self.optimizer_state = self.updated(self.weights.vector, grads, self.optimizer_state, step)
        self.weights.set(new)

    def updated(self, weights: Tensor, grads: Tensor, state: State, step: int) -> tuple[Tensor, State]:
        """Return weights (P,) and optimiser state after an update, without storing them.

        Raises NnexpError where the trainer returns weights of another shape or, at its first update, has changed an
        argument: a snapshot of a lane keeps the tensors that an update was given.
        """
        update = self.pure.update if self._is_checked else self._checked_update
        new, after = update(weights, grads, state, step, lr=self.lr(step), weight_decay=self.trainer.weight_decay)
        if new.shape != weights.shape:
            shapes = f"weights of shape {tuple(new.shape)} for {tuple(weights.shape)}"
            raise self.rate.error(f"update returned {shapes}.")
        self._is_checked = True
        return new, after

    def _checked_update(
        self, weights: Tensor, grads: Tensor, state: State, step: int, **rates: float
    ) -> tuple[Tensor, State]:
        given = {"weights": weights, "grads": grads, **{f"state['{name}']": t for name, t in state.items()}}
        versions = {name: t._version for name, t in given.items()}
        result = self.pure.update(weights, grads, state, step, **rates)
        changed = [name for name, t in given.items() if t._version != versions[name]]
        if changed:
            raise self.rate.error(f"update changes its argument {changed[0]} in place. Return a new tensor instead.")
        return result

    def lr(self, step: int) -> float:
        """Return the learning rate at an update, counted from 1."""
        return self.trainer.lr * self.rate.factor(step)

    def trial_update(self, grads: Tensor, step: int) -> Tensor:
        """Return the weights (P,) after three trial updates with `grads` (P,), without storing them."""
        last, clip_norm = self.trainer.max_steps, self.trainer.clip_norm
        return _trial_updates(self, self.weights.vector, grads, self.optimizer_state, step, last, clip_norm)

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
        self.pure, self.weights = updates[0].pure, weights
        names = updates[0].optimizer_state
        self.state = {name: torch.stack([update.optimizer_state[name] for update in updates]) for name in names}
        trainers = [update.trainer for update in updates]
        self.base_lr = torch.tensor([t.lr for t in trainers], dtype=torch.float64)
        # All lanes of a stack have the same schedule, unless their trainer computes its own.
        self.rates = [update.rate for update in updates[: None if updates[0].rate.is_own else 1]]
        self.factors, self._lr = [1.0], self._column([t.lr for t in trainers])
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
        """Return the weights (K, P) after three trial updates with `grads` (K, P), without storing them."""
        last = self.rates[0].trainer.max_steps
        return _trial_updates(self, self.weights, grads, self.state, step, last, self.clip_norm)

    def lr(self, step: int) -> Tensor:
        """Return the learning rates (K, 1) at an update, counted from 1."""
        factors = [rate.factor(step) for rate in self.rates]
        if factors != self.factors:
            self.factors, self._lr = factors, self.lrs(step).to(self.weights).unsqueeze(1)
        return self._lr

    def lrs(self, step: int) -> Tensor:
        """Return the learning rates (K,) at an update, in float64 on the CPU, as metrics.csv shows them."""
        return self.base_lr * torch.tensor([rate.factor(step) for rate in self.rates], dtype=torch.float64)

    def row(self, lane: int) -> dict[str, Any]:
        """Return a copy of one lane's optimiser state, each tensor (P,)."""
        return {name: value[lane].clone() for name, value in self.state.items()}


class TorchUpdate:
    """Optimiser step of one lane through the `torch.optim` optimiser of its trainer.

    The learning rate of each parameter group is the one that `optimizer` gave it, times the trainer's `lr_factor`.

    Args:
        trainer: the trainer.
        weights: the lane's weights.
    """

    def __init__(self, trainer: Trainer, weights: FlatWeights) -> None:
        self.weights, self.rate = weights, LearningRate(trainer)
        self.optimizer = trainer.optimizer(weights.params)
        held = [id(p) for group in self.optimizer.param_groups for p in group["params"]]
        if sorted(held) != sorted(map(id, weights.params)):
            raise self.rate.error(
                "the optimiser does not hold exactly the parameters that `optimizer(params)` was given."
            )
        self.sizes = [p.numel() for p in weights.params]
        self.lrs = [float(group["lr"]) for group in self.optimizer.param_groups]

    def step(self, grads: Tensor, step: int) -> None:
        """Update the weights with gradients (P,), already clipped; updates count from 1.

        Raises NnexpError where the optimiser changes its learning rate itself.
        """
        for p, part in zip(self.weights.params, grads.split(self.sizes), strict=True):
            p.grad = part.view(p.shape)
        lrs = [lr * self.rate.factor(step) for lr in self.lrs]
        for group, lr in zip(self.optimizer.param_groups, lrs, strict=True):
            group["lr"] = lr
        self.optimizer.step()
        changed = [float(group["lr"]) for group in self.optimizer.param_groups]
        if changed != lrs:
            reason = f"its optimiser changes the learning rate at update {step} from {lrs} to {changed}"
            raise self.rate.error(f"{reason}, which no checkpoint holds. Override lr_factor(step) instead.")

    def lr(self, step: int) -> float:
        """Return the learning rate of the first parameter group at an update, counted from 1."""
        return self.lrs[0] * self.rate.factor(step)

    def state(self) -> dict[str, Any]:
        """Return a copy of the optimiser's `state_dict`, for a checkpoint."""
        state: dict[str, Any] = to_python_numbers(copy.deepcopy(self.optimizer.state_dict()))
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Set the optimiser's state to one returned by `state`."""
        self.optimizer.load_state_dict(copy.deepcopy(state))


def make_update(trainer: Trainer, weights: FlatWeights) -> PureUpdate | TorchUpdate:
    """Return the optimiser step of a lane: through the trainer's pure functions if it has them, else its optimiser.

    Raises NnexpError where it has only one of the two functions, which would never be called.
    """
    pure = [name for name in ("init", "update") if hasattr(trainer, name)]
    if len(pure) == 1:
        raise NnexpError(f"trainer {type(trainer).__name__} defines `{pure[0]}`: it takes both `init` and `update`.")
    return PureUpdate(trainer, weights) if pure else TorchUpdate(trainer, weights)
