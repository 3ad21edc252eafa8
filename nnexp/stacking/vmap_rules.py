"""Replacements for torch functions whose rounding under vmap depends on the number of lanes.

Under vmap a convolution becomes a grouped one and a batch normalisation gets more channels, and torch chooses kernels
by their number. The replacements are matrix products and means, which round the same for a lane in every stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from nnexp.base import NnexpError

UNSAFE = {"convolution", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm"}


class Rules(TorchFunctionMode):
    """Calls the replacements in `RULES` within its block."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return RULES.get(func, func)(*args, **(kwargs or {}))


def convolve(
    input: Tensor,  # noqa: A002  # torch's name
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve (B, C, ...) with filters (O, C, k, ...) to (B, O, ...), as a product of windows and filters.

    Arguments are those of `torch.nn.functional.conv1d`, `conv2d` and `conv3d`. Raises NnexpError for groups and for
    padding by name.
    """
    if groups != 1 or isinstance(padding, str):
        raise NnexpError("convolutions with groups, or with padding given by name, have no rule")
    axes = weight.dim() - 2
    strides, paddings, dilations = (
        [each] * axes if isinstance(each, int) else list(each) * (axes // len(each))
        for each in (stride, padding, dilation)
    )
    windows = functional.pad(input, [p for each in reversed(paddings) for p in (each, each)])
    for axis, (size, step, gap) in enumerate(zip(weight.shape[2:], strides, dilations, strict=True), 2):
        windows = windows.unfold(axis, (size - 1) * gap + 1, step)[..., ::gap]
    rows = windows.movedim(1, 1 + axes).flatten(1 + axes)  # (B, positions, ..., C * k * ...)
    return functional.linear(rows, weight.flatten(1), bias).movedim(-1, 1)


def batch_norm(
    input: Tensor,  # noqa: A002  # torch's name
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of (B, C, ...) over batch and positions, or by the running statistics in evaluation.

    Arguments are those of `torch.nn.functional.batch_norm`; running statistics are updated in place.
    """
    others = [axis for axis in range(input.dim()) if axis != 1]
    if training or running_mean is None or running_var is None:
        mean, var = input.mean(others), input.var(others, unbiased=False)
        if running_mean is not None and running_var is not None:
            count = input.numel() // input.shape[1]
            running_mean.mul_(1 - momentum).add_(momentum * mean.detach())
            running_var.mul_(1 - momentum).add_(momentum * count / max(1, count - 1) * var.detach())
    else:
        mean, var = running_mean, running_var
    return _normalise(input, mean, var, eps, weight, bias, (1, -1, *[1] * (input.dim() - 2)))


def instance_norm(
    input: Tensor,  # noqa: A002  # torch's name
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each row of (B, C, ...) over positions.

    Arguments are those of `torch.nn.functional.instance_norm`. Raises NnexpError for running statistics.
    """
    if running_mean is not None or not use_input_stats:
        raise NnexpError("instance normalisation with running statistics has no rule")
    others = list(range(2, input.dim()))
    mean, var = input.mean(others), input.var(others, unbiased=False)
    shape = (1, -1, *[1] * (input.dim() - 2))
    return _normalise(input, mean, var, eps, weight, bias, shape, (*mean.shape, *[1] * (input.dim() - 2)))


def _normalise(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    eps: float,
    weight: Tensor | None,
    bias: Tensor | None,
    shape: Sequence[int],
    moment_shape: Sequence[int] | None = None,
) -> Tensor:
    moment_shape = shape if moment_shape is None else moment_shape
    x = (x - mean.view(moment_shape)) / (var + eps).sqrt().view(moment_shape)
    x = x if weight is None else x * weight.view(shape)
    return x if bias is None else x + bias.view(shape)


RULES: dict[Any, Callable[..., Tensor]] = {
    torch.conv1d: convolve,
    torch.conv2d: convolve,
    torch.conv3d: convolve,
    functional.batch_norm: batch_norm,
    functional.instance_norm: instance_norm,
}


def check_batch_rules(traced: GraphModule) -> None:
    """Raise NnexpError for an operation whose rounding depends on the number of lanes, or that vmap computes wrongly.

    Args:
        traced: graph of a training step.
    """
    for node in traced.graph.nodes:
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        if name in UNSAFE:
            raise NnexpError(f"the rounding of torch's {name} depends on the number of lanes in the stack")
        if name == "embedding" and len(node.args) > 2 and node.args[2] != -1:
            raise NnexpError("torch's vmap applies an embedding's padding_idx to the first lane only")
