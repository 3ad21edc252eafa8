"""Sequences of independent Gaussian numbers, whose target is the sum of them all. A task of our own.

Every position counts alike, so that on it gradients through time can be compared: what the loss feels of an early
position and of a late one differs by the model alone. The sum is scaled to a variance of 1.
"""

from typing import Annotated

import torch

from nnexp import DataSpec, Range, dataset

Rows = Annotated[int, Range(min=2)]


@dataset
class Gaussian:
    """Random sequences; the target is the scaled sum of all their numbers.

    Args:
        generator: the source of every draw.
        length: positions of a sequence.
        channels: numbers at each position.
        num_train: training rows.
        num_val: validation rows.
        num_test: test rows.
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
        # The training rows come last, so that their number changes neither of the other splits.
        draws = (torch.randn(n, length, channels, generator=generator) for n in (num_test, num_val, num_train))
        scale = (length * channels) ** -0.5
        self.test, self.val, self.train = ((x, scale * x.sum((1, 2)).unsqueeze(1)) for x in draws)
