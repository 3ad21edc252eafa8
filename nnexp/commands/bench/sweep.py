"""Part b: the training of a sweep against the same jobs one by one."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any

from nnexp.commands.bench.cases import CASES, bars_of
from nnexp.commands.bench.peer import peer
from nnexp.commands.bench.report import Measurement
from nnexp.commands.bench.ways import bare, lightning, make_jobs, train
from nnexp.registry import Registry


def sweep(name: str, steps: int, options: argparse.Namespace, registry: Registry) -> Iterator[Measurement]:
    """Seconds of each way for the whole sweep, and how many times ours is faster."""
    bars = bars_of(CASES[name].bar, options.jobs)
    rounds = [measure_round(name, steps, number, options, registry) for number in range(options.rounds)]
    ratio = "{way} / ours"
    yield from compared(
        rounds, steps, ratio, bars, lambda way: scaling(way, options), part="b", case=name, at=options.jobs
    )


Round = tuple[dict[str, float], set[str]]  # seconds of each way, and the paths of ours


def compared(
    rounds: Sequence[Round],
    steps: int,
    ratio: str,
    bars: Mapping[str, float],
    scaled: Callable[[str], str],
    **facts: Any,
) -> Iterator[Measurement]:
    """Seconds of each way, and how many times ours is faster.

    Args:
        ratio: the name of the latter, in which `{way}` stands for the other way.
        scaled: says from how much a way is scaled, or nothing.
    """
    times = {way: [seconds[way] for seconds, _ in rounds] for way in rounds[0][0]}
    path = ", ".join(sorted(set().union(*(paths for _, paths in rounds))))
    for way, values in times.items():
        row = {**facts, "path": path, "scaled": scaled(way)}
        yield Measurement(what=f"{way}, {steps} steps", unit="s", values=values, **row)
        if way != "ours":
            ratios = [other / ours for other, ours in zip(values, times["ours"], strict=True)]
            yield Measurement(what=ratio.format(way=way), unit="x", values=ratios, bar=bars.get(way), **row)


def scaling(way: str, options: argparse.Namespace) -> str:
    """From how much a way is scaled to the whole sweep."""
    if way == "ours":
        return ""
    if way == "Lightning":
        return f"Lightning from 1 job of {options.lightning_steps} steps"
    steps = "all their" if way == "one by one" else options.loop_steps
    return f"{way} from {options.loop_jobs} jobs of {steps} steps"


def measure_round(name: str, steps: int, number: int, options: argparse.Namespace, registry: Registry) -> Round:
    """Seconds that the whole sweep takes in each way, and the paths of ours."""
    overrides, first = CASES[name].overrides, number * options.jobs
    seeds = range(first, first + options.jobs)
    with TemporaryDirectory() as folder:
        ours = train(make_jobs(overrides, registry, folder, steps, seeds), registry)
    with TemporaryDirectory() as folder:
        few = range(first, first + options.loop_jobs)
        one_by_one = train(make_jobs((*overrides, "stack=false"), registry, folder, steps, few), registry)
    a_job = one_by_one.seconds / options.loop_jobs
    total = options.jobs * steps
    seconds = {
        "ours": ours.seconds,
        "one by one": options.jobs * a_job,
        "bare": total * bare_rate(name, first, options, registry),
    }
    if options.lightning_steps:
        seconds["Lightning"] = total * lightning_rate(name, first, options, registry)
    if options.peer_python:
        seconds["mushin-py"] = peer(name, steps, first, options)
    return seconds, ours.paths


def bare_rate(name: str, first: int, options: argparse.Namespace, registry: Registry) -> float:
    """Seconds of one update."""
    seeds = range(first, first + options.loop_jobs)
    with TemporaryDirectory() as folder:
        jobs = make_jobs(CASES[name].overrides, registry, folder, options.loop_steps, seeds)
    return statistics.mean(bare(job, registry) for job in jobs) / float(options.loop_steps)


def lightning_rate(name: str, seed: int, options: argparse.Namespace, registry: Registry) -> float:
    """Seconds of one update."""
    with TemporaryDirectory() as folder:
        jobs = make_jobs(CASES[name].overrides, registry, folder, options.lightning_steps, range(seed, seed + 1))
    return lightning(jobs[0], registry) / float(options.lightning_steps)
