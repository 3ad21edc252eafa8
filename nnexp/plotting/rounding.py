"""Rounding of the numbers behind a picture, which are stored as JSON."""

from __future__ import annotations

import math

from torch import Tensor


def rounded(numbers: Tensor, digits: int = 4) -> Tensor:
    """Return a tensor in float64 on the CPU, rounded to `digits` digits of its largest number.

    More precision is not visible in a picture, and files stay small.
    """
    values = numbers.detach().cpu().double()
    largest = float(values.nan_to_num(0, 0, 0).abs().max()) if values.numel() else 0.0
    decimals = digits - math.ceil(math.log10(largest)) if largest else 0
    return values.round(decimals=min(decimals, 300))
