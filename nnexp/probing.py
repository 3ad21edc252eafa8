"""Probes at work: when each looks at a lane, what it is given, and what becomes of what it sees or raises.

A lane with probes trains to the same bits as one without: they get a lane of their own, and the process is left as it
was.
"""

from __future__ import annotations

import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from nnexp.arithmetic import arithmetic
from nnexp.config import Choice, Job, Settings
from nnexp.describe import describe
from nnexp.drawing import draw
from nnexp.errors import cut
from nnexp.lane import Lane
from nnexp.moments import is_moment, next_moment, pictured
from nnexp.registry import Registry
from nnexp.seeding import derive, generator, seed_all
from nnexp.seen import Seen, plain
from nnexp.undisturbed import undisturbed
from nnexp.view import View

Build = Callable[[Job], Lane]
LONGEST_TOLD = 400


@dataclass
class Sight:
    """What a probe saw at a step: nothing where it does not fit, or an error.

    Args:
        choice: the probe.
        is_drawn: whether this is a step of which pictures and texts are shown.
        numbers: of each picture, as they are written.
        drawn: of each picture that is drawn, its files' content by ending.
    """

    choice: Choice
    step: int
    seen: Seen | None = None
    error: BaseException | None = None
    is_drawn: bool = True
    numbers: dict[str, dict[str, Any]] = field(default_factory=dict)
    drawn: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def told(self) -> str:
        """What to say of it: its error, with the place where its author looks, or its own warning."""
        if self.error is None:
            return f"{about(self.choice)} says: {self.seen.warning}" if self.seen and self.seen.warning else ""
        what = cut(describe(self.error)["message"], LONGEST_TOLD)
        return f"{about(self.choice)} saw nothing from step {self.step} on: {what}"


def about(choice: Choice) -> str:
    """How what is said of a probe begins."""
    return f"probe '{choice.name}'"


class Probing:
    """The probes of one lane.

    Args:
        job: of the lane.
        own: has lanes for them.
        is_hard: asked where a probe raises KeyboardInterrupt, whether a user means it.
        is_reopened: whether the lane is a run that had ended, of which nothing but the weights is known.
    """

    def __init__(
        self, job: Job, registry: Registry, own: Own, is_hard: Callable[[], bool], *, is_reopened: bool = False
    ) -> None:
        self.is_reopened = is_reopened
        self.job, self.registry, self.own, self.is_hard = job, registry, own, is_hard
        self.left = list(job.probes)
        self.seconds = {"computing": 0.0, "drawing": 0.0}
        self.num_drawn = 0
        self._made: dict[str, Any] = {}

    def next_after(self, step: int, max_steps: int) -> int:
        """The first step after `step` at which one looks."""
        return min((next_moment(c.values["every"], step, max_steps) for c in self.left), default=max_steps)

    def drop(self, name: str) -> None:
        """Ask a probe no more."""
        self.left = [choice for choice in self.left if choice.name != name]

    def look(self, lane: Lane, *, is_end: bool) -> Iterator[Sight]:
        """What the probes see that are due. One that does not fit, or raises, is not asked again."""
        most = lane.trainer.max_steps
        due = [choice for choice in self.left if is_end or is_moment(choice.values["every"], lane.step, most)]
        if due:
            self.own.look_at(lane)
        for choice in due:
            sight = self._look(choice, lane)
            sight.is_drawn = is_end or lane.step in pictured(choice.values["every"], most)
            if sight.seen is not None and sight.error is None and sight.is_drawn:
                self._draw(sight)
            yield sight
            if sight.seen is None or sight.error:  # also one that could not be kept
                self.drop(choice.name)

    def _look(self, choice: Choice, lane: Lane) -> Sight:
        sight, began = Sight(choice, lane.step), time.perf_counter()
        seed, stream = lane.job.model.seed, f"probe/{choice.name}/{lane.step}"
        try:
            with undisturbed():
                seed_all(derive(seed, stream))
                if choice.name not in self._made:
                    self._made[choice.name] = self.registry.get("probe", choice.name).load()(**choice.values)
                fresh = self.own.fresh()
                with fresh.arithmetic():
                    view = View(fresh, generator(seed, stream), self.own.exact, is_reopened=self.is_reopened)
                    sight.seen = self._made[choice.name](view)
                if not isinstance(sight.seen, Seen | None):
                    raise TypeError(f"a probe gives Seen(...) or None, not {type(sight.seen).__name__}")
                for name, picture in sight.seen.pictures.items() if sight.seen else ():
                    sight.numbers[name] = plain(picture.numbers)
        except BaseException as error:
            self._caught(sight, error)
        self.seconds["computing"] += time.perf_counter() - began
        return sight

    def _draw(self, sight: Sight) -> None:
        began = time.perf_counter()
        try:
            with undisturbed():
                for name, picture in sight.seen.pictures.items() if sight.seen else ():
                    sight.drawn[name] = draw(picture, sight.numbers[name], self._whose(sight.step))
                    self.num_drawn += 1
        except BaseException as error:
            self._caught(sight, error)
        self.seconds["drawing"] += time.perf_counter() - began

    def _whose(self, step: int) -> str:
        return f"{self.job.model.name} on {self.job.dataset.name}, step {step:,}"

    def _caught(self, sight: Sight, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt) and self.is_hard():
            raise error
        sight.error = error
        traceback.print_exception(error)  # into log.txt


