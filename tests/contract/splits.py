"""What the splits of a dataset must keep."""

from collections.abc import Callable
from typing import Any

import torch


def training_rows_leave_the_others(make: Callable[..., Any]) -> None:
    """`make(num_train=...)` gives the same rows to validate and to test on, however many there are to train on."""
    few, many = make(num_train=10), make(num_train=300)
    for split in ("val", "test"):
        assert all(torch.equal(a, b) for a, b in zip(getattr(few, split), getattr(many, split), strict=True))
