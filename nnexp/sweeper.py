"""Command-line overrides -> jobs.

Hydra parses every override and composes each combination of *choices* (plugins, experiment) once. Values are then
applied to plain dictionaries and checked against the schemas, which costs microseconds where composing costs 50 ms,
and lets `+key` and `++key` be checked as strictly as `key`.
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from dataclasses import replace
from typing import Any

from hydra.core.override_parser.types import Transformer
from omegaconf import OmegaConf

from nnexp.axes import LIMIT, Axis, make_axes, sweep_axes
from nnexp.composer import Choices, Composer, config_errors
from nnexp.config import GROUPS, Job, chosen, known_keys, make_job, parameters_of, shown, unknown_key
from nnexp.configfile import plain_values
from nnexp.create import label
from nnexp.errors import ConfigError, cut
from nnexp.registry import KINDS, Registry

SHOWN = 20  # errors of a sweep


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
        axes = make_axes(overrides, composer, multirun=multirun)
        own = _experiment_axes(axes, composer)
        if multirun:
            axes = [*own, *axes]
        elif own:
            keys = ", ".join(axis.key for axis in own)
            warnings.warn(
                f"the experiment is a sweep over {keys}. This is one point of it; -m trains all.", stacklevel=2
            )
        return _jobs(axes, composer)


def _jobs(axes: list[Axis], composer: Composer) -> list[Job]:
    """A job for each point. Raises ConfigError with all that is wrong with them."""
    swept = frozenset(axis.key for axis in axes if len(axis.values) > 1)
    if math.prod(len(axis.values) for axis in axes) > LIMIT:
        sizes = ", ".join(f"{axis.key} ({len(axis.values)})" for axis in axes if axis.key in swept)
        raise ConfigError(f"the sweep over {cut(sizes)} has more than {LIMIT} points. Give fewer values.")
    jobs = []
    errors: dict[str, None] = {}  # in their order, each once
    for point in itertools.product(*(axis.values for axis in axes)):
        try:
            jobs.append(_job(dict(zip((a.key for a in axes), point, strict=True)), composer, swept))
        except ConfigError as error:
            errors[str(error)] = None
    if errors:
        more = [f"and {len(errors) - SHOWN} errors more."] if len(errors) > SHOWN else []
        raise ConfigError("\n".join([*itertools.islice(errors, SHOWN), *more]))
    return jobs


def _experiment_axes(axes: list[Axis], composer: Composer) -> list[Axis]:
    """The sweep that the chosen experiment names, less the keys that the command line gives."""
    experiments = [value for axis in axes if axis.key == "experiment" for value in axis.values]
    if len(experiments) != 1:
        return []
    composer.check_choice("experiment", experiments[0])
    _, params = composer.base(_choices({"experiment": experiments[0]}))
    given = {axis.key for axis in axes}
    try:
        own = sweep_axes(params, composer)
    except ConfigError as error:
        raise ConfigError(f"experiment={experiments[0]}: {error}") from None
    return [axis for axis in own if axis.key not in given]


def _choices(point: dict[str, Any]) -> Choices:
    return tuple((key, value) for key, value in point.items() if key in GROUPS)


def _job(point: dict[str, Any], composer: Composer, swept: frozenset[str]) -> Job:
    registry = composer.registry
    for group in GROUPS:
        if group in point:
            composer.check_choice(group, point[group])
    base, _ = composer.base(_choices(point))
    plugins = chosen(base, registry)
    values = {key: value for key, value in point.items() if key not in GROUPS}
    known = known_keys(plugins)
    for key in values:
        if key not in known:
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
    with config_errors("an interpolation ${...} has no value"):
        return plain_values(OmegaConf.create(config), resolve=True)


def _label(job: Job, composer: Composer, swept: frozenset[str]) -> str:
    """What the job changes from its experiment's own defaults, swept keys first, as a directory name."""
    choices: Choices = () if job.experiment == "default" else (("experiment", job.experiment),)
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
        if value != reference and key not in ("runs", "checkpoint_every", "device", "stack"):
            changed.append((key not in swept, f"{key if name == 'seed' and kind else name}={shown(value)}"))
    return label([text for _, text in sorted(changed, key=lambda item: item[0])])
