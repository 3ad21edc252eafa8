"""One optimiser step, through the trainer's pure functions or through an optimiser of torch."""

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
    """Scale a flat gradient to at most `clip_norm`, as `torch.nn.utils.clip_grad_norm_` does.

    grads (P,) with its norm (), or (K, P) with norms (K, 1) and a clip_norm for each lane.
    """
    if clip_norm is None:
        return grads
    return grads * (clip_norm / (norm + 1e-6)).clamp(max=1.0)


@torch.no_grad()
def two_trial_updates(
    update: PureUpdate | StackUpdate,
    weights: Tensor,
    grads: Tensor,
    state: State,
    step: int,
    clip_norm: float | Tensor | None,
) -> Tensor:
    """The weights after two updates, with gradients and with half of them; neither is kept."""
    for number, g in enumerate((grads, 0.5 * grads), step):
        clipped = clip_gradient(g, torch.linalg.vector_norm(g, dim=-1, keepdim=True), clip_norm)
        weights, state = update.made(weights, clipped, state, number)
    return weights


class PureUpdate:
    """Through `init` and `update` of the trainer."""

    def __init__(self, trainer: Trainer, weights: FlatWeights) -> None:
        self.trainer = trainer
        self.pure = cast(PureTrainer, trainer)
        self.weights = weights
        self.optimizer_state = self.pure.init(weights.vector)

    def step(self, grads: Tensor, step: int) -> None:
        new, self.optimizer_state = self.made(self.weights.vector, grads, self.optimizer_state, step)
        self.weights.set(new)

    def made(self, weights: Tensor, grads: Tensor, state: State, step: int) -> tuple[Tensor, State]:
        """Weights and the optimiser's state after an update, which is not kept."""
        return self.pure.update(weights, grads, state, step, lr=self.lr(step), weight_decay=self.trainer.weight_decay)

    def lr(self, step: int) -> float:
        return self.trainer.lr * self.trainer.lr_factor(step)

    def rehearse(self, grads: Tensor, step: int) -> Tensor:
        """(P,): see `rehearsed`."""
        return two_trial_updates(self, self.weights.vector, grads, self.optimizer_state, step, self.trainer.clip_norm)

    def state(self) -> dict[str, Any]:
        return dict(self.optimizer_state)

    def restore(self, state: dict[str, Any]) -> None:
        device = self.weights.vector.device
        self.optimizer_state = {name: value.to(device) for name, value in state.items()}


class StackUpdate:
    """The updates of K lanes at once; what the trainer marks `PerLane` in its base class may differ between them.

    Args:
        updates: of the lanes, in the order of the rows of `weights`.
        weights: (K, P).
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
        """Clip the gradients (K, P), whose norms are (K,), and change the weights."""
        clipped = clip_gradient(grads, norms.unsqueeze(1), self.clip_norm)
        new, self.state = self.made(self.weights, clipped, self.state, step)
        self.weights.copy_(new)

    def made(self, weights: Tensor, grads: Tensor, state: State, step: int) -> tuple[Tensor, State]:
        """Weights and the optimisers' states after an update, which is not kept."""
        return self.pure.update(weights, grads, state, step, lr=self.lr(step), weight_decay=self.weight_decay)

    def rehearse(self, grads: Tensor, step: int) -> Tensor:
        """(K, P): see `rehearsed`."""
        return two_trial_updates(self, self.weights, grads, self.state, step, self.clip_norm)

    def lr(self, step: int) -> Tensor:
        """(K, 1)."""
        factor = self.trainer.lr_factor(step)
        if factor != self.lr_factor:
            self.lr_factor, self._lr = factor, (self.base_lr * factor).to(self.weights)
        return self._lr

    def row(self, lane: int) -> dict[str, Any]:
        """The optimiser's state of one lane."""
        return {name: value[lane].clone() for name, value in self.state.items()}


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
        state: dict[str, Any] = to_python_numbers(copy.deepcopy(self.optimizer.state_dict()))
        return state

    def restore(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(copy.deepcopy(state))


def make_update(trainer: Trainer, weights: FlatWeights) -> PureUpdate | TorchUpdate:
    """The trainer's pure functions where it has them, else its optimiser."""
    is_pure = hasattr(trainer, "init") and hasattr(trainer, "update")
    return PureUpdate(trainer, weights) if is_pure else TorchUpdate(trainer, weights)
