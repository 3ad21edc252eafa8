"""Sequences of independent Gaussian numbers; the target is their sum. A task of our own.

Every position contributes equally to the target, so differences between gradients at early and late positions are due
to the model alone. The sum is scaled to unit variance.
"""

from typing import Annotated

import torch

from nnexp import DataSpec, Range, dataset

Rows = Annotated[int, Range(min=2)]


@dataset
class Gaussian:
    """Gaussian sequences; the target is the sum of all numbers, scaled to unit variance.

    Args:
        generator: source of all random numbers.
        length: positions in a sequence.
        channels: numbers at each position.
        num_train: rows in the training split.
        num_val: rows in the validation split.
        num_test: rows in the test split.
    """

    def __init__(
        self,
        generator: torch.Generator,
        *,
        length: Annotated[int, Range(min=1)] = 50,
        channels: Annotated[int, Range(min=1)] = 4,
        num_train: Rows = 1024,
        num_val: Rows = 512,
        num_test: Rows = 1024,
    ) -> None:
        self.spec = DataSpec(kind="sequence", shape=(length, channels), target="value", outputs=1)
        # Training rows are drawn last, so that num_train does not change the other splits.
        draws = (torch.randn(n, length, channels, generator=generator) for n in (num_test, num_val, num_train))
        scale = (length * channels) ** -0.5
        self.test, self.val, self.train = ((x, scale * x.sum((1, 2)).unsqueeze(1)) for x in draws)
