"""Stochastic gradient descent (Robbins & Monro, 1951, doi:10.1214/aoms/1177729586), with the momentum of Polyak (1964,
doi:10.1016/0041-5553(64)90137-5).

    v_t = momentum * v_{t-1} + g,  w_t = w_{t-1} - lr * v_t

Departs from Robbins & Monro in a learning rate that need not decrease, and from Polyak, as torch.optim.SGD does, in
scaling the whole velocity by lr.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from nnexp import PerLane, Range, Trainer, trainer


@trainer
@dataclass(kw_only=True)
class SGD(Trainer):
    """Stochastic gradient descent, with momentum if it is set.

    Args:
        momentum: decay rate of the velocity; 0 disables momentum.
    """

    lr: Annotated[float, Range(gt=0), PerLane] = 0.1
    momentum: Annotated[float, Range(min=0, lt=1)] = 0.0

    def optimizer(self, params: Iterable[Tensor]) -> torch.optim.Optimizer:
        """Return `torch.optim.SGD`, which makes the same updates."""
        return torch.optim.SGD(params, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)

    def init(self, weights: Tensor) -> dict[str, Tensor]:
        """Return the velocity before the first update, zeros; no state without momentum."""
        return {"velocity": torch.zeros_like(weights)} if self.momentum else {}

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
        """Return weights and state after an update, as `nnexp.training.PureTrainer` defines it."""
        if not (isinstance(weight_decay, float) and weight_decay == 0):
            grads = grads + weight_decay * weights
        if not self.momentum:
            return weights - lr * grads, state
        velocity = self.momentum * state["velocity"] + grads
        return weights - lr * velocity, {"velocity": velocity}
