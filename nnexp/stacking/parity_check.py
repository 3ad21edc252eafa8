"""Check that a stack computes the same next step as the plain module and trainer of each lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nnexp.data import get_rng_state, rng_states_equal, set_rng_state
from nnexp.stacking.stack import Stack
from nnexp.training import Lane, PureUpdate

# Largest relative difference between stack and plain module, by precision.
TOLERANCE = {32: 1e-3, 64: 1e-8, "bf16": 0.1}


class ParityCheck:
    """Reference values of a lane's next step, from its plain module; the state of the lane is restored.

    Args:
        lane: the lane. If its module draws random numbers in training, loss and gradient are compared in evaluation
            mode.

    Attributes:
        draws: whether the module draws random numbers in training.
        repeats: whether the same step gives the same loss and gradient again.
        first: loss () and gradient (P,) of the next update.
        evaluation: loss () in evaluation mode.
        weights: (P,), after three updates with that gradient.
        trainer_draws: whether the trainer's update draws random numbers.
    """

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        first = lane.first_step()
        self.draws, self.repeats = first.draws, repeats(lane, lambda: lane)
        self.first = lane.first_step(training=False) if first.draws else first
        self.evaluation = lane.first_evaluation()
        assert isinstance(lane.update, PureUpdate)
        before = get_rng_state()
        self.weights = lane.update.trial_update(self.first.gradient, lane.step + 1)
        self.trainer_draws = not rng_states_equal(before, get_rng_state())
        set_rng_state(before)

    def difference(self, loss: Tensor, gradient: Tensor, evaluation: Tensor, weights: Tensor) -> str | None:
        """Return the name of the first quantity that differs from the reference, or None.

        Two quantities with values that are not finite count as equal.

        Args:
            loss: (), of the stack.
            gradient: (P,), of the stack.
            evaluation: (), the stack's loss in evaluation mode.
            weights: (P,), the stack's after three updates with the gradient of `first`.
        """
        first, before = self.first, self.lane.weights.vector
        pairs = {
            "loss": (first.loss, loss),
            "gradient": (first.gradient, gradient),
            "loss in evaluation": (self.evaluation, evaluation),
            "update": (self.weights - before, weights - before),
        }
        return next((name for name, (expected, actual) in pairs.items() if not self._close(expected, actual)), None)

    def _close(self, expected: Tensor, actual: Tensor) -> bool:
        if not expected.isfinite().all() or not actual.isfinite().all():
            return bool(expected.isfinite().all() == actual.isfinite().all())
        # The second term is for values that are rounding alone, such as gradients of a bias before a normalisation.
        scale = torch.linalg.vector_norm(expected) + 1e-3 * self.first.loss.abs().clamp(max=1)
        return bool(torch.linalg.vector_norm(expected - actual) <= TOLERANCE[self.lane.job.options.precision] * scale)


_REPEATS: dict[tuple[type, str], bool] = {}  # by class and values of the model: asked once in a process


def repeats(lane: Lane, rebuild: Callable[[], Lane]) -> bool:
    """Return whether the same step, computed twice from the same state, has the same loss and gradient.

    To the last bit, but for devices on which torch adds in any order.

    Args:
        lane: the lane.
        rebuild: returns a lane at the same state, which is computed with.
    """
    key = type(lane.module), repr(lane.job.model.values)
    if key not in _REPEATS:
        copy = rebuild()
        once, again = copy.first_step(), copy.first_step()
        rtol, atol = (0.0, 0.0) if once.loss.device.type == "cpu" else (1e-2, 1e-5)
        pairs = ((once.loss, again.loss), (once.gradient, again.gradient))
        _REPEATS[key] = all(torch.allclose(one, other, rtol, atol, equal_nan=True) for one, other in pairs)
    return _REPEATS[key]


def lanes_that_differ(stack: Stack, checks: Sequence[ParityCheck]) -> dict[int, str]:
    """Return the lanes that the stack would train differently from their plain modules.

    Args:
        stack: the stack; its state is unchanged.
        checks: references of its lanes, in their order.

    Returns:
        The name of the quantity that differs, by index of the lane.
    """
    losses, gradients = stack.first_step()
    evaluations = stack.first_evaluation()
    copies = [checks[0]] * (len(stack.rows) - len(checks))
    weights = stack.update.trial_update(
        torch.stack([each.first.gradient for each in [*checks, *copies]]), stack.step + 1
    )
    # Not strict: the rows beyond the lanes are copies of the first.
    values = zip(checks, losses, gradients, evaluations, weights, strict=False)
    differences = {index: check.difference(*actual) for index, (check, *actual) in enumerate(values)}
    return {index: name for index, name in differences.items() if name is not None}
