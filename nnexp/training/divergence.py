"""Why a loss is not finite: the first layer whose weights, output or gradient is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from nnexp.base import NnexpError
from nnexp.rundir import Rows
from nnexp.training.flat_weights import FlatWeights, layer_name


def explain_divergence(module: nn.Module, weights: FlatWeights, forward: Callable[[], Tensor]) -> str:
    """One sentence that names the layer.

    Args:
        module: with the weights from before the update that went wrong.
        weights: its flat weights.
        forward: computes that update's loss.
    """
    for name, parameter in zip(weights.names, weights.params, strict=True):
        if not parameter.isfinite().all():
            return f"The weights of layer '{layer_name(name)}' are no longer finite: its last update was too large."
    found, value = _first_output(module, forward)
    if found is not None:
        return f"The first output that is not finite is that of layer '{found}'."
    if not value.isfinite():
        return "Every layer's output is finite; the loss of them is not."
    for name, grad in zip(reversed(weights.names), reversed(weights.gradient(value)), strict=True):
        if not grad.isfinite().all():
            return f"The first gradient that is not finite is that of layer '{layer_name(name)}'."
    return "Every layer's gradient is finite; their common norm is not."


def _first_output(module: nn.Module, forward: Callable[[], Tensor]) -> tuple[str | None, Tensor]:
    names: list[str] = []
    handles = []
    for name, child in module.named_modules():

        def look(_child: nn.Module, _inputs: Any, output: Any, name: str = name or "output") -> None:
            tensors = output if isinstance(output, tuple) else (output,)
            if any(isinstance(t, Tensor) and not t.isfinite().all() for t in tensors):
                names.append(name)

        handles.append(child.register_forward_hook(look))
    try:
        value = forward()
    finally:
        for handle in handles:
            handle.remove()
    return (names[0] if names else None), value


class Diverged(NnexpError):
    """The loss or the gradient of one lane is no longer finite; `rows` are its last steps, the bad one included."""

    def __init__(self, message: str, rows: Rows) -> None:
        super().__init__(message)
        self.rows = rows
