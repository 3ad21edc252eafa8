"""Probes at work: when each looks at a lane, what it is given, and what becomes of what it sees or raises.

A lane with probes trains to the same bits as one without: they get a lane of their own, and the process is left as it
was.
"""

from __future__ import annotations

import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from nnexp.base import isolated
from nnexp.config import Job, JobOptions, PluginConfig
from nnexp.data import derive_seed, seed_all, seeded_generator
from nnexp.plotting import render
from nnexp.probing.schedule import drawn_steps, is_due, next_due
from nnexp.probing.view import View
from nnexp.registry import Observation, Registry, to_plain
from nnexp.rundir import ProbeResult
from nnexp.training import Lane, precision_context

Build = Callable[[Job], Lane]


class ProbeRunner:
    """The probes of one lane.

    Args:
        job: of the lane.
        own: has lanes for them.
        is_hard: asked where a probe raises KeyboardInterrupt, whether a user means it.
        is_reopened: whether the lane is a run that had ended, of which nothing but the weights is known.
    """

    def __init__(
        self, job: Job, registry: Registry, own: ProbeLanes, is_hard: Callable[[], bool], *, is_reopened: bool = False
    ) -> None:
        self.is_reopened = is_reopened
        self.job, self.registry, self.own, self.is_hard = job, registry, own, is_hard
        self.left = list(job.probes)
        self.seconds = {"computing": 0.0, "drawing": 0.0}
        self.num_drawn = 0
        self._made: dict[str, Any] = {}

    def next_after(self, step: int, max_steps: int) -> int:
        """The first step after `step` at which one looks."""
        return min((next_due(c.values["every"], step, max_steps) for c in self.left), default=max_steps)

    def drop(self, name: str) -> None:
        """Ask a probe no more."""
        self.left = [choice for choice in self.left if choice.name != name]

    def look(self, lane: Lane, *, is_end: bool) -> Iterator[ProbeResult]:
        """What the probes see that are due. One that does not fit, or raises, is not asked again."""
        most = lane.trainer.max_steps
        due = [choice for choice in self.left if is_end or is_due(choice.values["every"], lane.step, most)]
        if due:
            self.own.look_at(lane)
        for choice in due:
            sight = self._look(choice, lane)
            sight.is_drawn = is_end or lane.step in drawn_steps(choice.values["every"], most)
            if sight.observation is not None and sight.error is None and sight.is_drawn:
                self._draw(sight)
            yield sight
            if sight.observation is None or sight.error:  # also one that could not be kept
                self.drop(choice.name)

    def _look(self, choice: PluginConfig, lane: Lane) -> ProbeResult:
        sight, began = ProbeResult(choice, lane.step), time.perf_counter()
        seed, stream = lane.job.model.seed, f"probe/{choice.name}/{lane.step}"
        try:
            with isolated():
                seed_all(derive_seed(seed, stream))
                if choice.name not in self._made:
                    self._made[choice.name] = self.registry.get("probe", choice.name).load()(**choice.values)
                fresh = self.own.fresh()
                with fresh.arithmetic():
                    view = View(fresh, seeded_generator(seed, stream), self.own.exact, is_reopened=self.is_reopened)
                    sight.observation = self._made[choice.name](view)
                if not isinstance(sight.observation, Observation | None):
                    raise TypeError(f"a probe returns Observation(...) or None, not {type(sight.observation).__name__}")
                for name, picture in sight.observation.pictures.items() if sight.observation else ():
                    sight.numbers[name] = to_plain(picture.numbers)
        except BaseException as error:
            self._caught(sight, error)
        self.seconds["computing"] += time.perf_counter() - began
        return sight

    def _draw(self, sight: ProbeResult) -> None:
        began = time.perf_counter()
        try:
            with isolated():
                for name, picture in sight.observation.pictures.items() if sight.observation else ():
                    sight.drawn[name] = render(picture, sight.numbers[name], self._whose(sight.step))
                    self.num_drawn += 1
        except BaseException as error:
            self._caught(sight, error)
        self.seconds["drawing"] += time.perf_counter() - began

    def _whose(self, step: int) -> str:
        return f"{self.job.model.name} on {self.job.dataset.name}, step {step:,}"

    def _caught(self, sight: ProbeResult, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt) and self.is_hard():
            raise error
        sight.error = error
        traceback.print_exception(error)  # into log.txt


class ProbeLanes:
    """The lanes that probes are given, as the lane in training is now, kept from look to look while that is the same.

    Args:
        build: makes a lane of a job, at step 0.
    """

    def __init__(self, build: Build) -> None:
        self.build = build
        self.lane: Lane | None = None
        self._state: dict[str, Any] = {}
        self._known: dict[JobOptions, tuple[Lane, Any]] = {}

    def look_at(self, lane: Lane) -> ProbeLanes:
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
        lane, traces = self._known.get(job.options, (None, None))
        if lane is None or traces != traces_on(lane.module):
            with precision_context(32, torch.device("cpu")):  # as every lane is built, whatever is computed around this
                lane = self.build(job)
            self._known[job.options] = lane, traces_on(lane.module)
        return lane

    def fresh(self) -> Lane:
        """In the job's own precision."""
        lane = self._made(self._job)
        lane.restore(self._state)
        return lane

    def exact(self) -> Lane:
        """In 64 bits, on the CPU; of the state only what the model is."""
        lane = self._made(replace(self._job, options=replace(self._job.options, device="cpu", precision=64)))
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
