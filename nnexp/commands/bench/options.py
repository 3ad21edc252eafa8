"""Arguments of the benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

from nnexp.commands.arguments import Parser
from nnexp.commands.bench.cases import CASES, JOBS

PARTS = {
    "a": "one run: ours, a bare loop, Lightning",
    "b": "training time of a sweep over seeds: ours stacked, ours one by one, bare loops, Lightning, another tool",
    "cold": "the whole command of such a sweep with empty caches, against imports and loops",
    "c": "time and memory as lanes, hidden size, length or updates double",
    "d": "start-up time against importing Lightning and Hydra",
    "plan": "planning a new and a finished sweep, against Hydra composing its jobs",
    "probes": "a run with all probes against the same without, and the time to draw",
    "workers": "jobs of about a second on two workers, on one, and in the command's process",
}
DEFAULT_STEPS = {"a": 20_000, "c": 200, "probes": 5000}
DEFAULT_CASES = {
    "a": ["moons mlp", "pattern lstm"],
    "b": list(CASES),
    "cold": list(CASES),
    "c": ["moons mlp", "pattern lstm"],
    "probes": ["moons mlp", "pattern lstm", "edges cnn", "edges vit"],
}
AXES = ("lanes", "steps", "hidden", "length")


def names(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """Return an argparse type for names separated by commas."""

    def parse(text: str) -> list[str]:
        chosen = [name.strip() for name in text.split(",")]
        for name in chosen:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"'{name}' is not one of {', '.join(allowed)}")
        return chosen

    return parse


def count(text: str, least: int = 1) -> int:
    """Parse an integer of at least `least`."""
    if not text.strip().isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least {least}")
    return int(text)


def counts(text: str) -> list[int]:
    """Parse positive integers separated by commas."""
    return [count(number) for number in text.split(",")]


def parser(about: str) -> argparse.ArgumentParser:
    """Return the parser of the verb's arguments, with `about` as its description."""
    parts = "\n".join(f"  {name:<7} {text}" for name, text in PARTS.items())
    result = Parser(
        prog="nnexp bench",
        description=f"{about}\nparts:\n{parts}\n\ncases: {', '.join(CASES)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--part", type=names(list(PARTS)), default=["a"], help="parts, separated by commas (default: a)")
    add("--cases", type=names(list(CASES)), help="cases (default: all in b and cold, some in a, c and probes)")
    add("--jobs", type=count, default=JOBS, help="jobs of a sweep (b, c, cold)")
    add(
        "--steps",
        type=count,
        help="updates of each of our jobs (default: 20000 in a, 2000 to 20000 by case in b, 200 in c, 5000 in probes)",
    )
    add("--rounds", type=count, default=5, help="rounds, in which the methods alternate (a, b, c, d, workers, probes)")
    add("--loop-jobs", type=count, default=2, help="number of bare loops, solo runs and peer runs to time (b, cold)")
    add("--loop-steps", type=count, default=2000, help="updates of each of these (b, cold)")
    add(
        "--lightning-steps",
        type=partial(count, least=0),
        default=500,
        help="updates of Lightning to time; 0 for none (a, b, cold)",
    )
    add("--peer-python", metavar="PYTHON", help="a Python with mushin-py and nnexp's dependencies, to time it too (b)")
    add("--cold-steps", type=counts, default=[2000, 20_000], help="updates of each job, separated by commas (cold)")
    add(
        "--cold-most-steps",
        type=count,
        help="extrapolate longer commands from one of this many updates and one of half as many (cold)",
    )
    add("--cold-rounds", type=count, default=1, help="whole commands of each case and length (cold)")
    add("--axes", type=names(AXES), default=list(AXES), help="the sizes to double, separated by commas (c)")
    add("--most-lanes", type=count, default=512, help="the largest number of lanes (c)")
    add("--plan-jobs", type=count, default=2000, help="jobs of the sweep to plan (plan)")
    add("--plan-composed", type=count, default=200, help="number of these that Hydra composes (plan)")
    add("--worker-jobs", type=count, default=32, help="number of jobs of about a second (workers)")
    add("--csv", metavar="FILE", help="write all measurements and a description of the machine")
    add("--picture", metavar="FILE", help="draw parts b and c; .png, .svg or .pdf")
    return result
