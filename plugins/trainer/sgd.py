"""Stochastic gradient descent (Robbins & Monro, 1951, doi:10.1214/aoms/1177729586): w_t = w_{t-1} - lr * g.

Departs from the paper in keeping the learning rate constant.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from nnexp import PerLane, Range, Trainer, trainer


@trainer
@dataclass(kw_only=True)
class SGD(Trainer):
    """Steps straight down the gradient of each batch."""

    lr: Annotated[float, Range(above=0), PerLane] = 0.1

    def optimizer(self, params):
        return torch.optim.SGD(params, lr=self.lr, weight_decay=self.weight_decay)

    def init(self, weights: Tensor) -> dict[str, Tensor]:
        return {}

    def update(self, weights, grads, state, step, *, lr, weight_decay):
        if not (isinstance(weight_decay, float) and weight_decay == 0):
            grads = grads + weight_decay * weights
        return weights - lr * grads, state
