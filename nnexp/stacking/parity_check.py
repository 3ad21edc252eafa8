"""The next step of a lane as its plain module and its own trainer make it, to be held against what a stack makes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nnexp.base import get_rng_state, rng_states_equal, set_rng_state
from nnexp.stacking.stack import Stack
from nnexp.training import Lane, PureUpdate

# How far the stack may be from the plain module, relative.
TOLERANCE = {32: 1e-3, 64: 1e-8, "bf16": 0.1}


class ParityCheck:
    """What a lane's plain module gives at its next step; the lane is left as it was.

    Args:
        lane: may draw random numbers in training, in its module: then it is compared in evaluation mode.
    """

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        first = lane.first_step()
        self.draws = first.draws
        self.first = lane.first_step(training=False) if first.draws else first
        self.evaluation = lane.first_evaluation()
        assert isinstance(lane.update, PureUpdate)
        before = get_rng_state()
        self.weights = lane.update.trial_update(self.first.gradient, lane.step + 1)
        self.trainer_draws = not rng_states_equal(before, get_rng_state())
        set_rng_state(before)

    def difference(self, loss: Tensor, gradient: Tensor, evaluation: Tensor, weights: Tensor) -> str | None:
        """What of a stack's loss (), gradient (P,), loss in evaluation () and weights (P,) after two updates with this
        lane's own gradient is not as here, or None. What is not finite here and there is the same.
        """
        first, before = self.first, self.lane.weights.vector
        pairs = {
            "loss": (first.loss, loss),
            "gradient": (first.gradient, gradient),
            "loss in evaluation": (self.evaluation, evaluation),
            "update": (self.weights - before, weights - before),
        }
        return next((name for name, (mine, theirs) in pairs.items() if not self._close(mine, theirs)), None)

    def _close(self, mine: Tensor, theirs: Tensor) -> bool:
        if not mine.isfinite().all() or not theirs.isfinite().all():
            return bool(mine.isfinite().all() == theirs.isfinite().all())
        # What is nothing but rounding, as a gradient of a bias before a normalisation, is not compared with itself.
        scale = torch.linalg.vector_norm(mine) + 1e-3 * self.first.loss.abs().clamp(max=1)
        return bool(torch.linalg.vector_norm(mine - theirs) <= TOLERANCE[self.lane.job.options.precision] * scale)


def lanes_that_differ(stack: Stack, rehearsals: Sequence[ParityCheck]) -> dict[int, str]:
    """The lanes, by place, that the stack would train otherwise than they are alone, and what is other."""
    losses, gradients = stack.first_step()
    evaluations = stack.first_evaluation()
    copies = [rehearsals[0]] * (len(stack.rows) - len(rehearsals))
    weights = stack.update.trial_update(
        torch.stack([each.first.gradient for each in [*rehearsals, *copies]]), stack.step + 1
    )
    given = zip(rehearsals, losses, gradients, evaluations, weights, strict=False)  # copies stand in further rows
    differences = {place: each.difference(*made) for place, (each, *made) in enumerate(given)}
    return {place: what for place, what in differences.items() if what is not None}