class Own:
    """The lanes that probes are given, as the lane in training is now, kept from look to look while that is the same.

    Args:
        build: makes a lane of a job, at step 0.
    """

    def __init__(self, build: Build) -> None:
        self.build = build
        self.lane: Lane | None = None
        self._state: dict[str, Any] = {}
        self._known: dict[Settings, tuple[Lane, Any]] = {}

    def look_at(self, lane: Lane) -> Own:
        """Take over what a lane is now."""
        if self.lane is not lane:
            self._known.clear()
        self.lane, self._state = lane, lane.state()
        return self

    @property
    def _job(self) -> Job:
        assert self.lane is not None
        return self.lane.job

    def _made(self, job: Job) -> Lane:
        """A lane without traces of a probe, built anew only where one left any: to restore it costs less."""
        lane, traces = self._known.get(job.settings, (None, None))
        if lane is None or traces != traces_on(lane.module):
            with arithmetic(32, torch.device("cpu")):  # as every lane is built, whatever is computed around this
                lane = self.build(job)
            self._known[job.settings] = lane, traces_on(lane.module)
        return lane

    def fresh(self) -> Lane:
        """In the job's own precision."""
        lane = self._made(self._job)
        lane.restore(self._state)
        return lane

    def exact(self) -> Lane:
        """In 64 bits, on the CPU; of the state only what the model is."""
        lane = self._made(replace(self._job, settings=replace(self._job.settings, device="cpu", precision=64)))
        lane.step = self._state["step"]
        with torch.no_grad():
            lane.module.load_state_dict(self._state["weights"])
        return lane


def traces_on(module: nn.Module) -> list[Any]:
    """What a probe may leave on a model that restoring its weights does not undo: other layers or tensors, hooks,
    attributes, gradients, and numbers in buffers that are in no checkpoint.
    """
    return [(name, id(layer), _own_traces(layer)) for name, layer in module.named_modules()]


def _own_traces(layer: nn.Module) -> list[Any]:
    tensors = [(name, id(p), p.requires_grad, p.grad is None) for name, p in layer._parameters.items() if p is not None]
    lost = [layer._buffers[name] for name in layer._non_persistent_buffers_set]
    values = {name: value for name, value in layer.__dict__.items() if name != "training"}  # which a view sets
    return [
        *tensors,
        *(None if buffer is None else buffer._version for buffer in lost),
        *(len(value) if isinstance(value, OrderedDict) else name for name, value in values.items()),
        *(value for value in values.values() if isinstance(value, int | float | str | None)),
    ]
