"""Receptive fields in closed form, propagated through every torch function that a model calls.

    r <- r + (k - 1) * dilation * j,  j <- j * stride    (Araujo, Norris & Sim, 2019, doi:10.23915/distill.00021)

r is the size of the field along one axis of the input, j the distance between the fields of neighbouring positions.
Fields are propagated through convolutions, poolings, and operations that treat each position alone: those that torch
tags as pointwise, and views, whose effect on positions is found by applying them to a tensor of position indices. Where
several paths meet, the field reaches from the first of their positions to the last. After any other operation it is
undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nnexp.probing.field_rules import Field, Operations, Step
from nnexp.probing.hooks import Call, record_calls
from nnexp.probing.op_trace import tensors_in

Fields = tuple[Field | None, ...]  # one for each axis of the input; None where undefined


def receptive_field_formulas(module: nn.Module, x: Tensor, axes: Sequence[int]) -> list[tuple[Call, list[int | None]]]:
    """Run one forward pass and return the calls of all layers, each with the field sizes of its output.

        formulas = receptive_field_formulas(view.module, x, axes=[2, 3])  # images (B, C, H, W)
        sizes = {call.name: size for call, size in formulas}  # such as {"0": [3, 3]}

    Args:
        module: the model.
        x: an input.
        axes: axes of x along which fields are wanted.

    Returns:
        For each call one size per axis, None where the field is undefined.
    """
    tracer = FieldTracer(module, x, axes)
    with torch.no_grad(), record_calls(module) as calls, tracer:
        module(x)
    return [(call, [field.size if field else None for field in tracer.fields_of(call.output)]) for call in calls]


class FieldTracer(TorchFunctionMode):
    """Computes the fields of all tensors that depend on x within its block.

    Args:
        module: the model; its weights and buffers do not depend on x.
        x: the input.
        axes: axes of x along which fields are wanted.
    """

    def __init__(self, module: nn.Module, x: Tensor, axes: Sequence[int]) -> None:
        super().__init__()
        self._undefined: Fields = (None,) * len(axes)
        self._fields: dict[int, tuple[Tensor, Fields | None]] = {}  # holds the tensors, so that ids stay unique
        for constant in (*module.parameters(), *module.buffers()):
            self._store(constant, None)
        self._store(x, tuple(Field(axis - x.ndim) for axis in axes))

    def fields_of(self, tensor: Tensor) -> Fields:
        """Return the fields of a tensor; undefined for one that was created outside the block."""
        return self._fields.get(id(tensor), (tensor, self._undefined))[1] or self._undefined

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with Operations() as operations:
            result = func(*args, **kwargs)
        is_in_place = getattr(func, "__name__", "")[-1:] == "_"
        new = [t for t in tensors_in([result]) if is_in_place or id(t) not in self._fields]
        inputs = tensors_in([*args, *kwargs.values()])
        sources = [t for t in inputs if self._fields.get(id(t), (t, ()))[1] is not None]
        for number, output in enumerate(new):
            step = Step(func, args, kwargs, output, number, operations)
            fields = [[step.field(t, self.fields_of(t)[axis]) for t in sources] for axis in range(len(self._undefined))]
            self._store(output, tuple(map(_merge, fields)) if sources else None)
        return result

    def _store(self, tensor: Tensor, fields: Fields | None) -> None:
        self._fields[id(tensor)] = (tensor, fields)


def _merge(fields: Sequence[Field | None]) -> Field | None:
    """Return the field from the start of the first of several to the end of the last.

    It is undefined where one of them is, or where their axes or jumps differ.
    """
    defined = [field for field in fields if field is not None]
    if len(defined) < len(fields) or len({(field.axis, field.jump) for field in defined}) != 1:
        return None
    return replace(defined[0], first=min(f.first for f in defined), last=max(f.last for f in defined))
