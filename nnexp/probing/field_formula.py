"""How much of its input a number can see, in closed form, followed through whatever a model calls.

    r <- r + (k - 1) * dilation * j,  j <- j * stride    (Araujo, Norris & Sim, 2019, doi:10.23915/distill.00021)

r is the size of the field along one axis of the input, j how far apart the fields of two neighbours are. It is defined
where a number was reached through convolutions, poolings, and what treats every position by itself: operations that
torch itself marks as pointwise, and views, whose way with positions is found out by a tensor of places. Of several
ways the longest counts. Anything else makes it undefined, for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from nnexp.probing.hooks import Call, watching

COPIES = {"aten::clone", "aten::_to_copy", "aten::_unsafe_view", "aten::lift_fresh"}


@dataclass(frozen=True)
class Field:
    """The field of each number of a tensor, along one axis of the input.

    Args:
        axis: of the tensor, counted from its end, along which the fields move.
        size: r.
        jump: j.
    """

    axis: int
    size: int = 1
    jump: int = 1

    def through(self, kernel: int, stride: int = 1, dilation: int = 1) -> Field:
        """After a convolution or a pooling."""
        return Field(self.axis, self.size + (kernel - 1) * dilation * self.jump, self.jump * stride)


Fields = tuple[Field | None, ...]  # one for each axis of the input; None where it is not defined


def receptive_field_formulas(module: nn.Module, x: Tensor, axes: Sequence[int]) -> list[tuple[Call, list[int | None]]]:
    """The calls that layers get of x, and for each the sizes of the field of what it gave, along these axes of x."""
    follow = FieldTracer(module, x, axes)
    with torch.no_grad(), watching(module) as calls, follow:
        module(x)
    return [(call, [field.size if field else None for field in follow.of(call.output)]) for call in calls]


class FieldTracer(TorchFunctionMode):
    """Keeps the fields of all tensors that come of x in its block.

    Args:
        module: its weights and buffers see nothing of x.
        x: the input.
        axes: of x, along which fields are wanted.
    """

    def __init__(self, module: nn.Module, x: Tensor, axes: Sequence[int]) -> None:
        super().__init__()
        self._undefined: Fields = (None,) * len(axes)
        self._known: dict[int, tuple[Tensor, Fields | None]] = {}  # tensors are kept, so that no id is used twice
        for constant in (*module.parameters(), *module.buffers()):
            self._keep(constant, None)
        self._keep(x, tuple(Field(axis - x.ndim) for axis in axes))

    def of(self, tensor: Tensor) -> Fields:
        """Of a tensor that nobody saw being made, nothing is defined."""
        return self._known.get(id(tensor), (tensor, self._undefined))[1] or self._undefined

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with Operations() as made_of:
            result = func(*args, **kwargs)
        new = [t for t in _tensors([result]) if id(t) not in self._known or getattr(func, "__name__", "")[-1:] == "_"]
        given = list(_tensors([*args, *kwargs.values()]))
        sources = [t for t in given if self._known.get(id(t), (t, ()))[1] is not None]
        for number, output in enumerate(new):
            step = Step(func, args, kwargs, output, number, made_of)
            fields = [[step.field(t, self.of(t)[axis]) for t in sources] for axis in range(len(self._undefined))]
            self._keep(output, tuple(map(_longest, fields)) if sources else None)
        return result

    def _keep(self, tensor: Tensor, fields: Fields | None) -> None:
        self._known[id(tensor)] = (tensor, fields)


class Operations(TorchDispatchMode):
    """What the functions that are called in the block are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would import its compiler, which takes a second, only to switch it off here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))

    @property
    def is_pointwise(self) -> bool:
        return all(torch.Tag.pointwise in each.tags or each._schema.name in COPIES for each in self.seen)

    @property
    def is_view(self) -> bool:
        return all(each.is_view or each._schema.name in COPIES for each in self.seen)


