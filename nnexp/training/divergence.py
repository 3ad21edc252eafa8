"""Explain a divergence: find the first layer whose weights, output or gradient are not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from nnexp.base import NnexpError
from nnexp.rundir import Rows
from nnexp.training.flat_weights import FlatWeights, layer_name

REPLAY_DIFFERS = "Trained again from step {step}, it gives other losses: the model keeps state outside its buffers."
ANSWERS_DIFFER = "Computed again, it is finite: the model answers differently when asked twice."


def explain_divergence(
    module: nn.Module, weights: FlatWeights, forward: Callable[[], Tensor], is_loss_finite: bool
) -> str:
    """Return one sentence that names the first layer with numbers that are not finite.

    Args:
        module: the model, with the weights from before the update that diverged.
        weights: its flat weights.
        forward: computes the loss () of that update.
        is_loss_finite: whether it was finite in training.
    """
    for name, parameter in zip(weights.names, weights.params, strict=True):
        if not parameter.isfinite().all():
            return f"The weights of layer '{layer_name(name)}' are no longer finite: its last update was too large."
    layer, value = _first_nonfinite_output(module, forward)
    if layer is not None:
        return f"The first output that is not finite is that of layer '{layer}'."
    if not value.isfinite():
        return "The output of every layer is finite; the loss is not."
    if not is_loss_finite:
        return ANSWERS_DIFFER
    for name, grad in zip(reversed(weights.names), reversed(weights.gradient(value)), strict=True):
        if not grad.isfinite().all():
            return f"The first gradient that is not finite is that of layer '{layer_name(name)}'."
    return "The gradient of every layer is finite; the norm over all layers is not."


def divergence_message(rows: Rows, layer: str) -> str:
    """Return the error message of a diverged run: the step, what is not finite, and the last finite gradient norm.

    Args:
        rows: rows up to the update that diverged.
        layer: the sentence of `explain_divergence`.
    """
    step, loss, norm = rows.last_step, rows.losses[-1], rows.norms[-1]
    last = f" The last finite gradient norm was {rows.norms[-2]:.3g}." if len(rows) > 1 else ""
    if math.isfinite(loss + norm):
        return f"step {step}: the update is so large that the weights after it are not finite.{last}"
    quantity = "loss" if not math.isfinite(loss) else "gradient"
    return f"step {step}: the {quantity} is not finite. {layer}{last}"


def _first_nonfinite_output(module: nn.Module, forward: Callable[[], Tensor]) -> tuple[str | None, Tensor]:
    names: list[str] = []
    handles = []
    for name, child in module.named_modules():

        def check_output(_child: nn.Module, _inputs: Any, output: Any, name: str = name or "output") -> None:
            tensors = output if isinstance(output, tuple) else (output,)
            if any(isinstance(t, Tensor) and not t.isfinite().all() for t in tensors):
                names.append(name)

        handles.append(child.register_forward_hook(check_output))
    try:
        value = forward()
    finally:
        for handle in handles:
            handle.remove()
    return (names[0] if names else None), value


class Diverged(NnexpError):
    """Loss, gradient or weights of a lane are not finite.

    Args:
        message: step and layer.
        rows: rows of metrics.csv that are not written yet; the last one is of the step that diverged.
    """

    def __init__(self, message: str, rows: Rows) -> None:
        super().__init__(message)
        self.rows = rows
