"""Exclusive or: the four corners of a square, opposite ones alike (Minsky & Papert, 1969, Perceptrons, section 12).

No line separates the classes, so that a linear model stays at chance and one hidden layer does not. Departs from the
book in drawing noisy points around the corners.
"""

from typing import Annotated

import torch

from nnexp import DataSpec, PerLane, Range, dataset

Rows = Annotated[int, Range(min=4)]


@dataset
class Xor:
    """Points around (±1, ±1); the class is whether the signs differ.

    Args:
        generator: the source of every draw.
        num_train: training rows.
        num_val: validation rows.
        num_test: test rows.
        noise: standard deviation of the noise on each coordinate.
    """

    def __init__(
        self,
        generator: torch.Generator,
        *,
        num_train: Rows = 400,
        num_val: Rows = 1000,
        num_test: Rows = 2000,
        noise: Annotated[float, Range(min=0), PerLane] = 0.2,
    ) -> None:
        self.spec = DataSpec(kind="vector", shape=(2,), target="class", outputs=2)
        # The training rows come last, so that their number changes neither of the other splits.
        self.test, self.val, self.train = (_draw(n, noise, generator) for n in (num_test, num_val, num_train))


def _draw(num_rows: int, noise: float, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    corner = (torch.arange(num_rows) % 4)[torch.randperm(num_rows, generator=generator)]
    signs = torch.stack([corner // 2, corner % 2], dim=1)
    x = 2.0 * signs - 1 + noise * torch.randn(num_rows, 2, generator=generator)
    return x, signs[:, 0] ^ signs[:, 1]
