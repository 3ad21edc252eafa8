"""Handwritten digits of 8 x 8 pixels (Alpaydin & Kaynak, 1998, doi:10.24432/C50P49): the 1,797 images in scikit-learn.

Departs from the source in its splits: rows are assigned to them at random, from `dataset.seed`.
"""

from typing import Annotated

import torch

from nnexp import DataSpec, Range, dataset

Rows = Annotated[int, Range(min=10, max=700)]


@dataset
class Digits:
    """Handwritten digits of 8 x 8 pixels between 0 and 1, in ten classes; needs scikit-learn.

    Args:
        generator: source of the random split.
        num_val: images in the validation split.
        num_test: images in the test split; all others are for training.
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
