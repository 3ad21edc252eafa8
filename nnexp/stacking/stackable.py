"""Which lanes can be trained as one stack: those that the same code, given each its own tensors, computes alike."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nnexp.stacking.stacked_tensors import fixed_tensors
from nnexp.training import Lane

HOOKS = "hooks"  # of a part of the module; they are run without being read
OWN = frozenset(vars(nn.Module())) | {"fused"}

Place = tuple[str, str]  # of an attribute: the path of a part of the module, and its name there


def differing_attributes(lanes: Sequence[Lane]) -> set[Place]:
    """The attributes that are not the same in all modules."""
    attributes = [attributes_of(lane.module) for lane in lanes]
    return {place for place in set().union(*attributes) if len({each.get(place) for each in attributes}) > 1}


def group_stackable(lanes: Sequence[Lane], read: set[Place], known: Mapping[Lane, Any]) -> list[list[Lane]]:
    """Lanes of which the same is known, and whose modules have the same shapes and the same values of the attributes
    that a forward pass reads.
    """
    groups: dict[Any, list[Lane]] = {}
    for lane in lanes:
        attributes = attributes_of(lane.module)
        told = [value for place, value in attributes.items() if place in read or place[1] == HOOKS]
        key = (known[lane], _shapes(lane), tuple(told))
        groups.setdefault(key, []).append(lane)
    return list(groups.values())


def _shapes(lane: Lane) -> Any:
    """All sizes that the lanes of a stack have in common, and the kinds of module that it is made of."""
    module = lane.module
    tensors = [*zip(lane.weights.names, lane.weights.params, strict=True), *fixed_tensors(module)]
    splits = [(t.shape, t.dtype) for split in lane.splits.values() for t in split]
    kinds = [(name, f"{type(child).__module__}.{type(child).__qualname__}") for name, child in module.named_modules()]
    return (lane.data, tuple(splits), tuple((name, t.shape, t.dtype) for name, t in tensors), tuple(kinds))


def attributes_of(module: nn.Module) -> dict[Place, Any]:
    """What the parts of a module hold besides tensors that are registered and other parts, as values to compare."""
    return {
        (path, name): _value(value)
        for path, part in module.named_modules()
        for name, value in [*vars(part).items(), *_slots(part)]
        if name not in OWN
    } | {(path, HOOKS): _value(hooks) for path, part in module.named_modules() if (hooks := _hooks(part))}


def _slots(value: Any) -> list[tuple[str, Any]]:
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [(name, getattr(value, name)) for name in names if hasattr(value, name)]


def _hooks(part: nn.Module) -> list[Any]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [hook for kind in kinds for hook in getattr(part, kind).values()]


def _value(value: Any, depth: int = 6) -> Any:
    """Something equal for equal values, and never for others: what cannot be looked into is equal to itself alone."""
    if isinstance(value, nn.Parameter):
        return "parameter"  # it is registered, here or elsewhere
    if isinstance(value, bool | int | float | complex | str | bytes | None):
        return (type(value).__name__, repr(value))
    if depth == 0:
        return id(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = [*getattr(value, "__dict__", {}).items(), *_slots(value)]
        return (type(value).__qualname__, _value(held, depth - 1))
    for kind, parts in PARTS.items():
        if isinstance(value, kind):
            return (type(value).__qualname__, tuple(_value(part, depth - 1) for part in parts(value)))
    return (type(value).__qualname__, id(value))


def _contents(value: Any) -> list[Any]:
    try:
        return [cell.cell_contents for cell in value.__closure__ or ()]
    except ValueError:  # a cell that is still empty
        return [id(value)]


# What makes up a value of each kind.
PARTS: dict[Any, Callable[[Any], Any]] = {
    Tensor: lambda t: (str(t.dtype), tuple(t.shape), t.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()),
    np.generic: lambda n: (str(n.dtype), n.tobytes()),
    np.ndarray: lambda a: (str(a.dtype), a.shape, hashlib.sha256(np.ascontiguousarray(a).tobytes()).digest()),
    torch.Generator: lambda g: (g.get_state(),),
    torch.dtype | torch.device | type | ModuleType | BuiltinFunctionType: lambda v: (str(v),),
    list | tuple: tuple,
    set | frozenset: lambda v: sorted(v, key=repr),
    dict: lambda v: v.items(),
    FunctionType: lambda f: (f.__module__, f.__code__, f.__defaults__, _contents(f)),
    CodeType: lambda c: (c.co_code, c.co_consts, c.co_names),
    MethodType: lambda m: (m.__func__, type(m.__self__)),
    functools.partial: lambda p: (p.func, p.args, p.keywords),
    weakref.ref: lambda _: (),
}


@contextmanager
def watch_attribute_reads(module: nn.Module, places: set[Place], read: set[Place]) -> Iterator[None]:
    """In the block, each of the named attributes that is read is added to `read`."""
    with ExitStack() as undo:
        for path in {path for path, _ in places}:
            part = module.get_submodule(path)
            own = {name for where, name in places if where == path}
            plain_class = type(part)

            def look(
                self: nn.Module, name: str, path: str = path, own: set[str] = own, plain: type = plain_class
            ) -> Any:
                if name in own:
                    read.add((path, name))
                return plain.__getattribute__(self, name)  # type: ignore[call-arg, arg-type]  # its class, not it

            part.__class__ = type(plain_class.__name__, (plain_class,), {"__getattribute__": look})
            undo.callback(setattr, part, "__class__", plain_class)
        yield
