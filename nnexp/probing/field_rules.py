"""Rules for the receptive field of a torch function's output, given the field of its input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nnexp.probing.op_trace import tensors_in

COPIES = {"aten::clone", "aten::_to_copy", "aten::_unsafe_view", "aten::lift_fresh"}


@dataclass(frozen=True)
class Field:
    """Receptive field of each element of a tensor, along one axis of the input.

    Element p depends on positions p * jump + first to p * jump + last of the input.

    Attributes:
        axis: axis of the tensor, counted from its end, along which the fields move.
        first: start of the field of element 0; negative in padding.
        last: its end.
        jump: j, in positions of the input.
    """

    axis: int
    first: int = 0
    last: int = 0
    jump: int = 1

    @property
    def size(self) -> int:
        """r, in positions of the input."""
        return self.last - self.first + 1

    def through(self, kernel: int, stride: int = 1, dilation: int = 1, padding: int = 0) -> Field:
        """Return the field after a convolution or a pooling, with `padding` positions before the first."""
        moved = self.moved(-padding)
        return replace(moved, last=moved.last + (kernel - 1) * dilation * self.jump, jump=self.jump * stride)

    def moved(self, positions: int) -> Field:
        """Return the field where element 0 is the one that was at a position of the tensor."""
        shift = positions * self.jump
        return replace(self, first=self.first + shift, last=self.last + shift)


class Operations(TorchDispatchMode):
    """Records the ATen operations that run within the block."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Any] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: otherwise torch imports its compiler, which takes a second, only to disable it here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called.append(func)
        return func(*args, **(kwargs or {}))

    @property
    def is_pointwise(self) -> bool:
        """Return whether all operations are pointwise or copies."""
        return all(torch.Tag.pointwise in each.tags or each._schema.name in COPIES for each in self.called)

    @property
    def is_view(self) -> bool:
        """Return whether all operations are views or copies."""
        return all(each.is_view or each._schema.name in COPIES for each in self.called)


@dataclass(frozen=True)
class Step:
    """One call of a torch function, with one of the tensors that it returned.

    Attributes:
        func: the function.
        args: its positional arguments.
        kwargs: its keyword arguments.
        output: the returned tensor.
        number: index of `output` among the returned tensors.
        operations: the ATen operations that the call ran.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Tensor
    number: int
    operations: Operations

    def field(self, source: Tensor, field: Field | None) -> Field | None:
        """Return the field of the output that results from the field of one of the arguments.

        Args:
            source: the argument.
            field: its field; None where undefined.
        """
        name = getattr(self.func, "__name__", "").strip("_")
        if field is None or (self._is_window(name) and source is not self.argument(0, "input")):
            return None
        if self._is_window(name):
            return self._through_window(name, source, field)
        if name in FUNCTION_RULES:
            return FUNCTION_RULES[name](self, field)
        if self.operations.is_pointwise:
            is_spread = source.shape[field.axis] != self.output.shape[field.axis]
            return None if is_spread else field
        return self._through_view(source, field) if self.operations.is_view and source is self.args[0] else None

    def argument(self, index: int, name: str, default: Any = None) -> Any:
        """Return an argument that was passed by position or by name."""
        return self.kwargs.get(name, self.args[index] if len(self.args) > index else default)

    @staticmethod
    def _is_window(name: str) -> bool:
        return name[:-2] in WINDOWS and name[-1:] == "d"

    def _through_window(self, name: str, source: Tensor, field: Field) -> Field | None:
        kind, dimensions = name[:-2], int(name[-2])
        along = field.axis + dimensions
        if along < 0:  # positions lie along channels or rows, which are mixed
            return None
        if kind.startswith("adaptive"):
            ratio, rest = divmod(source.shape[field.axis], self.output.shape[field.axis])
            return None if rest else field.through(ratio, ratio)
        if kind == "conv":
            kernel = self.argument(1, "weight").shape[2 + along]
            stride, dilation = self.argument(3, "stride", 1), _at(self.argument(5, "dilation", 1), along)
            padding = self.argument(4, "padding", 0)
            if isinstance(padding, str):
                padding = (kernel - 1) * dilation // 2 if padding == "same" else 0
            return field.through(kernel, _at(stride, along), dilation, _at(padding, along))
        kernel = _at(self.argument(1, "kernel_size"), along)
        stride, padding = _at(self.argument(2, "stride") or kernel, along), _at(self.argument(3, "padding", 0), along)
        dilation = _at(self.argument(4, "dilation", 1), along) if kind == "max_pool" else 1
        return field.through(kernel, stride, dilation, padding)

    def _through_view(self, source: Tensor, field: Field) -> Field | None:
        """Apply a view to position indices, to find the axis that they move to and their new distance."""
        indices = torch.arange(source.shape[field.axis]).view(-1, *(1,) * (-field.axis - 1))
        viewed = self.func(torch.empty_like(source, dtype=torch.int64).copy_(indices), *self.args[1:], **self.kwargs)
        moved = tensors_in([viewed])[self.number]
        gaps = [moved.diff(dim=axis) for axis in range(-moved.ndim, 0)]
        varying = [(axis - moved.ndim, gap) for axis, gap in enumerate(gaps) if gap.any()]
        if len(varying) != 1 or not (varying[0][1] == varying[0][1].flatten()[0]).all():
            return None
        axis, step = varying[0][0], int(varying[0][1].flatten()[0])
        start = field.moved(int(moved.flatten()[0]))
        return replace(start, axis=axis, jump=field.jump * step) if step > 0 else None


WINDOWS = {"conv", "max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"}


def _unless_last_axis(step: Step, field: Field) -> Field | None:
    """Keep the field, unless positions lie along the last axis, which is summed over."""
    return field if field.axis < -1 else None


def _unless_normalised(step: Step, field: Field) -> Field | None:
    return field if field.axis < -len(step.argument(1, "normalized_shape")) else None


def _if_evaluating(step: Step, field: Field) -> Field | None:
    return None if step.argument(5, "training", False) else field


def _append_axis(step: Step, field: Field) -> Field:
    return replace(field, axis=field.axis - 1)


def _pad(step: Step, field: Field) -> Field | None:
    """Move the field by the padding before the first position; a negative one cuts positions off."""
    pads = step.argument(1, "pad")
    place = 2 * (-field.axis - 1)
    return field.moved(-pads[place]) if len(pads) > place else field


def _unless_joined(step: Step, field: Field) -> Field | None:
    axis = step.argument(1, "dim", 0)
    return None if field.axis == (axis if axis < 0 else axis - step.output.ndim) else field


FUNCTION_RULES: dict[str, Callable[[Step, Field], Field | None]] = {
    "linear": _unless_last_axis,
    "layer_norm": _unless_normalised,
    "rms_norm": _unless_normalised,
    "batch_norm": _if_evaluating,
    "one_hot": _append_axis,
    "embedding": _append_axis,
    "cat": _unless_joined,
    "pad": _pad,
}


def _at(value: int | Sequence[int], along: int) -> int:
    return value if isinstance(value, int) else value[along] if len(value) > 1 else value[0]
