"""Parse command-line overrides with Hydra's grammar into axes: each key with the values that it takes."""

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

MAX_POINTS = 100_000  # of a sweep


@dataclass(frozen=True)
class Axis:
    """A key with its values; several values make a sweep over it.

    Args:
        key: dotted, as on the command line, without `+`.
        values: as parsed by Hydra, not yet checked against a schema.
    """

    key: str
    values: tuple[Any, ...]


def make_axes(overrides: list[str], composer: Composer, *, multirun: bool) -> list[Axis]:
    """Return one axis for each key, in order of first appearance; the last override of a key counts.

    Raises ConfigError where an override cannot be parsed, or has several values without `multirun`.

    Args:
        overrides: `KEY=VALUE` texts; `KEY=A,B`, `KEY=range(4)`, `KEY=glob(*)` and the like sweep over values.
        composer: lists the options that `glob` selects from.
        multirun: allow several values.
    """
    parsed = [item for text in overrides for item in _parse(text)]
    for override in parsed:
        _check_form(override)
    last = {override.key_or_group: override for override in parsed}
    return [Axis(key, _values(override, composer, MAX_POINTS if multirun else 1)) for key, override in last.items()]


def sweep_axes(params: dict[str, Any], composer: Composer) -> list[Axis]:
    """Return the axes in an experiment's `hydra.sweeper.params`. Raises ConfigError as `make_axes` does."""
    if "experiment" in params:
        raise ConfigError("hydra.sweeper.params.experiment: an experiment cannot sweep experiments. Remove this key.")
    texts = [f"{key}={value if isinstance(value, str) else _value_text(key, value)}" for key, value in params.items()]
    return make_axes(texts, composer, multirun=True)


def _value_text(key: str, value: Any) -> str:
    try:
        if key in GROUPS and isinstance(value, list):  # a list of names: a sweep over choices
            return ",".join(map(str, map(Transformer.str, value)))
        return str(Transformer.str(value))
    except AssertionError:
        raise ConfigError(
            f"hydra.sweeper.params: invalid value {shorten(repr(value))}. Quote it if text is meant."
        ) from None


def _parse(text: str) -> list[Override]:
    try:
        return OverridesParser.create().parse_overrides([text])
    except (HydraException, ValueError, ArithmeticError, RecursionError) as error:
        has_reason = not any(text in str(error) for text in ("missing EQUAL", "<EOF>", "viable", "NoViable"))
        reason = f" {shorten(one_line(error).split(' expecting')[0])}." if has_reason else ""
        advice = "Write KEY=VALUE, with quotes around a value that contains spaces, commas, brackets, =, ~ or $"
        raise ConfigError(f"{shorten(text).strip() or repr(text)}: not a key with a value.{reason} {advice}.") from None


def _check_form(override: Override) -> None:
    """Raise ConfigError for forms of Hydra's grammar that are not supported."""
    key, text = override.key_or_group, shorten(override.input_line or "")
    if override.is_hydra_override():
        advice = "Remove it; --config-dir adds a folder of configs, runs= sets the folder of runs"
        raise ConfigError(f"{text}: nnexp runs and records jobs itself, so Hydra's own keys have no effect. {advice}.")
    if override.package is not None or "/" in key:
        raise ConfigError(f"{text}: choose a plugin with KIND=NAME, where KIND is one of {', '.join(GROUPS)}.")
    if override.is_delete():
        raise ConfigError(f"{text}: a key cannot be deleted. Set it, or omit it to use its default.")
    if override.is_interval_sweep():
        raise ConfigError(f"{text}: an interval has no points. Give values: a,b,c or range(start,stop,step).")


def _values(override: Override, composer: Composer, limit: int) -> tuple[Any, ...]:
    """Return the values of an axis. Raises ConfigError for more than `limit`, without enumerating them all."""
    key, text = override.key_or_group, shorten(override.input_line or "")
    if key.partition(".")[0] == PROBE and override.is_sweep_override():
        advice = f"Choose several probes by {PROBE}=[NAME,NAME], and give each of their keys one value"
        raise ConfigError(f"{text}: probes do not affect training, so they are not swept. {advice}.")
    if key == PROBE:
        return (_probe_names(override.value()),)
    if not override.is_sweep_override():
        values: tuple[Any, ...] = (override.value(),)
    elif isinstance(glob := override.value(), Glob):
        values = tuple(glob.filter(composer.options(key) if key in GROUPS else []))
    else:
        values = _sweep_values(override, text, limit)
    if not values:
        raise ConfigError(f"{text}: no value matches.")
    if len(values) > limit:
        if limit == 1:
            raise ConfigError(f"{key} has several values: add -m for a sweep, or quote a value with commas.")
        raise ConfigError(f"{text}: more than {limit} values. Give fewer, or a larger step.")
    return tuple(map(_option_name, values)) if key in GROUPS else values


def _sweep_values(override: Override, text: str, limit: int) -> tuple[Any, ...]:
    sweep = override.value()
    try:
        if isinstance(sweep, RangeSweep) and sweep.shuffle:  # Hydra would build the whole list to shuffle it
            values = tuple(itertools.islice(sweep.range(), limit + 1))
            if len(values) > limit:
                return values
        iterator = override.sweep_iterator(transformer=Transformer.identity)
        return tuple(map(_unquote, itertools.islice(iterator, limit + 1)))
    except (HydraException, ValueError, ArithmeticError) as error:
        advice = "Write range(start,stop,step) with a step other than 0"
        raise ConfigError(f"{text}: {shorten(one_line(error))}. {advice}.") from None


def _unquote(value: Any) -> Any:
    if isinstance(value, list):
        return [_unquote(item) for item in value]
    return value.text if isinstance(value, QuotedString) else value


def _probe_names(value: Any) -> tuple[Any, ...]:
    """Return the distinct names in a value of `probe=`: null, one name, or a list."""
    names = [] if value is None else value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(str(_option_name(_unquote(name))) for name in names))


def _option_name(value: Any) -> Any:
    """Return the name of an option as text: Hydra reads the name in `experiment=2026` as a number."""
    return str(value).lower() if isinstance(value, int | float) else value
