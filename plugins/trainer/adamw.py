"""Adam with decoupled weight decay (Loshchilov & Hutter, 2019, arXiv:1711.05101, algorithm 2).

    w_t = (1 - lr * weight_decay) w_{t-1} - lr * (m_t / (1 - b1^t)) / (sqrt(v_t / (1 - b2^t)) + eps)

with m and v as in Adam, of the plain gradient. Departs from the paper, as torch.optim.AdamW does, in scaling the decay
by lr.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from nnexp import PerLane, Range, Trainer, trainer


@trainer
@dataclass(kw_only=True)
class AdamW(Trainer):
    """Adam's steps, and weights that shrink by a share of themselves whatever their gradient.

    Args:
        weight_decay: share of a weight that is lost per update, in units of lr.
        beta1: decay of the mean of the gradient.
        beta2: decay of the mean of its square.
        eps: added to the root of that square.
    """

    weight_decay: Annotated[float, Range(min=0), PerLane] = 0.01
    beta1: Annotated[float, Range(min=0, lt=1)] = 0.9
    beta2: Annotated[float, Range(min=0, lt=1)] = 0.999
    eps: Annotated[float, Range(gt=0)] = 1e-8

    def optimizer(self, params):
        betas = (self.beta1, self.beta2)
        return torch.optim.AdamW(params, lr=self.lr, betas=betas, eps=self.eps, weight_decay=self.weight_decay)

    def init(self, weights: Tensor) -> dict[str, Tensor]:
        return {"mean": torch.zeros_like(weights), "square": torch.zeros_like(weights)}

    def update(self, weights, grads, state, step, *, lr, weight_decay):
        mean = state["mean"].lerp(grads, 1 - self.beta1)
        square = (self.beta2 * state["square"]).addcmul_(grads, grads, value=1 - self.beta2)
        root = (square / (1 - self.beta2**step)).sqrt_().add_(self.eps)
        change = (mean / root).mul_(lr / (1 - self.beta1**step))
        kept = weights * (1 - lr * weight_decay)
        return kept - change, {"mean": mean, "square": square}
