"""Exclusive or: corners of a square, opposite ones of the same class (Minsky & Papert, 1969, Perceptrons, section 12).

No line separates the classes: a linear model stays at chance level, one hidden layer suffices. Departs from the book
in drawing noisy points around the corners.
"""

from typing import Annotated

import torch

from nnexp import DataSpec, PerLane, Range, dataset

Rows = Annotated[int, Range(min=4)]


@dataset
class Xor:
    """Noisy points around (±1, ±1); class 1 where the signs differ.

    Args:
        generator: source of all random numbers.
        num_train: rows in the training split.
        num_val: rows in the validation split.
        num_test: rows in the test split.
        noise: standard deviation of the Gaussian noise on each coordinate.
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
        # Training rows are drawn last, so that num_train does not change the other splits.
        self.test, self.val, self.train = (_draw(n, noise, generator) for n in (num_test, num_val, num_train))


def _draw(num_rows: int, noise: float, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points (N, 2) and their classes (N,)."""
    corner = (torch.arange(num_rows) % 4)[torch.randperm(num_rows, generator=generator)]
    signs = torch.stack([corner // 2, corner % 2], dim=1)
    x = 2.0 * signs - 1 + noise * torch.randn(num_rows, 2, generator=generator)
    return x, signs[:, 0] ^ signs[:, 1]
