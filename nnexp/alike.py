"""Which lanes can be trained as one stack: those that the same code, given each its own tensors, computes alike."""

from __future__ import annotations

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

from nnexp.lane import FirstStep, Lane
from nnexp.spec import DataSpec
from nnexp.stack import fixed_tensors

# How far a lane's loss and gradient in the stack may be from those of its plain module, relative.
TOLERANCE = {32: 1e-3, 64: 1e-8, "bf16": 0.1}
OWN = frozenset(vars(nn.Module())) | {"fused"}

Place = tuple[str, str]  # of an attribute: the path of a part of the module, and its name there


def differing(lanes: Sequence[Lane]) -> set[Place]:
    """The attributes that are not the same in all modules."""
    attributes = [attributes_of(lane.module) for lane in lanes]
    return {place for place in set().union(*attributes) if len({each.get(place) for each in attributes}) > 1}


def group(lanes: Sequence[Lane], read: set[Place], known: Mapping[Lane, Any]) -> list[list[Lane]]:
    """Lanes of which the same is known, and whose modules have the same shapes and the same values of the attributes
    that a forward pass reads.
    """
    groups: dict[Any, list[Lane]] = {}
    for lane in lanes:
        attributes = attributes_of(lane.module)
        key = (known[lane], _shapes(lane), *(attributes.get(place) for place in sorted(read)))
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
        for name, value in vars(part).items()
        if name not in OWN
    }


def _value(value: Any, depth: int = 6) -> Any:
    """Something equal for equal values, and never for others: what cannot be looked into is equal to itself alone."""
    if isinstance(value, nn.Parameter):
        return "parameter"  # it is registered, here or elsewhere
    if isinstance(value, bool | int | float | complex | str | bytes | None):
        return (type(value).__name__, repr(value))
    if depth == 0:
        return id(value)
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
    DataSpec: lambda spec: (repr(spec),),
}


@contextmanager
def watched(module: nn.Module, places: set[Place], read: set[Place]) -> Iterator[None]:
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


def agrees(lane: Lane, first: FirstStep, loss: Tensor, gradient: Tensor) -> bool:
    """Whether the stack's loss () and gradient (P,) are the plain module's. What is not finite in both agrees."""
    mine, theirs = torch.cat([first.gradient, first.loss.view(1)]), torch.cat([gradient, loss.view(1)])
    if not mine.isfinite().all() or not theirs.isfinite().all():
        return bool(first.loss.isfinite() == loss.isfinite())
    norm = torch.linalg.vector_norm
    return bool(norm(mine - theirs) <= TOLERANCE[lane.job.settings.precision] * norm(mine))
