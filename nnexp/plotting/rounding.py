"""Numbers behind a picture, rounded to what can be seen in it."""

from __future__ import annotations

import math

from torch import Tensor


def rounded(numbers: Tensor, digits: int = 4) -> Tensor:
    """In 64 bits on the CPU, to a few digits of the largest: nobody sees more, and files stay small."""
    values = numbers.detach().cpu().double()
    largest = float(values.nan_to_num(0, 0, 0).abs().max()) if values.numel() else 0.0
    decimals = digits - math.ceil(math.log10(largest)) if largest else 0
    return values.round(decimals=min(decimals, 300))
