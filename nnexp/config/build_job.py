"""Build a job from one point of a sweep: compose the chosen plugins, then set and check the values."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hydra.core.override_parser.types import Transformer
from omegaconf import OmegaConf

from nnexp.base import ConfigError
from nnexp.config.check_job import make_job
from nnexp.config.grid import GridPoint
from nnexp.config.hydra_compose import Choices, Composer, config_errors
from nnexp.config.job import GROUPS, PROBE, Job, format_value
from nnexp.config.job_keys import chosen_plugins, plugin_keys, unknown_key_error, valid_keys
from nnexp.config.run_label import label
from nnexp.config.sweep_options import sweep_options_schema
from nnexp.config.yaml_source import plain_values
from nnexp.registry import ALL, DEFAULT, PARTS, Plugin


def choices_of(point: GridPoint) -> Choices:
    """Return the choices of a point: its plugins and its experiment."""
    return tuple((key, value) for key, value in point.items() if key in GROUPS)


def values_of(point: GridPoint) -> GridPoint:
    """Return the values of a point, without its choices and probes."""
    return {key: value for key, value in point.items() if key not in (*GROUPS, PROBE)}


def plugins_of(point: GridPoint, composer: Composer) -> dict[str, Plugin]:
    """Return the plugins of a point, as `chosen_plugins` does. Raises ConfigError where one does not exist."""
    for group, name in choices_of(point):
        composer.check_choice(group, name)
    return chosen_plugins(_config(point, composer), composer.registry)


def _config(point: GridPoint, composer: Composer) -> dict[str, Any]:
    """Return the composed configuration of a point's choices, with its probes, or those of the files if it has none."""
    config = composer.compose(choices_of(point)).config
    probes = config.get(PROBE) or {}
    if not isinstance(probes, dict):
        return config
    names = dict.fromkeys(point.get(PROBE, probes))
    if ALL in names:
        names |= dict.fromkeys(composer.registry.names(PROBE))
    return config | {PROBE: {name: probes.get(name) or {} for name in names if name not in (ALL, DEFAULT)}}


def build_job(point: GridPoint, composer: Composer, swept: frozenset[str]) -> Job:
    """Return the job of one point. Raises ConfigError at the first invalid choice, key or value.

    Args:
        point: a value for each key.
        composer: an open composer.
        swept: the keys that the sweep varies; they come first in the job's label.
    """
    registry = composer.registry
    plugins, values = plugins_of(point, composer), values_of(point)
    valid = valid_keys(plugins)
    for key in values:
        if key not in valid:
            if f"sweep.{key}" in sweep_options_schema():
                raise ConfigError(f"{key}: there is no such key. Did you mean 'sweep.{key}'?")
            raise unknown_key_error(key, plugins, registry)
    experiment = point.get("experiment") or "default"
    texts = tuple(f"{key}={override_value(value)}" for key, value in point.items() if key.partition(".")[0] != PROBE)
    config = _with_values(_config(point, composer), values)
    job = make_job(config, registry, experiment=str(experiment), overrides=texts)
    return replace(job, label=_label(job, composer, swept))


def override_value(value: Any) -> str:
    """Return a value in the syntax of overrides, quoted where necessary."""
    return str(Transformer.str(value))


def _with_values(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a configuration with values set by dotted key and interpolations resolved."""
    config = copy.deepcopy(base)
    for key, value in values.items():
        group, _, name = key.rpartition(".")
        _node(config, group)[name] = value
    if "${" not in repr(config):
        return config
    with config_errors("an interpolation ${...} has no value"):
        return plain_values(OmegaConf.create(config), resolve=True)


def _node(config: dict[str, Any], group: str) -> dict[str, Any]:
    """Return the mapping at a dotted key; created where it is missing."""
    for key in group.split(".") if group else ():
        config = config.setdefault(key, {})
    return config


def _label(job: Job, composer: Composer, swept: frozenset[str]) -> str:
    """Return the directory name of a job: its swept keys, then the values that differ from its experiment's defaults.

    A plugin other than the experiment's is compared with its own defaults.
    """
    point: GridPoint = {} if job.experiment == "default" else {"experiment": job.experiment}
    default = make_job(_with_values(_config(point, composer), {}), composer.registry).flat()
    same_plugin = {kind for kind in PARTS if default[kind] == getattr(job, kind).name}
    changed = []
    for key, value in job.flat().items():
        kind, _, name = key.rpartition(".")
        reference = default.get(key)
        if kind and kind not in same_plugin:
            reference = plugin_keys(composer.registry.get(kind, getattr(job, kind).name))[name].default
        if name == "seed":
            reference = job.options.seed if kind in ("model", "trainer") else default[key]
        if (value != reference or key in swept) and key not in ("runs", "checkpoint_every", "device", "stack"):
            changed.append((key not in swept, f"{key if name == 'seed' and kind else name}={format_value(value)}"))
    return label([text for _, text in sorted(changed, key=lambda item: item[0])])
