"""Compose the jobs that command-line overrides describe.

Hydra parses every override and composes each combination of *choices* (plugins, experiment) once. Values are then
set in plain dictionaries and checked against the schemas, which takes microseconds where composing takes 50 ms, and
checks `+key` and `++key` as strictly as `key`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

from nnexp.base import ConfigError, plural, shorten
from nnexp.config.build_job import build_job, choices_of, override_value, plugins_of, values_of
from nnexp.config.grid import GridPoint, grid_points, with_repeats
from nnexp.config.hydra_compose import Choices, Composer
from nnexp.config.job import PROBE, Job
from nnexp.config.job_keys import valid_keys
from nnexp.config.overrides import Axis, make_axes, sweep_axes
from nnexp.config.sweep import Sweep
from nnexp.config.sweep_options import SweepOptions, is_sweep_option, make_sweep_options
from nnexp.registry import DEFAULT, Broken, Registry

SWEEP_ONLY = ("sweep.zip", "sweep.exclude", "sweep.repeats")


def compose_jobs(overrides: list[str], registry: Registry, **arguments: Any) -> list[Job]:
    """Return the jobs that the overrides describe, as `compose_sweep` does; notes become warnings.

    Raises ConfigError, naming every invalid point.

    >>> jobs = compose_jobs(["model=lstm,gru", "seed=range(4)"], discover(), multirun=True)
    >>> len(jobs)
    8
    """
    sweep = compose_sweep(overrides, registry, **arguments)
    sweep.check()
    for note in sweep.notes:
        warnings.warn(note, stacklevel=2)
    return sweep.jobs


def compose_sweep(
    overrides: list[str],
    registry: Registry,
    *,
    multirun: bool = False,
    config_name: str = "config",
    searchpath: tuple[str, ...] = (),
    probes: tuple[str, ...] = (),
) -> Sweep:
    """Return the jobs that the overrides describe: a single one, or with `multirun` one for each point of the sweep.

    Points that are not valid jobs are listed in the result, see `Sweep.check`.

    Args:
        overrides: `KIND=NAME` and `KEY=VALUE` texts in Hydra's grammar.
        registry: the plugins.
        multirun: sweep over keys with several values.
        config_name: the primary config.
        searchpath: folders of configs, searched before the project's own.
        probes: the probes of a single job where neither the command nor a file chooses any.

    Raises:
        ConfigError: where the points cannot be determined, such as for an override that cannot be parsed.
    """
    with Composer(registry, config_name, searchpath).open() as composer:
        return compose_with(composer, overrides, multirun=multirun, probes=probes)


def compose_with(
    composer: Composer, overrides: list[str], *, multirun: bool = False, probes: tuple[str, ...] = ()
) -> Sweep:
    """Return what `compose_sweep` does, from an open composer; what it composed once it does not compose again."""
    axes = make_axes(overrides, composer, multirun=multirun)
    if not multirun:
        return _compose_single(axes, composer, probes)
    experiments = [value for axis in axes if axis.key == "experiment" for value in axis.values]
    swept = frozenset(axis.key for axis in axes if len(axis.values) > 1)
    if len(experiments) < 2:
        return _compose_points(axes, composer, swept)
    others = [axis for axis in axes if axis.key != "experiment"]
    sweeps = [_compose_points([Axis("experiment", (each,)), *others], composer, swept) for each in experiments]
    return Sweep(
        [job for sweep in sweeps for job in sweep.jobs],
        _sweep_options([axis for axis in axes if is_sweep_option(axis.key)], composer, ()),
        [point for sweep in sweeps for point in sweep.invalid],
        list(dict.fromkeys(note for sweep in sweeps for note in sweep.notes)),
    )


def _compose_single(axes: list[Axis], composer: Composer, probes: tuple[str, ...]) -> Sweep:
    """Return the single job of a command without -m, as a sweep."""
    broken: list[Broken] = []
    probes_in_files = composer.compose(_experiment(axes)).config.get(PROBE)
    if all(axis.key != PROBE for axis in axes) and isinstance(probes_in_files, dict) and DEFAULT in probes_in_files:
        axes = [*axes, Axis(PROBE, (probes,))]
        broken = [each for each in composer.registry.broken.values() if each.kind == PROBE]
    option_axes = [axis for axis in axes if is_sweep_option(axis.key)]
    for axis in option_axes:
        if axis.key in SWEEP_ONLY:
            raise ConfigError(f"{axis.key} is a sweep key: add -m.")
    options = replace(_sweep_options(option_axes, composer, _experiment(axes)), zip=None, exclude=None, repeats=1)
    keys = ", ".join(axis.key for axis in _experiment_axes(axes, composer))
    notes = [f"the experiment is a sweep over {keys}. This is one point of it; -m trains all."] if keys else []
    notes += [f"probe={each.name} cannot be used: {each.reason}" for each in broken]
    job_axes = [axis for axis in axes if axis not in option_axes]
    return _PointComposer(job_axes, options, composer, notes, frozenset()).compose()


def _compose_points(axes: list[Axis], composer: Composer, swept: frozenset[str]) -> Sweep:
    """Return the sweep over the axes and those of at most one experiment."""
    axes = [*_experiment_axes(axes, composer), *axes]
    options = _sweep_options([axis for axis in axes if is_sweep_option(axis.key)], composer, _experiment(axes))
    seed = composer.compose(_experiment(axes)).config.get("seed", 0)
    axes = with_repeats([axis for axis in axes if not is_sweep_option(axis.key)], options.repeats, seed)
    return _PointComposer(axes, options, composer, [], swept).compose()


def _sweep_options(axes: list[Axis], composer: Composer, experiment: Choices) -> SweepOptions:
    """Return the sweep options of the command line, which take precedence over those of the files."""
    for axis in axes:
        if len(axis.values) > 1:
            raise ConfigError(f"{axis.key} applies to the whole sweep and takes a single value. Give one.")
    values = {axis.key: axis.values[0] for axis in axes}
    return make_sweep_options(composer.compose(experiment).sweep_options | values)


class _PointComposer:
    """Composes the points of a sweep, and drops the keys that only other plugins of the sweep have."""

    def __init__(
        self, axes: list[Axis], options: SweepOptions, composer: Composer, notes: list[str], swept: frozenset[str]
    ) -> None:
        self.options, self.composer = options, composer
        self.points, grid_notes = grid_points(axes, options, composer)
        self.notes = [*notes, *grid_notes]
        self.swept = swept | {axis.key for axis in axes if len(axis.values) > 1}
        self._valid_keys: dict[str, frozenset[str]] = {}
        self.all_keys = frozenset[str]().union(*(self._keys_of(point) for point in self.points))

    def _keys_of(self, point: GridPoint) -> frozenset[str]:
        """Return the valid keys of a point's plugins; none where a choice is invalid."""
        name = repr((choices_of(point), point.get(PROBE)))  # not hashable where a choice is a list, refused later
        if name not in self._valid_keys:
            try:
                self._valid_keys[name] = frozenset(valid_keys(plugins_of(point, self.composer)))
            except ConfigError:
                self._valid_keys[name] = frozenset()
        return self._valid_keys[name]

    def compose(self) -> Sweep:
        """Return the jobs of all points; points that differ only in dropped keys make one job."""
        jobs, invalid, composed = [], [], set()
        dropped_counts: dict[tuple[str, ...], Counter[bool]] = {}  # points by dropped keys and by whether a new job
        for point in self.points:
            reduced, dropped = self._drop_missing_keys(point)
            if dropped:
                name = repr(reduced)
                dropped_counts.setdefault(dropped, Counter())[name not in composed] += 1
                if name in composed:
                    continue
                composed.add(name)
            try:
                jobs.append(build_job(reduced, self.composer, self.swept))
            except ConfigError as error:
                invalid.append((self._name(point), str(error)))
        self.notes += [_dropped_note(keys, count[True], count.total()) for keys, count in dropped_counts.items()]
        return Sweep(jobs, self.options, invalid, self.notes)

    def _drop_missing_keys(self, point: GridPoint) -> tuple[GridPoint, tuple[str, ...]]:
        """Return the point without keys that only other plugins of the sweep have, and its plugins and these keys."""
        valid = self._keys_of(point)
        missing = [key for key in values_of(point) if key not in valid and key in self.all_keys]
        if not valid or not missing:
            return point, ()
        reduced = {key: value for key, value in point.items() if key not in missing}
        plugins = plugins_of(point, self.composer)
        kinds = dict.fromkeys(key.partition(".")[0] for key in missing)
        return reduced, (*(f"{kind}={plugins[kind].name}" for kind in kinds), *missing)

    def _name(self, point: GridPoint) -> str:
        return shorten(" ".join(f"{key}={override_value(value)}" for key, value in point.items() if key in self.swept))


def _dropped_note(dropped: tuple[str, ...], num_jobs: int, num_points: int) -> str:
    names = ", ".join(text for text in dropped if "=" in text)
    keys = " and ".join(text for text in dropped if "=" not in text)
    counts = f"{num_points} points are {plural(num_jobs, 'job')}"
    return f"{names} has no {keys}: " + (counts if num_jobs < num_points else "the value is not used")


def _experiment(axes: list[Axis]) -> Choices:
    """Return the chosen experiment; () where none or several are chosen."""
    names = [value for axis in axes if axis.key == "experiment" for value in axis.values]
    return (("experiment", names[0]),) if len(names) == 1 else ()


def _experiment_axes(axes: list[Axis], composer: Composer) -> list[Axis]:
    """Return the axes of the chosen experiment's sweep, without the keys that the command line sets."""
    choices = _experiment(axes)
    if not choices:
        return []
    composer.check_choice(*choices[0])
    command_keys = {axis.key for axis in axes}
    params = composer.compose(choices).params
    try:
        experiment_axes = sweep_axes(params, composer)
    except ConfigError as error:
        raise ConfigError(f"experiment={choices[0][1]}: {error}") from None
    return [axis for axis in experiment_axes if axis.key not in command_keys]
