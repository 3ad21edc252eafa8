"""Attributes of trainers that the lanes of a stack must share, because the code of one trainer updates them all."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any

from nnexp.stacking.stackable import value_key
from nnexp.training import LANE_VALUES, Lane, Trainer

OF_HARNESS = {field.name for field in dataclasses.fields(Trainer)}.difference(LANE_VALUES)


def trainer_values(lane: Lane) -> dict[str, Any]:
    """Return the attributes of a lane's trainer, as values to compare."""
    return {name: value_key(value) for name, value in vars(lane.trainer).items()}


def differing_trainer_values(lanes: Sequence[Lane]) -> set[str]:
    """Return the attributes that differ between the lanes' trainers and that the update of a stack reads from one.

    These are the values that `init` and `update` read themselves, in whatever branch; they are found in the code, so
    that a value counts which is read at a later step only.
    """
    if not lanes:
        return set()
    values = [trainer_values(lane) for lane in lanes]
    needed = OF_HARNESS | names_read(type(lanes[0].trainer))  # they have one trainer plugin
    return {name for name in needed if len({each.get(name) for each in values}) > 1}


def names_read(trainer: type) -> set[str]:
    """Return all names that occur in `init` and `update` of a trainer and in the functions of its file that they call.

    >>> "beta1" in names_read(plugin("trainer", "adam"))
    True
    """
    module = vars(sys.modules.get(trainer.__module__, object))
    names, found = ["init", "update"], set[str]()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            functions = [vars(kind)[name] for kind in trainer.__mro__ if name in vars(kind)] or [module.get(name)]
            names += [each for function in functions for code in _codes(function) for each in code.co_names]
    return found


def _codes(function: Any) -> Iterator[CodeType]:
    """Yield the code of a function, method or property, and of the functions inside it."""
    function = getattr(function, "fget", None) or getattr(function, "__wrapped__", None) or function
    codes = [code] if isinstance(code := getattr(function, "__code__", None), CodeType) else []
    while codes:
        code = codes.pop()
        yield code
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
