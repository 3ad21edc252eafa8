"""Command-line overrides -> jobs.

Hydra parses every override and composes each combination of *choices* (plugins, experiment) once. Values are then
applied to plain dictionaries and checked against the schemas, which costs microseconds where composing costs 50 ms,
and lets `+key` and `++key` be checked as strictly as `key`.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from dataclasses import dataclass, replace
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, QuotedString, Transformer
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nnexp.composer import GROUPS, Composer, first_lines
from nnexp.config import Job, chosen, known_keys, make_job, parameters_of, shown, unknown_key
from nnexp.errors import ConfigError
from nnexp.record import label
from nnexp.registry import KINDS, Registry


@dataclass(frozen=True)
class Axis:
    """One key of the command line with the values it takes, as Hydra read them."""

    key: str
    values: tuple[Any, ...]


def compose_jobs(
    overrides: list[str],
    registry: Registry,
    *,
    multirun: bool = False,
    config_name: str = "config",
    searchpath: tuple[str, ...] = (),
) -> list[Job]:
    """The jobs that the overrides describe: one, or with `multirun` one for each point of the sweep.

    Raises ConfigError, naming every bad point, before anything is trained.
    """
    with Composer(registry, config_name, searchpath).open() as composer:
        axes = [_axis(override, composer) for override in _parse(overrides)]
        axes = list({axis.key: axis for axis in axes}.values())
        own = _experiment_axes(axes, composer)
        if multirun:
            axes = [*own, *axes]
        elif own:
            keys = ", ".join(axis.key for axis in own)
            warnings.warn(
                f"the experiment is a sweep over {keys}. This is one point of it; -m trains all.", stacklevel=2
            )
        swept = frozenset(axis.key for axis in axes if len(axis.values) > 1)
        if swept and not multirun:
            raise ConfigError(f"{min(swept)} has several values: add -m for a sweep, or quote a value with commas.")
        jobs, errors = [], []
        for point in itertools.product(*(axis.values for axis in axes)):
            try:
                jobs.append(_job(dict(zip((a.key for a in axes), point, strict=True)), composer, swept))
            except ConfigError as error:
                errors.append(str(error))
        if errors:
            raise ConfigError("\n".join(dict.fromkeys(errors)))
        return jobs


def _parse(overrides: list[str]) -> list[Override]:
    parser = OverridesParser.create()
    parsed = []
    for text in overrides:
        try:
            parsed += parser.parse_overrides([text])
        except HydraException as error:
            reason = "" if "missing EQUAL" in str(error) else f" {first_lines(error).split(' expecting')[0]}."
            advice = "Write KEY=VALUE, with quotes around a value that holds spaces, commas, brackets, ~ or $"
            raise ConfigError(f"{text}: not a key with a value.{reason} {advice}.") from None
    return parsed


def _axis(override: Override, composer: Composer) -> Axis:
    key, text = override.key_or_group, override.input_line
    if override.is_hydra_override():
        advice = "Leave it out. --config-dir adds a folder of configs, runs= says where runs go"
        raise ConfigError(f"{text}: nnexp runs and records jobs by itself; Hydra's own keys do nothing. {advice}.")
    if override.package is not None or "/" in key:
        raise ConfigError(f"{text}: choose a plugin with KIND=NAME, where KIND is one of {', '.join(GROUPS)}.")
    if override.is_delete():
        raise ConfigError(f"{text}: a key cannot be deleted. Set it, or leave it out to get its default.")
    if override.is_interval_sweep():
        raise ConfigError(f"{text}: an interval has no points. Give values: a,b,c or range(start,stop,step).")
    if not override.is_sweep_override():
        return Axis(key, (override.value(),))
    glob = override.value()
    if isinstance(glob, Glob):
        values = tuple(glob.filter(composer.options(key) if key in GROUPS else []))
    else:
        values = tuple(map(_unquote, override.sweep_iterator(transformer=Transformer.identity)))
    if not values:
        raise ConfigError(f"{text}: no value matches.")
    return Axis(key, values)


def _unquote(value: Any) -> Any:
    if isinstance(value, list):
        return [_unquote(item) for item in value]
    return value.text if isinstance(value, QuotedString) else value


def _experiment_axes(axes: list[Axis], composer: Composer) -> list[Axis]:
    """The sweep that the chosen experiment names, less the keys that the command line gives."""
    experiments = [value for axis in axes if axis.key == "experiment" for value in axis.values]
    if len(experiments) != 1:
        return []
    composer.check_choice("experiment", experiments[0])
    _, params = composer.base(_choices({"experiment": experiments[0]}))
    given = {axis.key for axis in axes}
    own = [_axis(o, composer) for o in _parse([f"{key}={value}" for key, value in params.items()])]
    return [axis for axis in own if axis.key not in given]


def _choices(point: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"~{key}" if value is None else f"{key}={value}" for key, value in point.items() if key in GROUPS)


def _job(point: dict[str, Any], composer: Composer, swept: frozenset[str]) -> Job:
    registry = composer.registry
    for group in GROUPS:
        if group in point:
            composer.check_choice(group, point[group])
    base, _ = composer.base(_choices(point))
    plugins = chosen(base, registry)
    values = {key: value for key, value in point.items() if key not in GROUPS}
    for key in values:
        if key not in known_keys(plugins):
            raise unknown_key(key, plugins, registry)
    experiment = point.get("experiment") or "default"
    texts = tuple(f"{key}={Transformer.str(value)}" for key, value in point.items())
    job = make_job(_apply(base, values), registry, experiment=str(experiment), overrides=texts)
    return replace(job, label=_label(job, composer, swept))


def _apply(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """A copy of the base with the values set, interpolations resolved."""
    config = copy.deepcopy(base)
    for key, value in values.items():
        group, _, name = key.rpartition(".")
        (config[group] if group else config)[name] = value
    if "${" not in repr(config):
        return config
    try:
        resolved = OmegaConf.to_container(OmegaConf.create(config), resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(first_lines(error)) from None
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


def _label(job: Job, composer: Composer, swept: frozenset[str]) -> str:
    """What the job changes from its experiment's own defaults, swept keys first, as a directory name."""
    choices = () if job.experiment == "default" else (f"experiment={job.experiment}",)
    default = make_job(_apply(composer.base(choices)[0], {}), composer.registry).flat()
    same = {kind for kind in KINDS if default[kind] == getattr(job, kind).name}
    changed = []
    for key, value in job.flat().items():
        kind, _, name = key.rpartition(".")
        reference = default.get(key)
        if kind and kind not in same:
            reference = parameters_of(composer.registry.get(kind, getattr(job, kind).name))[name].default
        if name == "seed":
            reference = job.settings.seed if kind in ("model", "trainer") else default[key]
        if value != reference and key not in ("runs", "checkpoint_every", "device"):
            changed.append((key not in swept, f"{key if name == 'seed' and kind else name}={shown(value)}"))
    return label([text for _, text in sorted(changed, key=lambda item: item[0])])
