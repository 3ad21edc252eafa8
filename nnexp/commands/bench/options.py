"""What can be asked of the benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from nnexp.commands.arguments import Parser
from nnexp.commands.bench.cases import CASES, JOBS

PARTS = {
    "a": "one run: ours, a bare loop, Lightning",
    "b": "a sweep of jobs that differ in seed, training alone: the same one by one, bare, Lightning, a peer",
    "cold": "the whole command of such a sweep, with empty caches, against imports and loops",
    "c": "cost and memory where lanes, hidden size, length or updates are doubled",
    "d": "start-up against the imports of Lightning and Hydra",
    "plan": "a sweep planned, new and finished, against Hydra composing its jobs",
    "probes": "a run with every probe, the same without, and what drawing takes",
    "workers": "jobs of about a second on two workers, on one, and in the process of the command",
}
STEPS = {"a": 20_000, "c": 200, "probes": 5000}
CASES_OF = {
    "a": ["moons mlp", "pattern lstm"],
    "b": list(CASES),
    "cold": list(CASES),
    "c": ["moons mlp", "pattern lstm"],
    "probes": ["moons mlp", "pattern lstm", "edges cnn", "edges vit"],
}
AXES = ("lanes", "steps", "hidden", "length")


def names(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """A type for argparse: names separated by commas."""

    def parse(text: str) -> list[str]:
        chosen = [name.strip() for name in text.split(",")]
        for name in chosen:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(allowed)}")
        return chosen

    return parse


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def parser(about: str) -> argparse.ArgumentParser:
    parts = "\n".join(f"  {name:<7} {text}" for name, text in PARTS.items())
    result = Parser(
        prog="nnexp bench",
        description=f"{about}\nparts:\n{parts}\n\ncases: {', '.join(CASES)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = result.add_argument
    add("--part", type=names(list(PARTS)), default=["a"], help="which parts, separated by commas; a if not given")
    add("--cases", type=names(list(CASES)), help="which cases; all in b and cold, an MLP and an LSTM in a and c")
    add("--jobs", type=int, default=JOBS, help="jobs of a sweep (b, cold)")
    add(
        "--steps",
        type=int,
        help="updates of each of our jobs (a: 20000, b: 2000 to 20000 by case, c: 200, probes: 5000)",
    )
    add("--rounds", type=int, default=5, help="interleaved rounds (a, b, d, workers, probes)")
    add("--loop-jobs", type=int, default=2, help="bare loops, solo runs and runs of the peer that are timed (b, cold)")
    add("--loop-steps", type=int, default=2000, help="updates of each of these (b, cold)")
    add("--lightning-steps", type=int, default=500, help="updates of Lightning that are timed; 0: none (a, b, cold)")
    add("--peer-python", metavar="PYTHON", help="a Python with mushin-py and what nnexp needs: it is measured too (b)")
    add("--cold-steps", type=numbers, default=[2000, 20_000], help="updates of each job (cold)")
    add(
        "--cold-most-steps",
        type=int,
        help="longer commands are scaled from one of these and one of half as many (cold)",
    )
    add("--cold-rounds", type=int, default=1, help="whole commands of each case and length (cold)")
    add("--axes", type=names(AXES), default=list(AXES), help="what is doubled (c)")
    add("--most-lanes", type=int, default=512, help="the largest sweep (c)")
    add("--plan-jobs", type=int, default=2000, help="jobs of the sweep that is planned (plan)")
    add("--plan-composed", type=int, default=200, help="how many of them Hydra composes (plan)")
    add("--worker-jobs", type=int, default=32, help="jobs of a second (workers)")
    add("--csv", metavar="FILE", help="write all measurements, with the machine's facts")
    add("--picture", metavar="FILE", help="draw parts b and c; .png, .svg or .pdf")
    return result
