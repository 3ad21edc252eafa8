"""Part c: time per lane and update, and peak memory, as lanes, updates, hidden size or length double."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nnexp.base import NnexpError
from nnexp.commands.bench.cases import CASES, DOUBLING
from nnexp.commands.bench.environment import one_thread
from nnexp.commands.bench.report import Measurement
from nnexp.registry import Registry

SIZES = (8, 16, 32, 64, 128)
# By axis: the units by which the time per lane and update, and the peak memory, are divided before comparing.
UNITS = {"lanes": ("", "lane"), "steps": ("", ""), "hidden": ("weight", "weight"), "length": ("position", "position")}


@dataclass(frozen=True)
class Point:
    """One size of one axis.

    Args:
        axis: lanes, steps, hidden or length.
        size: its value.
        overrides: overrides of the jobs.
        lanes: number of jobs in the stack.
        steps: updates of each job.
    """

    axis: str
    size: int
    overrides: tuple[str, ...]
    lanes: int
    steps: int

    def num_units(self, unit: str, result: dict[str, Any]) -> float:
        """Return the number of units of one name: lanes, weights of a model, positions; 1 for ""."""
        counts = {"": 1, "lane": self.lanes, "weight": result["parameters"], "position": self.size}
        return float(counts[unit])


def points(name: str, steps: int, options: argparse.Namespace) -> dict[str, list[Point]]:
    """Return points of doubling sizes for each axis that the case has."""
    case, jobs, result = CASES[name], options.jobs, {}
    for axis in options.axes:
        if axis == "lanes":
            sizes = [1 << power for power in range(options.most_lanes.bit_length())]
            result[axis] = [Point(axis, size, case.overrides, size, steps) for size in sizes]
        elif axis == "steps":
            result[axis] = [Point(axis, steps << power, case.overrides, jobs, steps << power) for power in range(4)]
        elif axis in case.scales:
            key = case.scales[axis]
            result[axis] = [Point(axis, size, (*case.overrides, f"{key}={size}"), jobs, steps) for size in SIZES]
    return result


def doubling(name: str, steps: int, options: argparse.Namespace, _registry: Registry) -> Iterator[Measurement]:
    """Yield time and memory of each point, and the factor by which each doubling changes them, per unit."""
    for axis, axis_points in points(name, steps, options).items():
        rounds = [[measure_point(point, number) for point in axis_points] for number in range(options.rounds)]
        for index, point in enumerate(axis_points):
            results = [results[index] for results in rounds]
            row = {"part": "c", "case": name, "at": point.size, "path": results[0]["path"]}
            for what, key, unit in (("a lane and step", "us", "us"), ("peak memory", "mib", "MiB")):
                yield Measurement(what=f"{axis}: {what}", unit=unit, values=[r[key] for r in results], **row)
        for (low, small), (high, large) in pairwise(enumerate(axis_points)):
            row = {"part": "c", "case": name, "at": large.size, "path": rounds[0][high]["path"], "unit": "x"}
            for key, what, unit in zip(("us", "mib"), ("time", "memory"), UNITS[axis], strict=True):
                ratios = [
                    (results[high][key] / large.num_units(unit, results[high]))
                    / (results[low][key] / small.num_units(unit, results[low]))
                    for results in rounds
                ]
                per = f" per {unit}" if unit else ""
                label = f"{axis} doubled: {what}{per}"
                yield Measurement(what=label, values=ratios, bar=DOUBLING, better="low", **row)


def measure_point(point: Point, seed: int) -> dict[str, Any]:
    """Return the measurements of `nnexp.commands.bench.point` in a new process. Raises NnexpError where it fails."""
    arguments = json.dumps([list(point.overrides), point.lanes, point.steps, seed * point.lanes])
    command = [sys.executable, "-m", "nnexp.commands.bench.point", arguments]
    result = subprocess.run(command, env=one_thread(), capture_output=True, text=True)
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or [""])[-1]
        raise NnexpError(f"{' '.join(point.overrides)} on {point.lanes} lanes: {reason}")
    measurements: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return measurements
