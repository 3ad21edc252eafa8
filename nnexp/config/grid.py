"""The points of a sweep: every combination of its axes, less what is moved together and what is left out."""

from __future__ import annotations

import itertools
import math
import shlex
from typing import Any

from nnexp.base import ConfigError, did_you_mean, shorten
from nnexp.config.hydra_compose import Composer
from nnexp.config.overrides import LIMIT, Axis, make_axes
from nnexp.config.sweep_options import SweepOptions

GridPoint = dict[str, Any]


def grid_points(axes: list[Axis], command: SweepOptions, composer: Composer) -> tuple[list[GridPoint], list[str]]:
    """A value for each key, and what to say of them. The last key varies fastest, keys that move together where the
    first of them stands.

    Raises ConfigError where there are too many, or none, or `sweep.zip` or `sweep.exclude` does not fit to the axes.
    """
    bundles = _bundles(axes, _groups(command))
    if math.prod(map(len, bundles)) > LIMIT:
        sizes = ", ".join(f"{axis.key} ({len(axis.values)})" for axis in axes if len(axis.values) > 1)
        raise ConfigError(f"the sweep over {shorten(sizes)} has more than {LIMIT} points. Give fewer values.")
    found = [{k: v for part in parts for k, v in part.items()} for parts in itertools.product(*bundles)]
    notes = []
    for text in _texts(command):
        out = _overrides(text, axes, composer)
        left = [p for p in found if not all(_is_among(p[key], values) for key, values in out.items())]
        if len(left) == len(found):
            notes.append(f"sweep.exclude={shorten(text)}: leaves out no point.")
        found = left
    if not found:
        raise ConfigError("sweep.exclude leaves out every point. Leave out fewer.")
    return found, notes


def _is_among(value: Any, values: tuple[Any, ...]) -> bool:
    """Whether it is one of them; true is not 1."""
    return any(type(value) is type(other) and value == other for other in values)


def with_repeats(axes: list[Axis], repeats: int, seed: int) -> list[Axis]:
    """The axes with `repeats` seeds, the first of which is the one that is given, or `seed`.

    Raises ConfigError where several are given.
    """
    given = [axis for axis in axes if axis.key == "seed"]
    if repeats == 1:
        return axes
    if len(given[0].values) > 1 if given else False:
        raise ConfigError("sweep.repeats: seed has several values already. Give all seeds, or one and the repeats.")
    first = given[0].values[0] if given else seed
    if type(first) is not int:
        raise ConfigError(f"sweep.repeats: seed={shorten(str(first))} is no number to count from. Give one.")
    return [*(axis for axis in axes if axis.key != "seed"), Axis("seed", tuple(range(first, first + repeats)))]


def _groups(command: SweepOptions) -> list[list[str]]:
    """The keys that move together, group by group."""
    given = command.zip or []
    groups = [item for item in given if isinstance(item, list)]
    if (groups and len(groups) < len(given)) or not all(groups):
        raise ConfigError("sweep.zip: give a list of keys, or a list of such lists.")
    return groups or ([[str(key) for key in given]] if given else [])


def _bundles(axes: list[Axis], groups: list[list[str]]) -> list[list[GridPoint]]:
    """Axes that move together, made one."""
    by_key = {axis.key: axis for axis in axes}
    first: dict[str, list[str]] = {}
    moved = list(itertools.chain.from_iterable(groups))
    for key in moved:
        if key not in by_key:
            raise ConfigError(f"sweep.zip: {key} is not given.{did_you_mean(key, by_key)} Give its values: {key}=A,B.")
        if moved.count(key) > 1:
            raise ConfigError(f"sweep.zip: {key} stands there twice. Let it move with one group of keys.")
    for group in groups:
        sizes = {key: len(by_key[key].values) for key in group}
        if len(set(sizes.values())) != 1:
            counts = ", ".join(f"{key} has {size}" for key, size in sizes.items())
            raise ConfigError(f"sweep.zip: keys that move together have equally many values; {counts}.")
        first[min(group, key=list(by_key).index)] = group
    bundles = []
    for axis in axes:
        if axis.key in first or axis.key not in moved:
            keys = first.get(axis.key, [axis.key])
            columns = zip(*(by_key[key].values for key in keys), strict=True)
            bundles.append([dict(zip(keys, column, strict=True)) for column in columns])
    return bundles


def _texts(command: SweepOptions) -> list[str]:
    given = command.exclude or []
    return [given] if isinstance(given, str) else given


def _overrides(text: str, axes: list[Axis], composer: Composer) -> dict[str, tuple[Any, ...]]:
    """The values of each key with which a point is left out."""
    try:
        found = make_axes(shlex.split(text), composer, multirun=True)
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"sweep.exclude={shorten(text)}: {error}") from None
    if not found:
        raise ConfigError("sweep.exclude: give overrides, such as 'model=gru seed=3'.")
    known = {axis.key for axis in axes}
    for axis in found:
        if axis.key not in known:
            advice = f"{did_you_mean(axis.key, known)} Only keys that have values in the sweep can be named."
            raise ConfigError(f"sweep.exclude={shorten(text)}: {axis.key} is not given.{advice}")
    return {axis.key: axis.values for axis in found}
