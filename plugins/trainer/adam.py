"""Adam (Kingma & Ba, 2015, arXiv:1412.6980, algorithm 1).

    m_t = b1 m_{t-1} + (1 - b1) g,  v_t = b2 v_{t-1} + (1 - b2) g^2
    w_t = w_{t-1} - lr * (m_t / (1 - b1^t)) / (sqrt(v_t / (1 - b2^t)) + eps)

Departs from the paper in `weight_decay`, an L2 penalty in the gradient, as in torch.optim.Adam.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from nnexp import Range, Trainer, trainer


@trainer
@dataclass(kw_only=True)
class Adam(Trainer):
    """Adam: updates scaled per weight by running means of the gradient and its square.

    Args:
        beta1: decay rate of the running mean of the gradient.
        beta2: decay rate of the running mean of its square.
        eps: added to the square root in the denominator.
    """

    beta1: Annotated[float, Range(min=0, lt=1)] = 0.9
    beta2: Annotated[float, Range(min=0, lt=1)] = 0.999
    eps: Annotated[float, Range(gt=0)] = 1e-8

    def optimizer(self, params: Iterable[Tensor]) -> torch.optim.Optimizer:
        """Return `torch.optim.Adam`, which makes the same updates."""
        betas = (self.beta1, self.beta2)
        return torch.optim.Adam(params, lr=self.lr, betas=betas, eps=self.eps, weight_decay=self.weight_decay)

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
        if not (isinstance(weight_decay, float) and weight_decay == 0):
            grads = grads + weight_decay * weights
        mean = state["mean"].lerp(grads, 1 - self.beta1)
        square = (self.beta2 * state["square"]).addcmul_(grads, grads, value=1 - self.beta2)
        root = (square / (1 - self.beta2**step)).sqrt_().add_(self.eps)
        change = (mean / root).mul_(lr / (1 - self.beta1**step))
        return weights - change, {"mean": mean, "square": square}
