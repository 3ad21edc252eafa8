"""One point of a sweep -> a job: what is chosen composed, its values set and checked."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hydra.core.override_parser.types import Transformer
from omegaconf import OmegaConf

from nnexp.base import ConfigError
from nnexp.config.grid import GridPoint
from nnexp.config.hydra_compose import Choices, Composer, config_errors
from nnexp.config.job import (
    GROUPS,
    PROBE,
    Job,
    chosen_plugins,
    format_value,
    known_keys,
    make_job,
    plugin_keys,
    unknown_key,
)
from nnexp.config.names import label
from nnexp.config.sweep_options import sweep_options_schema
from nnexp.config.yaml_source import plain_values
from nnexp.registry import ALL, DEFAULT, PARTS, Plugin


def choices_of(point: GridPoint) -> Choices:
    return tuple((key, value) for key, value in point.items() if key in GROUPS)


def values_of(point: GridPoint) -> GridPoint:
    """What a point gives that is no choice."""
    return {key: value for key, value in point.items() if key not in (*GROUPS, PROBE)}


def plugins_of(point: GridPoint, composer: Composer) -> dict[str, Plugin]:
    """The plugins of a point. Raises ConfigError where one is not there."""
    for group, name in choices_of(point):
        composer.check_choice(group, name)
    return chosen_plugins(_config(point, composer), composer.registry)


def _config(point: GridPoint, composer: Composer) -> dict[str, Any]:
    """What a combination of choices composes to, with the probes that the point names, or else the files."""
    config = composer.base(choices_of(point)).config
    given = config.get(PROBE) or {}
    if not isinstance(given, dict):
        return config
    names = dict.fromkeys(point.get(PROBE, given))
    if ALL in names:
        names |= dict.fromkeys(composer.registry.names(PROBE))
    return config | {PROBE: {name: given.get(name) or {} for name in names if name not in (ALL, DEFAULT)}}


def build_job(point: GridPoint, composer: Composer, swept: frozenset[str]) -> Job:
    registry = composer.registry
    plugins, values = plugins_of(point, composer), values_of(point)
    known = known_keys(plugins)
    for key in values:
        if key not in known:
            if f"sweep.{key}" in sweep_options_schema():
                raise ConfigError(f"{key}: there is no such key. Did you mean 'sweep.{key}'?")
            raise unknown_key(key, plugins, registry)
    experiment = point.get("experiment") or "default"
    texts = tuple(f"{key}={as_typed(value)}" for key, value in point.items() if key.partition(".")[0] != PROBE)
    job = make_job(_apply(_config(point, composer), values), registry, experiment=str(experiment), overrides=texts)
    return replace(job, label=_label(job, composer, swept))


def as_typed(value: Any) -> str:
    """A value as it is typed."""
    return str(Transformer.str(value))


def _apply(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """A copy of the base with the values set, interpolations resolved."""
    config = copy.deepcopy(base)
    for key, value in values.items():
        group, _, name = key.rpartition(".")
        _node(config, group)[name] = value
    if "${" not in repr(config):
        return config
    with config_errors("an interpolation ${...} has no value"):
        return plain_values(OmegaConf.create(config), resolve=True)


def _node(config: dict[str, Any], group: str) -> dict[str, Any]:
    """The mapping below a dotted key; empty below a probe of which nothing was said."""
    for key in group.split(".") if group else ():
        config = config.setdefault(key, {})
    return config


def _label(job: Job, composer: Composer, swept: frozenset[str]) -> str:
    """The swept keys, then what the job changes from its experiment's own defaults, as a directory name."""
    point: GridPoint = {} if job.experiment == "default" else {"experiment": job.experiment}
    default = make_job(_apply(_config(point, composer), {}), composer.registry).flat()
    same = {kind for kind in PARTS if default[kind] == getattr(job, kind).name}
    changed = []
    for key, value in job.flat().items():
        kind, _, name = key.rpartition(".")
        reference = default.get(key)
        if kind and kind not in same:
            reference = plugin_keys(composer.registry.get(kind, getattr(job, kind).name))[name].default
        if name == "seed":
            reference = job.options.seed if kind in ("model", "trainer") else default[key]
        if (value != reference or key in swept) and key not in ("runs", "checkpoint_every", "device", "stack"):
            changed.append((key not in swept, f"{key if name == 'seed' and kind else name}={format_value(value)}"))
    return label([text for _, text in sorted(changed, key=lambda item: item[0])])
