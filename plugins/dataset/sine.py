"""Forecasting noisy sums of sines. A task of our own.

Each row is a sum of sines of random period, phase and amplitude, plus Gaussian noise; the target is the noise-free
value of the sum `horizon` positions after the end of the input. Targets have unit variance, so predicting their mean
gives a mean squared error of 1.
"""

import math
from typing import Annotated

import torch
from torch import Tensor

from nnexp import DataSpec, PerLane, Range, dataset

Rows = Annotated[int, Range(min=2)]


@dataset
class Sine:
    """Noisy sums of sines; the target is the noise-free value some positions ahead.

    Args:
        generator: source of all random numbers.
        length: positions in the input.
        horizon: positions from the end of the input to the target.
        num_waves: sines in each sum.
        noise: standard deviation of the Gaussian noise on the input.
        num_train: rows in the training split.
        num_val: rows in the validation split.
        num_test: rows in the test split.
    """

    def __init__(
        self,
        generator: torch.Generator,
        *,
        length: Annotated[int, Range(min=2)] = 32,
        horizon: Annotated[int, Range(min=1)] = 1,
        num_waves: Annotated[int, Range(min=1)] = 2,
        noise: Annotated[float, Range(min=0), PerLane] = 0.1,
        num_train: Rows = 1024,
        num_val: Rows = 512,
        num_test: Rows = 1024,
    ) -> None:
        self.spec = DataSpec(kind="sequence", shape=(length, 1), target="value", outputs=1)
        at = [*range(length), length - 1 + horizon]
        # Training rows are drawn last, so that num_train does not change the other splits.
        sizes = (num_test, num_val, num_train)
        self.test, self.val, self.train = (_draw(n, torch.tensor(at), num_waves, noise, generator) for n in sizes)


def _draw(num_rows: int, at: Tensor, num_waves: int, noise: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return inputs (N, T, 1) and targets (N, 1)."""
    shape = (num_rows, num_waves, 1)
    period = 8 + 24 * torch.rand(shape, generator=generator)
    phase = 2 * math.pi * torch.rand(shape, generator=generator)
    amplitude = torch.randn(shape, generator=generator) * math.sqrt(2 / num_waves)
    total = (amplitude * torch.sin(2 * math.pi * at / period + phase)).sum(1)
    noisy = total[:, :-1] + noise * torch.randn(num_rows, len(at) - 1, generator=generator)
    return noisy.unsqueeze(-1), total[:, -1:]
