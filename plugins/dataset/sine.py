"""Noisy sums of sines, to be forecast. A task of our own.

Each row is a sum of waves of random period, phase and size, seen through noise; the target is the value of the sum,
without noise, some positions after the last that is seen. Scaled to a variance of 1, so that the error of always
answering the mean is 1.
"""

import math
from typing import Annotated

import torch
from torch import Tensor

from nnexp import DataSpec, PerLane, Range, dataset

Rows = Annotated[int, Range(min=2)]


@dataset
class Sine:
    """Sequences of one number; the target is a real number that follows them.

    Args:
        generator: the source of every draw.
        length: positions that are seen.
        horizon: positions from the last seen to the target.
        num_waves: sines in a sum.
        noise: standard deviation of the noise on what is seen.
        num_train: training rows.
        num_val: validation rows.
        num_test: test rows.
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
        # The training rows come last, so that their number changes neither of the other splits.
        sizes = (num_test, num_val, num_train)
        self.test, self.val, self.train = (_draw(n, torch.tensor(at), num_waves, noise, generator) for n in sizes)


def _draw(num_rows: int, at: Tensor, num_waves: int, noise: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """What is seen (N, T, 1) and what follows (N, 1)."""
    shape = (num_rows, num_waves, 1)
    period = 8 + 24 * torch.rand(shape, generator=generator)
    phase = 2 * math.pi * torch.rand(shape, generator=generator)
    size = torch.randn(shape, generator=generator) * math.sqrt(2 / num_waves)
    total = (size * torch.sin(2 * math.pi * at / period + phase)).sum(1)
    seen = total[:, :-1] + noise * torch.randn(num_rows, len(at) - 1, generator=generator)
    return seen.unsqueeze(-1), total[:, -1:]
