"""Handwritten digits of 8 x 8 pixels (Alpaydin & Kaynak, 1998, doi:10.24432/C50P49), the 1,797 that scikit-learn ships.

Departs from the source in splitting these rows at random, by `dataset.seed`, into training, validation and test rows.
"""

from typing import Annotated

import torch

from nnexp import DataSpec, Range, dataset

Rows = Annotated[int, Range(min=10, max=700)]


@dataset
class Digits:
    """Real images of ten classes, pixels from 0 to 1. Needs scikit-learn.

    Args:
        generator: the source of the split.
        num_val: validation images.
        num_test: test images; all others are for training.
    """

    def __init__(self, generator: torch.Generator, *, num_val: Rows = 300, num_test: Rows = 500) -> None:
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise ImportError("dataset=digits needs scikit-learn: pip install 'nnexp[digits]'.") from None
        images, labels = load_digits(return_X_y=True)
        x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
        order = torch.randperm(len(x), generator=generator)
        x, y = x[order], torch.tensor(labels)[order]
        self.spec = DataSpec(kind="image", shape=(1, 8, 8), target="class", outputs=10)
        sizes = (num_test, num_val, len(x) - num_test - num_val)
        self.test, self.val, self.train = zip(x.split(sizes), y.split(sizes), strict=True)
