"""The points of a sweep: the Cartesian product of its axes, with zipped axes, exclusions and repeats."""

from __future__ import annotations

import itertools
import math
import shlex
from typing import Any

from nnexp.base import ConfigError, shorten, suggestion
from nnexp.config.hydra_compose import Composer
from nnexp.config.overrides import MAX_POINTS, Axis, make_axes
from nnexp.config.sweep_options import SweepOptions

GridPoint = dict[str, Any]


def grid_points(axes: list[Axis], options: SweepOptions, composer: Composer) -> tuple[list[GridPoint], list[str]]:
    """Return the points of a sweep, a value for each key, and notes for the user.

    The last axis varies fastest; zipped axes take the position of the first of them.

    Raises ConfigError where there are too many points or none, or `sweep.zip` or `sweep.exclude` does not match the
    axes.
    """
    columns = _zip_axes(axes, _zip_groups(options))
    if math.prod(map(len, columns)) > MAX_POINTS:
        sizes = ", ".join(f"{axis.key} ({len(axis.values)})" for axis in axes if len(axis.values) > 1)
        raise ConfigError(f"the sweep over {shorten(sizes)} has more than {MAX_POINTS} points. Give fewer values.")
    points = [{k: v for part in parts for k, v in part.items()} for parts in itertools.product(*columns)]
    notes = []
    for text in [options.exclude] if isinstance(options.exclude, str) else options.exclude or []:
        excluded = _parse_exclusion(text, axes, composer)
        remaining = [p for p in points if not all(_contains(values, p[key]) for key, values in excluded.items())]
        if len(remaining) == len(points):
            notes.append(f"sweep.exclude={shorten(text)}: excludes no point.")
        points = remaining
    if not points:
        raise ConfigError("sweep.exclude excludes every point. Exclude fewer.")
    return points, notes


def _contains(values: tuple[Any, ...], value: Any) -> bool:
    """Return True where `value` is one of `values` in type as well, so that True does not equal 1."""
    return any(type(value) is type(other) and value == other for other in values)


def with_repeats(axes: list[Axis], repeats: int, seed: int) -> list[Axis]:
    """Return the axes with a last axis of `repeats` consecutive seeds; unchanged where `repeats` is 1.

    Raises ConfigError where the axes hold several seeds already, or one that is not an integer.

    Args:
        axes: of the sweep; may hold a `seed` with one value, which becomes the first seed.
        repeats: number of seeds.
        seed: the first seed where the axes hold none.
    """
    if repeats == 1:
        return axes
    seeds = next((axis.values for axis in axes if axis.key == "seed"), (seed,))
    if len(seeds) > 1:
        raise ConfigError("sweep.repeats: seed has several values already. Give all seeds, or one and the repeats.")
    first = seeds[0]
    if type(first) is not int:
        raise ConfigError(f"sweep.repeats: seed={shorten(str(first))} is not an integer to count from. Give one.")
    return [*(axis for axis in axes if axis.key != "seed"), Axis("seed", tuple(range(first, first + repeats)))]


def _zip_groups(options: SweepOptions) -> list[list[str]]:
    """Return the groups of keys in `sweep.zip`."""
    items = options.zip or []
    groups = [item for item in items if isinstance(item, list)]
    if (groups and len(groups) < len(items)) or not all(groups):
        raise ConfigError("sweep.zip: give a list of keys, or a list of such lists.")
    return groups or ([[str(key) for key in items]] if items else [])


def _zip_axes(axes: list[Axis], groups: list[list[str]]) -> list[list[GridPoint]]:
    """Return a list of partial points for each axis that is not zipped, and for each group of zipped axes."""
    by_key = {axis.key: axis for axis in axes}
    _check_groups(groups, by_key)
    group_at = {min(group, key=list(by_key).index): group for group in groups}
    zipped = set(itertools.chain.from_iterable(groups))
    columns = []
    for axis in axes:
        if axis.key in group_at or axis.key not in zipped:
            keys = group_at.get(axis.key, [axis.key])
            rows = zip(*(by_key[key].values for key in keys), strict=True)
            columns.append([dict(zip(keys, row, strict=True)) for row in rows])
    return columns


def _check_groups(groups: list[list[str]], by_key: dict[str, Axis]) -> None:
    """Raise ConfigError for a zipped key that has no values or is listed twice, and for unequal numbers of values."""
    zipped = list(itertools.chain.from_iterable(groups))
    for key in zipped:
        if key not in by_key:
            raise ConfigError(f"sweep.zip: {key} is not given.{suggestion(key, by_key)} Give its values: {key}=A,B.")
        if zipped.count(key) > 1:
            raise ConfigError(f"sweep.zip: {key} is listed twice. List it in one group only.")
    for group in groups:
        sizes = {key: len(by_key[key].values) for key in group}
        if len(set(sizes.values())) != 1:
            counts = ", ".join(f"{key} has {size}" for key, size in sizes.items())
            raise ConfigError(f"sweep.zip: zipped keys need equally many values; {counts}.")


def _parse_exclusion(text: str, axes: list[Axis], composer: Composer) -> dict[str, tuple[Any, ...]]:
    """Return the values by key whose combinations an item of `sweep.exclude` excludes."""
    try:
        excluded = make_axes(shlex.split(text), composer, multirun=True)
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"sweep.exclude={shorten(text)}: {error}") from None
    if not excluded:
        raise ConfigError("sweep.exclude: give overrides, such as 'model=gru seed=3'.")
    keys = {axis.key for axis in axes}
    for axis in excluded:
        if axis.key not in keys:
            advice = f"{suggestion(axis.key, keys)} Only keys that have values in the sweep can be excluded."
            raise ConfigError(f"sweep.exclude={shorten(text)}: {axis.key} is not given.{advice}")
    return {axis.key: axis.values for axis in excluded}
