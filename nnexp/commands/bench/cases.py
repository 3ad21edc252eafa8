"""Benchmark cases (a dataset with a model), and the bars that their measurements are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nnexp.nn import KernelsUnavailable, find_compiler

JOBS = 64  # the number of jobs of a sweep for which the bars were set
LIGHTNING = 3.0  # bar against Lightning, as a multiple of the bar against bare loops
DOUBLING = 1.05  # growth of the cost per unit when the number of units doubles
PLANNING = 10.0  # speed-up over Hydra composing the same jobs
PROBES = 0.10  # time of all probes, as a fraction of the training time of the same run without
PICTURE = 200.0  # milliseconds to draw a picture
START = 1.25  # time to the first update over importing Lightning; of --help over importing Hydra


@dataclass(frozen=True)
class Case:
    """A dataset with a model.

    Args:
        overrides: overrides that choose dataset and model.
        training: bar of the speed-up of training a sweep over bare loops.
        cold: bars of the speed-up of a whole command with empty caches, by updates of each job.
        steps: updates after which the fixed costs of a run, such as sealing it, are small.
        training_without_compiler: `training` where there is no C++ compiler; None for the same.
        scales: the key to double for each axis of part c.
    """

    overrides: tuple[str, ...]
    training: float
    cold: Mapping[int, float]
    steps: int
    training_without_compiler: float | None = None
    scales: Mapping[str, str] = field(default_factory=dict)

    @property
    def bar(self) -> float:
        """The bar of training on this machine."""
        without = self.training_without_compiler
        return self.training if without is None or compiler() else without


HIDDEN = {"hidden": "model.hidden_size"}
RECURRENT = {**HIDDEN, "length": "dataset.length"}
SHORT = {2000: 3.0, 20_000: 8.0}
CASES = {
    "moons mlp": Case(("dataset=moons", "model=mlp"), 15.0, SHORT, 20_000, scales=HIDDEN),
    "pattern rnn": Case(("dataset=pattern", "model=rnn"), 12.0, SHORT, 4000, scales=RECURRENT),
    "pattern gru": Case(("dataset=pattern", "model=gru"), 5.0, {2000: 2.0, 20_000: 4.0}, 2000, scales=RECURRENT),
    "pattern lstm": Case(
        ("dataset=pattern", "model=lstm"),
        4.0,
        {2000: 1.5, 20_000: 3.0},
        2000,
        training_without_compiler=1.5,
        scales=RECURRENT,
    ),
    "edges cnn": Case(("dataset=edges", "model=cnn"), 1.8, {2000: 1.2, 20_000: 1.5}, 2000),
    "edges vit": Case(("dataset=edges", "model=vit"), 2.0, {2000: 1.2, 20_000: 1.5}, 2000, scales=HIDDEN),
}


def speed_bars(bar: float | None, jobs: int) -> dict[str, float]:
    """Return the bar of the speed-up over each method; empty where there is none for this number of jobs.

    Args:
        bar: the bar against bare loops.
        jobs: number of jobs of the sweep.
    """
    return {} if bar is None or jobs != JOBS else {"bare": bar, "Lightning": LIGHTNING * bar}


def compiler() -> str | None:
    """Return the C++ compiler that builds the kernels on this machine, or None."""
    try:
        return find_compiler()[0]
    except KernelsUnavailable:
        return None
