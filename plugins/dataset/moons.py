"""Two moons: two interleaving half circles in the plane, as scikit-learn's `make_moons` draws them (Pedregosa et al.,
2011, JMLR 12).

Class 0 is (cos a, sin a), class 1 is (1 - cos a, 1/2 - sin a), with a uniform in [0, pi], and Gaussian noise on both
coordinates. Departs from scikit-learn in drawing the angle at random instead of in equal steps, so that rows are
independent. Class sizes differ by at most one row.
"""

import math
from typing import Annotated

import torch

from nnexp import DataSpec, PerLane, Range, dataset


@dataset
class Moons:
    """Two interleaving half circles in the plane, one per class.

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
        num_train: Annotated[int, Range(min=2)] = 400,
        num_val: Annotated[int, Range(min=2)] = 1000,
        num_test: Annotated[int, Range(min=2)] = 2000,
        noise: Annotated[float, Range(min=0), PerLane] = 0.15,
    ) -> None:
        self.spec = DataSpec(kind="vector", shape=(2,), target="class", outputs=2)
        # Training rows are drawn last, so that num_train does not change the other splits.
        self.test, self.val, self.train = (_draw(n, noise, generator) for n in (num_test, num_val, num_train))


def _draw(num_rows: int, noise: float, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points (N, 2) and their classes (N,)."""
    y = (torch.arange(num_rows) % 2)[torch.randperm(num_rows, generator=generator)]
    angle = math.pi * torch.rand(num_rows, generator=generator)
    upper = torch.stack([angle.cos(), angle.sin()], dim=1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], dim=1)
    x = torch.where(y.bool().unsqueeze(1), lower, upper)
    return x + noise * torch.randn(num_rows, 2, generator=generator), y
