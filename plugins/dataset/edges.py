"""Small noisy images with one edge segment each: a task of our own, on which a model's assumptions decide.

A segment is five pixels long: two rows of -1 beside two of +1, on Gaussian noise, at a random place. The four classes
are its orientation (vertical, horizontal) and polarity (which side is bright). Few images are enough for a convolution,
which looks for the same thing everywhere; a model without this assumption must see an edge at every place.
"""

from typing import Annotated

import torch
from torch import Tensor

from nnexp import DataSpec, PerLane, Range, dataset

Rows = Annotated[int, Range(min=4)]
LENGTH, WIDTH = 5, 4


@dataset
class Edges:
    """Images with one short edge, in four classes: vertical or horizontal, bright on one side or the other.

    Args:
        generator: the source of every draw.
        size: pixels of a side.
        noise: standard deviation of the noise on each pixel.
        shift: train and validate on edges in the left half of the image, test on edges in the right.
        num_train: training images.
        num_val: validation images.
        num_test: test images.
    """

    def __init__(
        self,
        generator: torch.Generator,
        *,
        size: Annotated[int, Range(min=10)] = 12,
        noise: Annotated[float, Range(min=0), PerLane] = 0.5,
        shift: bool = False,
        num_train: Rows = 400,
        num_val: Rows = 500,
        num_test: Rows = 1000,
    ) -> None:
        self.spec = DataSpec(kind="image", shape=(1, size, size), target="class", outputs=4)
        half = size // 2
        left, right = ((0, half), (half, size)) if shift else ((0, size), (0, size))
        # The training images come last, so that their number changes neither of the other splits.
        splits = ((num_test, right), (num_val, left), (num_train, left))
        self.test, self.val, self.train = (_draw(n, size, columns, noise, generator) for n, columns in splits)


def _draw(
    num_rows: int, size: int, columns: tuple[int, int], noise: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Images (N, 1, size, size) whose edges lie between two columns, and their classes (N,)."""
    y = (torch.arange(num_rows) % 4)[torch.randperm(num_rows, generator=generator)]
    is_horizontal, is_dark_first = y // 2 == 1, y % 2 == 0
    height = torch.where(is_horizontal, WIDTH, LENGTH)
    width = LENGTH + WIDTH - height
    top = _uniform(size - height, generator)
    left = columns[0] + _uniform(columns[1] - columns[0] - width, generator)
    row = torch.arange(size).view(1, -1, 1) - top.view(-1, 1, 1)
    column = torch.arange(size).view(1, 1, -1) - left.view(-1, 1, 1)
    inside = (row >= 0) & (row < height.view(-1, 1, 1)) & (column >= 0) & (column < width.view(-1, 1, 1))
    is_second = torch.where(is_horizontal.view(-1, 1, 1), row, column) >= WIDTH // 2
    sign = torch.where(is_second == is_dark_first.view(-1, 1, 1), 1.0, -1.0)
    x = sign * inside + noise * torch.randn(num_rows, size, size, generator=generator)
    return x.unsqueeze(1), y


def _uniform(last: Tensor, generator: torch.Generator) -> Tensor:
    """Whole numbers from 0 to `last`, each as likely."""
    return (torch.rand(last.shape, dtype=torch.float64, generator=generator) * (last + 1)).long()