@dataclass(frozen=True)
class Step:
    """One call of a function of torch, and one of the tensors that it gave."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Tensor
    number: int
    made_of: Operations

    def field(self, source: Tensor, field: Field | None) -> Field | None:
        """What becomes of the field of one of the tensors that were given."""
        name = getattr(self.func, "__name__", "").strip("_")
        if field is None or (self._is_window(name) and source is not self.given(0, "input")):
            return None
        if self._is_window(name):
            return self._through(name, source, field)
        if name in OTHERS:
            return OTHERS[name](self, field)
        if self.made_of.is_pointwise:
            is_spread = source.shape[field.axis] != self.output.shape[field.axis]
            return None if is_spread else field
        return self._seen_through(source, field) if self.made_of.is_view and source is self.args[0] else None

    def given(self, place: int, name: str, default: Any = None) -> Any:
        """An argument, by place or by name."""
        return self.kwargs.get(name, self.args[place] if len(self.args) > place else default)

    @staticmethod
    def _is_window(name: str) -> bool:
        return name[:-2] in WINDOWS and name[-1:] == "d"

    def _through(self, name: str, source: Tensor, field: Field) -> Field | None:
        kind, dimensions = name[:-2], int(name[-2])
        along = field.axis + dimensions
        if along < 0:  # positions as channels or as rows: all are mixed
            return None
        if kind.startswith("adaptive"):
            ratio, rest = divmod(source.shape[field.axis], self.output.shape[field.axis])
            return None if rest else field.through(ratio, ratio)
        if kind == "conv":
            kernel = self.given(1, "weight").shape[2 + along]
            stride, dilation = self.given(3, "stride", 1), self.given(5, "dilation", 1)
            return field.through(kernel, _at(stride, along), _at(dilation, along))
        kernel = _at(self.given(1, "kernel_size"), along)
        stride = _at(self.given(2, "stride") or kernel, along)
        return field.through(kernel, stride, _at(self.given(4, "dilation", 1), along) if kind == "max_pool" else 1)

    def _seen_through(self, source: Tensor, field: Field) -> Field | None:
        """A view: the same function of a tensor of places tells to which axis they went, and how far they lie apart."""
        places = torch.arange(source.shape[field.axis]).view(-1, *(1,) * (-field.axis - 1))
        made = self.func(torch.empty_like(source, dtype=torch.int64).copy_(places), *self.args[1:], **self.kwargs)
        there = list(_tensors([made]))[self.number]
        gaps = [there.diff(dim=axis) for axis in range(-there.ndim, 0)]
        moving = [(axis - there.ndim, gap) for axis, gap in enumerate(gaps) if gap.any()]
        if len(moving) != 1 or not (moving[0][1] == moving[0][1].flatten()[0]).all():
            return None
        axis, step = moving[0][0], int(moving[0][1].flatten()[0])
        return replace(field, axis=axis, jump=field.jump * step) if step > 0 else None


WINDOWS = {"conv", "max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"}


def _last_axis(step: Step, field: Field) -> Field | None:
    """Sums over the last axis."""
    return field if field.axis < -1 else None


def _normalised(step: Step, field: Field) -> Field | None:
    return field if field.axis < -len(step.given(1, "normalized_shape")) else None


def _in_evaluation(step: Step, field: Field) -> Field | None:
    return None if step.given(5, "training", False) else field


def _new_last(step: Step, field: Field) -> Field:
    return replace(field, axis=field.axis - 1)


def _joined(step: Step, field: Field) -> Field | None:
    axis = step.given(1, "dim", 0)
    return None if field.axis == (axis if axis < 0 else axis - step.output.ndim) else field


OTHERS: dict[str, Callable[[Step, Field], Field | None]] = {
    "linear": _last_axis,
    "layer_norm": _normalised,
    "rms_norm": _normalised,
    "batch_norm": _in_evaluation,
    "one_hot": _new_last,
    "embedding": _new_last,
    "cat": _joined,
    "pad": lambda step, field: field,
}


def _longest(fields: Sequence[Field | None]) -> Field | None:
    """Of several ways; not defined where one is not, or where they do not move alike."""
    defined = [field for field in fields if field is not None]
    if len(defined) < len(fields) or len({(field.axis, field.jump) for field in defined}) != 1:
        return None
    return max(defined, key=lambda field: field.size)


def _at(value: int | Sequence[int], along: int) -> int:
    return value if isinstance(value, int) else value[along] if len(value) > 1 else value[0]


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    """Those among some values, and in the lists and tuples among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
