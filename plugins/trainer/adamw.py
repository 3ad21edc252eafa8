"""Adam with decoupled weight decay (Loshchilov & Hutter, 2019, arXiv:1711.05101, algorithm 2).

    w_t = (1 - lr * weight_decay) w_{t-1} - lr * (m_t / (1 - b1^t)) / (sqrt(v_t / (1 - b2^t)) + eps)

with m and v as in Adam, of the gradient without a penalty. Departs from the paper, as torch.optim.AdamW does, in
scaling the decay by lr.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from nnexp import PerLane, Range, Trainer, trainer


@trainer
@dataclass(kw_only=True)
class AdamW(Trainer):
    """Adam with decoupled weight decay: the decay is applied to the weights, not to the gradient.

    Args:
        weight_decay: fraction that weights lose per update, as a multiple of lr.
        beta1: decay rate of the running mean of the gradient.
        beta2: decay rate of the running mean of its square.
        eps: added to the square root in the denominator.
    """

    weight_decay: Annotated[float, Range(min=0), PerLane] = 0.01
    beta1: Annotated[float, Range(min=0, lt=1)] = 0.9
    beta2: Annotated[float, Range(min=0, lt=1)] = 0.999
    eps: Annotated[float, Range(gt=0)] = 1e-8

    def optimizer(self, params: Iterable[Tensor]) -> torch.optim.Optimizer:
        """Return `torch.optim.AdamW`, which makes the same updates."""
        betas = (self.beta1, self.beta2)
        return torch.optim.AdamW(params, lr=self.lr, betas=betas, eps=self.eps, weight_decay=self.weight_decay)

    def init(self, weights: Tensor) -> dict[str, Tensor]:
        """Return the state before the first update, all zeros."""
        return {"mean": torch.zeros_like(weights), "square": torch.zeros_like(weights)}

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
        mean = state["mean"].lerp(grads, 1 - self.beta1)
        square = (self.beta2 * state["square"]).addcmul_(grads, grads, value=1 - self.beta2)
        root = (square / (1 - self.beta2**step)).sqrt_().add_(self.eps)
        change = (mean / root).mul_(lr / (1 - self.beta1**step))
        decayed = weights * (1 - lr * weight_decay)
        return decayed - change, {"mean": mean, "square": square}
