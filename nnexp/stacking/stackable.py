"""Grouping of lanes that can be trained as one stack: the same code computes them all, given their tensors."""

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

HOOKS = "hooks"  # of a submodule; they run without being read as attributes
MODULE_ATTRIBUTES = frozenset(vars(nn.Module())) | {"fused"}  # not compared

AttributeKey = tuple[str, str]  # path of a submodule, and name of an attribute in it


def differing_attributes(lanes: Sequence[Lane]) -> set[AttributeKey]:
    """Return the attributes whose values are not equal in the modules of all lanes."""
    attributes = [attributes_of(lane.module) for lane in lanes]
    return {key for key in set().union(*attributes) if len({each.get(key) for each in attributes}) > 1}


def group_stackable(lanes: Sequence[Lane], read: set[AttributeKey], extra: Mapping[Lane, Any]) -> list[list[Lane]]:
    """Group lanes whose modules have the same shapes and the same values of the attributes that a forward pass reads.

    Args:
        lanes: the lanes.
        read: attributes that a forward pass reads, from `watch_attribute_reads`.
        extra: further values by lane that must be equal within a group, such as the step.
    """
    groups: dict[Any, list[Lane]] = {}
    for lane in lanes:
        attributes = attributes_of(lane.module)
        relevant = [value for key, value in attributes.items() if key in read or key[1] == HOOKS]
        groups.setdefault((extra[lane], _shapes(lane), tuple(relevant)), []).append(lane)
    return list(groups.values())


def _shapes(lane: Lane) -> Any:
    """Return the shapes and dtypes of weights and data, and the module classes, which a stack requires to be equal."""
    module = lane.module
    tensors = [*zip(lane.weights.names, lane.weights.params, strict=True), *fixed_tensors(module)]
    splits = [(t.shape, t.dtype) for split in lane.splits.values() for t in split]
    kinds = [(name, f"{type(child).__module__}.{type(child).__qualname__}") for name, child in module.named_modules()]
    return (lane.data, tuple(splits), tuple((name, t.shape, t.dtype) for name, t in tensors), tuple(kinds))


def attributes_of(module: nn.Module) -> dict[AttributeKey, Any]:
    """Return the plain attributes of a module and its submodules, as values to compare.

    Registered tensors and submodules are left out; registered hooks are included under the name `HOOKS`.
    """
    return {
        (path, name): value_key(value)
        for path, part in module.named_modules()
        for name, value in [*vars(part).items(), *_slots(part)]
        if name not in MODULE_ATTRIBUTES
    } | {(path, HOOKS): value_key(hooks) for path, part in module.named_modules() if (hooks := _hooks(part))}


def _slots(value: Any) -> list[tuple[str, Any]]:
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [(name, getattr(value, name)) for name in names if hasattr(value, name)]


def _hooks(part: nn.Module) -> list[Any]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [hook for kind in kinds for hook in getattr(part, kind).values()]


def value_key(value: Any, depth: int = 6) -> Any:
    """Return a key that is equal for equal values and for no others; an opaque object equals itself only."""
    if isinstance(value, nn.Parameter):
        return "parameter"  # it is registered in some submodule
    if isinstance(value, bool | int | float | complex | str | bytes | None):
        return (type(value).__name__, repr(value))
    if depth == 0:
        return id(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = [*getattr(value, "__dict__", {}).items(), *_slots(value)]
        return (type(value).__qualname__, value_key(held, depth - 1))
    for kind, parts in PARTS.items():
        if isinstance(value, kind):
            return (type(value).__qualname__, tuple(value_key(part, depth - 1) for part in parts(value)))
    return (type(value).__qualname__, id(value))


def _contents(value: Any) -> list[Any]:
    try:
        return [cell.cell_contents for cell in value.__closure__ or ()]
    except ValueError:  # a cell that is still empty
        return [id(value)]


# Components that decide whether two values of a type are equal.
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
def watch_attribute_reads(module: nn.Module, keys: set[AttributeKey], read: set[AttributeKey]) -> Iterator[None]:
    """Record which attributes of a module are read within the block.

        read: set[AttributeKey] = set()
        with watch_attribute_reads(module, differing_attributes(lanes), read):
            module(x)

    Args:
        module: the module; the classes of its submodules are replaced within the block.
        keys: attributes to watch.
        read: receives the watched attributes that were read.
    """
    with ExitStack() as undo:
        for path in {path for path, _ in keys}:
            submodule = module.get_submodule(path)
            watched = {name for where, name in keys if where == path}
            plain_class = type(submodule)

            def getattribute(
                self: nn.Module, name: str, path: str = path, watched: set[str] = watched, plain: type = plain_class
            ) -> Any:
                if name in watched:
                    read.add((path, name))
                return plain.__getattribute__(self, name)  # type: ignore[call-arg, arg-type]  # a class, not an instance

            submodule.__class__ = type(plain_class.__name__, (plain_class,), {"__getattribute__": getattribute})
            undo.callback(setattr, submodule, "__class__", plain_class)
        yield
