"""Part c: what a lane and an update cost, and how much memory, where one size after another is doubled."""

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
# What the cost of a lane and an update, and the peak of memory, are divided by before they are compared.
UNITS = {"lanes": ("", "lane"), "steps": ("", ""), "hidden": ("weight", "weight"), "length": ("position", "position")}


@dataclass(frozen=True)
class Point:
    """One size of one axis."""

    axis: str
    size: int
    overrides: tuple[str, ...]
    lanes: int
    steps: int

    def unit(self, name: str, answer: dict[str, Any]) -> float:
        """How many of these there are."""
        counts = {"": 1, "lane": self.lanes, "weight": answer["parameters"], "position": self.size}
        return float(counts[name])


def points(name: str, steps: int, options: argparse.Namespace) -> dict[str, list[Point]]:
    """By axis, sizes that double."""
    case, jobs, found = CASES[name], options.jobs, {}
    for axis in options.axes:
        if axis == "lanes":
            sizes = [1 << power for power in range(options.most_lanes.bit_length())]
            found[axis] = [Point(axis, size, case.overrides, size, steps) for size in sizes]
        elif axis == "steps":
            found[axis] = [Point(axis, steps << power, case.overrides, jobs, steps << power) for power in range(4)]
        elif axis in case.scales:
            key = case.scales[axis]
            found[axis] = [Point(axis, size, (*case.overrides, f"{key}={size}"), jobs, steps) for size in SIZES]
    return found


def doubling(name: str, steps: int, options: argparse.Namespace, _registry: Registry) -> Iterator[Measurement]:
    """Cost and memory of each point, and what each doubling multiplies them by, per unit of what is doubled."""
    for axis, chosen in points(name, steps, options).items():
        rounds = [[ask(point, number) for point in chosen] for number in range(options.rounds)]
        for index, point in enumerate(chosen):
            answers = [answers[index] for answers in rounds]
            row = {"part": "c", "case": name, "at": point.size, "path": answers[0]["path"]}
            for what, key, unit in (("a lane and step", "us", "us"), ("peak memory", "mib", "MiB")):
                yield Measurement(what=f"{axis}: {what}", unit=unit, values=[a[key] for a in answers], **row)
        for (low, small), (high, large) in pairwise(enumerate(chosen)):
            row = {"part": "c", "case": name, "at": large.size, "path": rounds[0][high]["path"], "unit": "x"}
            for key, what, unit in zip(("us", "mib"), ("time", "memory"), UNITS[axis], strict=True):
                ratios = [
                    (answers[high][key] / large.unit(unit, answers[high]))
                    / (answers[low][key] / small.unit(unit, answers[low]))
                    for answers in rounds
                ]
                per = f" per {unit}" if unit else ""
                label = f"{axis} doubled: {what}{per}"
                yield Measurement(what=label, values=ratios, bar=DOUBLING, better="low", **row)


def ask(point: Point, seed: int) -> dict[str, Any]:
    """What one point says, in a process of its own."""
    arguments = json.dumps([list(point.overrides), point.lanes, point.steps, seed * point.lanes])
    command = [sys.executable, "-m", "nnexp.commands.bench.point", arguments]
    result = subprocess.run(command, env=one_thread(), capture_output=True, text=True)
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or [""])[-1]
        raise NnexpError(f"{' '.join(point.overrides)} on {point.lanes} lanes: {reason}")
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer
