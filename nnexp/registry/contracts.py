"""Kinds of plugins: their decorators, base classes and constructor arguments, and the annotations of parameters.

Nothing here imports torch, so that reading schemas and composing jobs stay fast. The interface that a plugin of each
kind implements is defined where it is used: `nnexp/data/data_spec.py`, `nnexp/nn/model_contract.py`,
`nnexp/training/trainer_base.py`, `nnexp/probing/probe_base.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Class = TypeVar("Class", bound=type)

PARTS = ("dataset", "model", "trainer")  # a job has exactly one of each
KINDS = (*PARTS, "probe")
# Positional arguments of the constructor, passed by the harness.
CONSTRUCTOR_ARGUMENTS = {"dataset": ["generator"], "model": ["data"], "trainer": [], "probe": []}
ALL, DEFAULT = "all", "default"  # in place of a probe's name: every probe; the probes of a command that chooses none


@dataclass(frozen=True)
class Base:
    """The base class that every plugin of a kind inherits from.

    Args:
        class_name: the name that plugins import from `nnexp`.
        provides: what its parameters configure, for error messages.
        path: its source file within the package; parsed and not imported, because base classes live in higher layers.
    """

    class_name: str
    provides: str
    path: str


BASES = {
    "trainer": Base("Trainer", "its steps, batches and evaluation", "training/trainer_base.py"),
    "probe": Base("Probe", "its schedule", "probing/probe_base.py"),
}

# All that nnexp uses of a plugin besides its parameters. A public name of a class that is not here would never be used,
# so it is refused. Models are free: nnexp calls them and takes whatever else they hold as theirs.
CONTRACT = {
    "dataset": {
        "spec": "`DataSpec`: kind and shape of inputs and targets",
        "train": "the training split, `(x, y)` or `(x, y, lengths)`",
        "val": "the validation split",
        "test": "the test split",
        "vocab": "for text: the characters, by token",
    },
    "trainer": {
        "optimizer": "`optimizer(params)` returns a `torch.optim` optimiser",
        "init": "`init(weights)` returns the optimiser's state before the first update",
        "update": "`update(weights, grads, state, step, *, lr, weight_decay)` returns new weights and state",
        "lr_factor": "`lr_factor(step)` returns the factor of the learning rate at an update",
    },
    "probe": {"__call__": "`__call__(view)` returns an `Observation`, or None where the probe does not apply"},
}


@dataclass(frozen=True)
class Range:
    """Bounds of a numeric parameter: `Annotated[int, Range(min=1)]`.

    Args:
        min: the smallest value allowed.
        max: the largest value allowed.
        gt: an exclusive lower bound.
        lt: an exclusive upper bound.
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
    """Mark a parameter that changes only numbers, never shapes or code: `Annotated[float, PerLane]`.

    Jobs that differ only in such parameters form a cohort, and are trained as one stack if a single forward pass over
    the stack returns for each lane what its own module would. Therefore a value that `forward` reads must be a buffer,
    `self.register_buffer("gain", torch.tensor(gain))`; a value stored in any other way makes the lanes train one by
    one.
    """


class File:
    """Mark a parameter that names a file: `Annotated[str, File]`.

    The job's fingerprint covers the file's content instead of its path: renaming the file keeps existing runs valid,
    editing it creates new runs.
    """


def _decorator(kind: str) -> Callable[[Class], Class]:
    def decorate(cls: Class) -> Class:
        cls.nnexp_kind = kind  # type: ignore[attr-defined]  # the registry checks it against the folder
        return cls

    return decorate


dataset = _decorator("dataset")
model = _decorator("model")
trainer = _decorator("trainer")
probe = _decorator("probe")
