"""The learning rate of an update: the trainer's `lr` times its `lr_factor`, whichever optimiser makes the update."""

from __future__ import annotations

import math

from nnexp.base import NnexpError, short_repr
from nnexp.training.trainer_base import Trainer


class LearningRate:
    """The factor of the learning rate at each update, which the trainer computes once for each.

    Args:
        trainer: the trainer.

    Attributes:
        is_own: whether the trainer computes its factor in its own way, which may differ between lanes.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.is_own = type(trainer).lr_factor is not Trainer.lr_factor
        self._step, self._factor = 0, 1.0

    def factor(self, step: int) -> float:
        """Return the factor at an update, counted from 1. Raises NnexpError where the trainer returns no number."""
        if step != self._step:
            factor = self.trainer.lr_factor(step)
            if not isinstance(factor, int | float) or not math.isfinite(factor):
                raise self.error(f"lr_factor({step}) returned {short_repr(factor)}, which is not a finite number.")
            self._step, self._factor = step, float(factor)
        return self._factor

    def error(self, reason: str) -> NnexpError:
        """Return an error that names the trainer."""
        return NnexpError(f"trainer {type(self.trainer).__name__}: {reason}")
