"""Command-line overrides -> jobs.

Hydra parses every override and composes each combination of *choices* (plugins, experiment) once. Values are then
applied to plain dictionaries and checked against the schemas, which costs microseconds where composing costs 50 ms,
and lets `+key` and `++key` be checked as strictly as `key`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

from nnexp.base import ConfigError, plural, shorten
from nnexp.config.build_job import as_typed, build_job, choices_of, plugins_of, values_of
from nnexp.config.grid import GridPoint, grid_points, with_repeats
from nnexp.config.hydra_compose import Choices, Composer
from nnexp.config.job import PROBE, Job, known_keys
from nnexp.config.overrides import Axis, make_axes, sweep_axes
from nnexp.config.sweep import Sweep
from nnexp.config.sweep_options import SweepOptions, is_sweep_option, make_sweep_options
from nnexp.registry import DEFAULT, Broken, Registry

OF_POINTS = ("sweep.zip", "sweep.exclude", "sweep.repeats")


def compose_jobs(overrides: list[str], registry: Registry, **more: Any) -> list[Job]:
    """The jobs that the overrides describe; see `compose`. Raises ConfigError, naming every bad point."""
    composed = compose_sweep(overrides, registry, **more)
    composed.check()
    for note in composed.notes:
        warnings.warn(note, stacklevel=2)
    return composed.jobs


def compose_sweep(
    overrides: list[str],
    registry: Registry,
    *,
    multirun: bool = False,
    config_name: str = "config",
    searchpath: tuple[str, ...] = (),
    probes: tuple[str, ...] = (),
) -> Sweep:
    """The jobs that the overrides describe, one, or with `multirun` one for each point of the sweep.

    Raises ConfigError where it cannot be said what the points are.

    Args:
        probes: those of a single job where neither the command nor a file chooses any.
    """
    with Composer(registry, config_name, searchpath).open() as composer:
        axes = make_axes(overrides, composer, multirun=multirun)
        if not multirun:
            return _one(axes, composer, probes)
        experiments = [value for axis in axes if axis.key == "experiment" for value in axis.values]
        swept = frozenset(axis.key for axis in axes if len(axis.values) > 1)
        if len(experiments) < 2:
            return _sweep(axes, composer, swept)
        others = [axis for axis in axes if axis.key != "experiment"]
        parts = [_sweep([Axis("experiment", (each,)), *others], composer, swept) for each in experiments]
        return Sweep(
            [job for part in parts for job in part.jobs],
            _command([axis for axis in axes if is_sweep_option(axis.key)], composer, ()),
            [point for part in parts for point in part.invalid],
            list(dict.fromkeys(note for part in parts for note in part.notes)),
        )


def _one(axes: list[Axis], composer: Composer, probes: tuple[str, ...]) -> Sweep:
    """The single job of a command without -m."""
    broken: list[Broken] = []
    chosen_in_files = composer.base(_experiment(axes)).config.get(PROBE)
    if all(axis.key != PROBE for axis in axes) and isinstance(chosen_in_files, dict) and DEFAULT in chosen_in_files:
        axes = [*axes, Axis(PROBE, (probes,))]
        broken = [each for each in composer.registry.broken.values() if each.kind == PROBE]
    given = [axis for axis in axes if is_sweep_option(axis.key)]
    for axis in given:
        if axis.key in OF_POINTS:
            raise ConfigError(f"{axis.key} is of a sweep: add -m.")
    command = replace(_command(given, composer, _experiment(axes)), zip=None, exclude=None, repeats=1)
    own = _experiment_axes(axes, composer)
    keys = ", ".join(axis.key for axis in own)
    notes = [f"the experiment is a sweep over {keys}. This is one point of it; -m trains all."] if own else []
    notes += [f"probe={each.name} cannot be used: {each.reason}" for each in broken]
    return _Points([axis for axis in axes if axis not in given], command, composer, notes, frozenset()).composed()


def _sweep(axes: list[Axis], composer: Composer, swept: frozenset[str]) -> Sweep:
    """The points of a sweep of one experiment, or none."""
    axes = [*_experiment_axes(axes, composer), *axes]
    command = _command([axis for axis in axes if is_sweep_option(axis.key)], composer, _experiment(axes))
    seed = composer.base(_experiment(axes)).config.get("seed", 0)
    axes = with_repeats([axis for axis in axes if not is_sweep_option(axis.key)], command.repeats, seed)
    return _Points(axes, command, composer, [], swept).composed()


def _command(axes: list[Axis], composer: Composer, experiment: Choices) -> SweepOptions:
    """What the command line asks of all jobs together, or else the files that were chosen."""
    for axis in axes:
        if len(axis.values) > 1:
            raise ConfigError(f"{axis.key} is of the whole sweep, so it has one value. Give one.")
    given = {axis.key: axis.values[0] for axis in axes}
    return make_sweep_options(composer.base(experiment).command | given)


class _Points:
    """Points on their way to jobs."""

    def __init__(
        self, axes: list[Axis], command: SweepOptions, composer: Composer, notes: list[str], swept: frozenset[str]
    ) -> None:
        self.command, self.composer = command, composer
        self.points, more = grid_points(axes, command, composer)
        self.notes = [*notes, *more]
        self.swept = swept | {axis.key for axis in axes if len(axis.values) > 1}
        self.known: dict[str, frozenset[str]] = {}
        self.anywhere = frozenset[str]().union(*(self._known(point) for point in self.points))

    def _known(self, point: GridPoint) -> frozenset[str]:
        """The keys that the choices of a point have; none where these are not valid."""
        name = repr((choices_of(point), point.get(PROBE)))  # a list may stand for a name, and is refused later
        if name not in self.known:
            try:
                self.known[name] = frozenset(known_keys(plugins_of(point, self.composer)))
            except ConfigError:
                self.known[name] = frozenset()
        return self.known[name]

    def composed(self) -> Sweep:
        jobs, invalid, seen = [], [], set()
        lacking: dict[tuple[str, ...], Counter[bool]] = {}
        for point in self.points:
            own, lacked = self._reduced(point)
            if lacked:
                name = repr(own)
                lacking.setdefault(lacked, Counter())[name not in seen] += 1
                if name in seen:
                    continue
                seen.add(name)
            try:
                jobs.append(build_job(own, self.composer, self.swept))
            except ConfigError as error:
                invalid.append((self._name(point), str(error)))
        self.notes += [_lack(lacked, count[True], count.total()) for lacked, count in lacking.items()]
        return Sweep(jobs, self.command, invalid, self.notes)

    def _reduced(self, point: GridPoint) -> tuple[GridPoint, tuple[str, ...]]:
        """A point without the keys that its plugins do not have, and other plugins of the sweep do; and these."""
        known = self._known(point)
        lacked = [key for key in values_of(point) if key not in known and key in self.anywhere]
        if not known or not lacked:
            return point, ()
        own = {key: value for key, value in point.items() if key not in lacked}
        plugins = plugins_of(point, self.composer)
        kinds = dict.fromkeys(key.partition(".")[0] for key in lacked)
        return own, (*(f"{kind}={plugins[kind].name}" for kind in kinds), *lacked)

    def _name(self, point: GridPoint) -> str:
        return shorten(" ".join(f"{key}={as_typed(value)}" for key, value in point.items() if key in self.swept))


def _lack(lacked: tuple[str, ...], num_jobs: int, num_points: int) -> str:
    names = ", ".join(text for text in lacked if "=" in text)
    keys = " and ".join(text for text in lacked if "=" not in text)
    counts = f"{num_points} points are {plural(num_jobs, 'job')}"
    return f"{names} has no {keys}: " + (counts if num_jobs < num_points else "it goes without")


def _experiment(axes: list[Axis]) -> Choices:
    """The experiment that is chosen, where it is one."""
    chosen_ones = [value for axis in axes if axis.key == "experiment" for value in axis.values]
    return (("experiment", chosen_ones[0]),) if len(chosen_ones) == 1 else ()


def _experiment_axes(axes: list[Axis], composer: Composer) -> list[Axis]:
    """The sweep that the chosen experiment names, less the keys that the command line gives."""
    choices = _experiment(axes)
    if not choices:
        return []
    composer.check_choice(*choices[0])
    given = {axis.key for axis in axes}
    params = composer.base(choices).params
    try:
        own = sweep_axes(params, composer)
    except ConfigError as error:
        raise ConfigError(f"experiment={choices[0][1]}: {error}") from None
    return [axis for axis in own if axis.key not in given]
