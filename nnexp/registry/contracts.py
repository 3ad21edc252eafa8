"""The kinds of plugin: what each is constructed with, the base it inherits, its decorator, and marks of parameters.

Nothing here imports torch, so that reading schemas and composing jobs stay fast. What a plugin of each kind provides
stands where it is used: `nnexp/data/data_spec.py`, `nnexp/nn/model_contract.py`, `nnexp/training/trainer_base.py`,
`nnexp/probing/probe_base.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Class = TypeVar("Class", bound=type)

PARTS = ("dataset", "model", "trainer")  # of a job, one of each
KINDS = (*PARTS, "probe")
FACTS = {"dataset": ["generator"], "model": ["data"], "trainer": [], "probe": []}  # positional, passed by the harness
ALL, DEFAULT = "all", "default"  # in place of a probe's name: every probe; what a command has that chooses none


@dataclass(frozen=True)
class Base:
    """The base class that every plugin of a kind inherits from.

    Args:
        class_name: as plugins import it from `nnexp`.
        provides: what its parameters are, for messages.
        path: its source file within the package: read, not imported, for bases live in rooms above this one.
    """

    class_name: str
    provides: str
    path: str


BASES = {
    "trainer": Base("Trainer", "its steps, batches and evaluation", "training/trainer_base.py"),
    "probe": Base("Probe", "its schedule", "probing/probe_base.py"),
}


@dataclass(frozen=True)
class Range:
    """Bounds of a number, for `Annotated[int, Range(min=1)]`.

    Args:
        min: the smallest value allowed.
        max: the largest value allowed.
        gt: a bound that the value must exceed.
        lt: a bound that the value must stay under.
    """

    min: float | None = None
    max: float | None = None
    gt: float | None = None
    lt: float | None = None

    def __contains__(self, value: float) -> bool:
        return not (
            (self.min is not None and not value >= self.min)
            or (self.max is not None and not value <= self.max)
            or (self.gt is not None and not value > self.gt)
            or (self.lt is not None and not value < self.lt)
        )

    def __str__(self) -> str:
        bounds = ((">=", self.min), (">", self.gt), ("<=", self.max), ("<", self.lt))
        return " and ".join(f"{sign} {bound}" for sign, bound in bounds if bound is not None)


class PerLane:
    """Marks a parameter that only changes numbers, never shapes or code: `Annotated[float, PerLane]`.

    It may differ between the lanes of a cohort, which are trained as one stack where their forward pass, run once for
    all of them, gives each what its own module would. So a value that `forward` reads must be a buffer of the module,
    `self.register_buffer("gain", torch.tensor(gain))`; kept in any other way, its lanes are trained one by one.
    """


class File:
    """Marks a parameter that names a file whose content, not whose path, is part of the job: `Annotated[str, File]`.

    A file that is renamed leaves a run what it was; one that is written anew makes another run.
    """


def _mark(kind: str) -> Callable[[Class], Class]:
    def decorate(cls: Class) -> Class:
        cls.nnexp_kind = kind  # type: ignore[attr-defined]  # the registry checks it against the folder
        return cls

    return decorate


dataset = _mark("dataset")
model = _mark("model")
trainer = _mark("trainer")
probe = _mark("probe")
