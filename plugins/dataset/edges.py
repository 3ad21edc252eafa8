"""Small noisy images with one edge segment each: a task of our own that rewards translation invariance.

A segment is five pixels long: two rows of -1 beside two rows of +1, on Gaussian noise, at a random position. The four
classes are its orientation (vertical, horizontal) and polarity (which side is bright). A convolution needs few images,
because it applies the same filters everywhere; a model without weight sharing must see an edge at every position.
"""

from typing import Annotated

import torch
from torch import Tensor

from nnexp import DataSpec, PerLane, Range, dataset

Rows = Annotated[int, Range(min=4)]
LENGTH, WIDTH = 5, 4


@dataset
class Edges:
    """Noisy images with one short edge, in four classes by orientation and polarity.

    Args:
        generator: source of all random numbers.
        size: side of the images in pixels.
        noise: standard deviation of the Gaussian noise on each pixel.
        shift: put the edges of training and validation images in the left half, those of test images in the right.
        num_train: images in the training split.
        num_val: images in the validation split.
        num_test: images in the test split.
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
        # Training images are drawn last, so that num_train does not change the other splits.
        splits = ((num_test, right), (num_val, left), (num_train, left))
        self.test, self.val, self.train = (_draw(n, size, columns, noise, generator) for n, columns in splits)


def _draw(
    num_rows: int, size: int, columns: tuple[int, int], noise: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return images (N, 1, size, size) with edges between two columns, and their classes (N,)."""
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
    """Draw uniform integers from 0 to `last`, inclusive."""
    return (torch.rand(last.shape, dtype=torch.float64, generator=generator) * (last + 1)).long()
