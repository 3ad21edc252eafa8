"""Learning rate schedule: linear warm-up, then constant or cosine."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["constant", "cosine"]


def lr_factor(step: int, *, schedule: Schedule, warmup_steps: int, max_steps: int) -> float:
    """Return the factor that multiplies `lr` at an update.

    It rises linearly to 1 over `warmup_steps`, then stays there, or falls as half a cosine to almost 0 at `max_steps`
    (Loshchilov & Hutter 2017, arXiv:1608.03983, equation 5 without restarts).

        lr_factor(1, schedule="constant", warmup_steps=4, max_steps=100)  # 0.25

    Args:
        step: the update, counted from 1.
        schedule: "constant" or "cosine".
        warmup_steps: updates of the warm-up.
        max_steps: updates of the whole training.
    """
    if step <= warmup_steps:
        return step / warmup_steps
    if schedule == "constant":
        return 1.0
    done = (step - 1 - warmup_steps) / (max_steps - warmup_steps)
    return 0.5 + 0.5 * math.cos(math.pi * done)
