"""Overrides as Hydra reads them -> axes: the keys of a command with the values that each takes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, QuotedString, RangeSweep, Transformer
from hydra.errors import HydraException

from nnexp.base import ConfigError, shorten
from nnexp.config.hydra_compose import Composer
from nnexp.config.job import GROUPS, PROBE
from nnexp.config.yaml_source import one_line

LIMIT = 100_000  # points of a sweep


@dataclass(frozen=True)
class Axis:
    """One key of the command line with the values it takes, as Hydra read them."""

    key: str
    values: tuple[Any, ...]


def make_axes(overrides: list[str], composer: Composer, *, multirun: bool) -> list[Axis]:
    """An axis for each key, in their order; of one key given twice the last counts.

    Raises ConfigError where an override is not understood, or has several values and this is no multirun.
    """
    parsed = [item for text in overrides for item in _parse(text)]
    for override in parsed:
        _check_form(override)
    last = {override.key_or_group: override for override in parsed}
    return [Axis(key, _values(override, composer, LIMIT if multirun else 1)) for key, override in last.items()]


def sweep_axes(params: dict[str, Any], composer: Composer) -> list[Axis]:
    """The axes of the sweep that an experiment's file names. Raises ConfigError as `make_axes` does."""
    if "experiment" in params:
        raise ConfigError("hydra.sweeper.params.experiment: an experiment sweeps no experiments. Remove this key.")
    texts = [f"{key}={value if isinstance(value, str) else _written(key, value)}" for key, value in params.items()]
    return make_axes(texts, composer, multirun=True)


def _written(key: str, value: Any) -> str:
    try:
        if key in GROUPS and isinstance(value, list):  # of names, for no choice is a list
            return ",".join(map(str, map(Transformer.str, value)))
        return str(Transformer.str(value))
    except AssertionError:
        raise ConfigError(
            f"hydra.sweeper.params: {shorten(repr(value))} is no value. Quote it if text is meant."
        ) from None


def _parse(text: str) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides([text])
    except (HydraException, ValueError, ArithmeticError, RecursionError) as error:
        reason = "" if "missing EQUAL" in str(error) else f" {shorten(one_line(error).split(' expecting')[0])}."
        advice = "Write KEY=VALUE, with quotes around a value that holds spaces, commas, brackets, =, ~ or $"
        raise ConfigError(f"{shorten(text)}: not a key with a value.{reason} {advice}.") from None


def _check_form(override: Override) -> None:
    """Refuse forms of Hydra's that mean nothing here. Raises ConfigError."""
    key, text = override.key_or_group, shorten(override.input_line or "")
    if override.is_hydra_override():
        advice = "Leave it out. --config-dir adds a folder of configs, runs= says where runs go"
        raise ConfigError(f"{text}: nnexp runs and records jobs by itself; Hydra's own keys do nothing. {advice}.")
    if override.package is not None or "/" in key:
        raise ConfigError(f"{text}: choose a plugin with KIND=NAME, where KIND is one of {', '.join(GROUPS)}.")
    if override.is_delete():
        raise ConfigError(f"{text}: a key cannot be deleted. Set it, or leave it out to get its default.")
    if override.is_interval_sweep():
        raise ConfigError(f"{text}: an interval has no points. Give values: a,b,c or range(start,stop,step).")


def _values(override: Override, composer: Composer, limit: int) -> tuple[Any, ...]:
    """The values of an axis; one more than `limit` is never looked at."""
    key, text = override.key_or_group, shorten(override.input_line or "")
    if key.partition(".")[0] == PROBE and override.is_sweep_override():
        advice = f"Choose several probes by {PROBE}=[NAME,NAME], and give a key of theirs one value"
        raise ConfigError(f"{text}: probes change no number, so they are not swept. {advice}.")
    if key == PROBE:
        return (_probes(override.value()),)
    if not override.is_sweep_override():
        values: tuple[Any, ...] = (override.value(),)
    elif isinstance(glob := override.value(), Glob):
        values = tuple(glob.filter(composer.options(key) if key in GROUPS else []))
    else:
        values = _points(override, text, limit)
    if not values:
        raise ConfigError(f"{text}: no value matches.")
    if len(values) > limit:
        if limit == 1:
            raise ConfigError(f"{key} has several values: add -m for a sweep, or quote a value with commas.")
        raise ConfigError(f"{text}: more than {limit} values. Give fewer, or a larger step.")
    return tuple(map(_name, values)) if key in GROUPS else values


def _points(override: Override, text: str, limit: int) -> tuple[Any, ...]:
    sweep = override.value()
    try:
        if isinstance(sweep, RangeSweep) and sweep.shuffle:  # Hydra makes a list of all of it
            points = tuple(itertools.islice(sweep.range(), limit + 1))
            if len(points) > limit:
                return points
        iterator = override.sweep_iterator(transformer=Transformer.identity)
        return tuple(map(_unquote, itertools.islice(iterator, limit + 1)))
    except (HydraException, ValueError, ArithmeticError) as error:
        advice = "Write range(start,stop,step) with a step other than 0"
        raise ConfigError(f"{text}: {shorten(one_line(error))}. {advice}.") from None


def _unquote(value: Any) -> Any:
    if isinstance(value, list):
        return [_unquote(item) for item in value]
    return value.text if isinstance(value, QuotedString) else value


def _probes(value: Any) -> tuple[Any, ...]:
    """The names of probes: of one, of a list, or none."""
    names = [] if value is None else value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(str(_name(_unquote(name))) for name in names))


def _name(value: Any) -> Any:
    """A choice is a name: `experiment=2026` is text, though Hydra reads a number."""
    return str(value).lower() if isinstance(value, int | float) else value
