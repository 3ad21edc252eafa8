"""What is measured, and the bars that it must pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nnexp.nn import KernelsUnavailable, find_compiler

JOBS = 64  # of a sweep that the bars are for
LIGHTNING = 3.0  # a sweep beats Lightning by so many times what it must beat bare loops by
DOUBLING = 1.05  # of cost per unit, where the number of units is doubled
PLANNING = 10.0  # times faster than Hydra composes the same jobs
PROBES = 0.10  # what all probes compute, in parts of the training of the same run without
PICTURE = 200.0  # milliseconds to draw one
START = 1.25  # to the first update, in times of importing Lightning; help, in times of importing Hydra


@dataclass(frozen=True)
class Case:
    """A dataset with a model.

    Args:
        overrides: of the command line.
        training: how many times faster than bare loops a sweep trains.
        cold: the same of a whole command with empty caches, by updates of each job.
        steps: updates after which what a run costs once, such as its sealing, is a small part of the training.
        plain: `training` where there is no C++ compiler, if it is another.
        scales: keys whose doubling is measured.
    """

    overrides: tuple[str, ...]
    training: float
    cold: Mapping[int, float]
    steps: int
    plain: float | None = None
    scales: Mapping[str, str] = field(default_factory=dict)

    @property
    def bar(self) -> float:
        return self.training if self.plain is None or compiler() else self.plain


HIDDEN = {"hidden": "model.hidden_size"}
RECURRENT = {**HIDDEN, "length": "dataset.length"}
SHORT = {2000: 3.0, 20_000: 8.0}
CASES = {
    "moons mlp": Case(("dataset=moons", "model=mlp"), 15.0, SHORT, 20_000, scales=HIDDEN),
    "pattern rnn": Case(("dataset=pattern", "model=rnn"), 12.0, SHORT, 4000, scales=RECURRENT),
    "pattern gru": Case(("dataset=pattern", "model=gru"), 5.0, {2000: 2.0, 20_000: 4.0}, 2000, scales=RECURRENT),
    "pattern lstm": Case(
        ("dataset=pattern", "model=lstm"), 4.0, {2000: 1.5, 20_000: 3.0}, 2000, plain=1.5, scales=RECURRENT
    ),
    "edges cnn": Case(("dataset=edges", "model=cnn"), 1.8, {2000: 1.2, 20_000: 1.5}, 2000),
    "edges vit": Case(("dataset=edges", "model=vit"), 2.0, {2000: 1.2, 20_000: 1.5}, 2000, scales=HIDDEN),
}


def bars_of(bar: float | None, jobs: int) -> dict[str, float]:
    """By how many times ours must be faster than each way, from what it is for bare loops; of JOBS jobs alone."""
    return {} if bar is None or jobs != JOBS else {"bare": bar, "Lightning": LIGHTNING * bar}


def compiler() -> str | None:
    """The C++ compiler that kernels are built with here, if there is one."""
    try:
        return find_compiler()[0]
    except KernelsUnavailable:
        return None
