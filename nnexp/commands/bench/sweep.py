"""Part b: training time of a stacked sweep against the same jobs one by one, as solo runs and reference loops."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any

from nnexp.commands.bench.cases import CASES, speed_bars
from nnexp.commands.bench.jobs import make_jobs
from nnexp.commands.bench.peer import peer_seconds
from nnexp.commands.bench.reference_loops import bare_seconds, lightning_seconds
from nnexp.commands.bench.report import Measurement
from nnexp.commands.bench.timed_training import train
from nnexp.registry import Registry


def sweep(name: str, steps: int, options: argparse.Namespace, registry: Registry) -> Iterator[Measurement]:
    """Yield the seconds of each method for the whole sweep, and the speed-ups."""
    bars = speed_bars(CASES[name].bar, options.jobs)
    rounds = [measure_round(name, steps, number, options, registry) for number in range(options.rounds)]

    def scaled(method: str) -> str:
        return describe_scaling(method, options)

    yield from compare(rounds, steps, "{method} / ours", bars, scaled, part="b", case=name, at=options.jobs)


Round = tuple[dict[str, float], set[str]]  # seconds of each method, and the paths of our runs


def compare(
    rounds: Sequence[Round],
    steps: int,
    ratio: str,
    bars: Mapping[str, float],
    scaled: Callable[[str], str],
    **facts: Any,
) -> Iterator[Measurement]:
    """Yield the seconds of each method and its ratio to ours.

    Args:
        rounds: the measurements.
        steps: updates of each job.
        ratio: name of the ratios, with `{method}` as a placeholder.
        bars: bars of the ratios, by method.
        scaled: returns what a method's time is scaled up from, "" for nothing.
        facts: further fields of each measurement.
    """
    times = {method: [seconds[method] for seconds, _ in rounds] for method in rounds[0][0]}
    path = ", ".join(sorted(set().union(*(paths for _, paths in rounds))))
    for method, values in times.items():
        row = {**facts, "path": path, "scaled": scaled(method)}
        yield Measurement(what=f"{method}, {steps} steps", unit="s", values=values, **row)
        if method != "ours":
            ratios = [other / ours for other, ours in zip(values, times["ours"], strict=True)]
            yield Measurement(what=ratio.format(method=method), unit="x", values=ratios, bar=bars.get(method), **row)


def describe_scaling(method: str, options: argparse.Namespace) -> str:
    """Return what a method's time for the whole sweep is scaled up from, "" for nothing."""
    if method == "ours":
        return ""
    if method == "Lightning":
        return f"Lightning from 1 job of {options.lightning_steps} steps"
    steps = "all their" if method == "one by one" else options.loop_steps
    return f"{method} from {options.loop_jobs} jobs of {steps} steps"


def measure_round(name: str, steps: int, number: int, options: argparse.Namespace, registry: Registry) -> Round:
    """Return the seconds of each method for the whole sweep, and the paths of our runs."""
    overrides, first = CASES[name].overrides, number * options.jobs
    seeds = range(first, first + options.jobs)
    with TemporaryDirectory() as folder:
        ours = train(make_jobs(overrides, registry, folder, steps, seeds), registry)
    with TemporaryDirectory() as folder:
        few = range(first, first + options.loop_jobs)
        one_by_one = train(make_jobs((*overrides, "stack=false"), registry, folder, steps, few), registry)
    total = options.jobs * steps
    seconds = {
        "ours": ours.seconds,
        "one by one": options.jobs * (one_by_one.seconds / options.loop_jobs),
        "bare": total * bare_rate(name, first, options, registry),
    }
    if options.lightning_steps:
        seconds["Lightning"] = total * lightning_rate(name, first, options, registry)
    if options.peer_python:
        seconds["mushin-py"] = peer_seconds(name, steps, first, options)
    return seconds, ours.paths


def bare_rate(name: str, first: int, options: argparse.Namespace, registry: Registry) -> float:
    """Return the seconds per update of the bare loop, averaged over `loop_jobs` jobs."""
    seeds = range(first, first + options.loop_jobs)
    with TemporaryDirectory() as folder:
        jobs = make_jobs(CASES[name].overrides, registry, folder, options.loop_steps, seeds)
    return statistics.mean(bare_seconds(job, registry) for job in jobs) / float(options.loop_steps)


def lightning_rate(name: str, seed: int, options: argparse.Namespace, registry: Registry) -> float:
    """Return the seconds per update of Lightning, from one job."""
    with TemporaryDirectory() as folder:
        jobs = make_jobs(CASES[name].overrides, registry, folder, options.lightning_steps, range(seed, seed + 1))
    return lightning_seconds(jobs[0], registry) / float(options.lightning_steps)
