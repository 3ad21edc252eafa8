"""Scheduling and execution of a lane's probes.

A lane with probes trains to the same bits as one without: probes observe lanes of their own, and the state of the
process is restored after each of them.
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

from nnexp.config import Job, JobOptions, PluginConfig
from nnexp.data import derive_seed, seed_all, seeded_generator
from nnexp.plotting import render
from nnexp.probing.schedule import drawn_steps, is_due, next_due
from nnexp.probing.view import View
from nnexp.registry import Observation, Registry, to_plain
from nnexp.rundir import ProbeResult
from nnexp.training import Lane, isolated, precision_context

Build = Callable[[Job], Lane]


class ProbeRunner:
    """Runs the probes of one lane at their scheduled steps.

    Args:
        job: the lane's job.
        registry: where the probe plugins are found.
        lanes: copies of the lane for the probes.
        is_stop_requested: called when a probe raises KeyboardInterrupt; True means that the user asked to stop.
        is_reopened: whether the lane was restored from the weights of a finished run.

    Attributes:
        active: the probes that are still called: a probe that fails or does not apply is removed.
        seconds: time spent, under "computing" and "drawing".
        num_drawn: number of pictures drawn.
    """

    def __init__(
        self,
        job: Job,
        registry: Registry,
        lanes: ProbeLanes,
        is_stop_requested: Callable[[], bool],
        *,
        is_reopened: bool = False,
    ) -> None:
        self.is_reopened = is_reopened
        self.job, self.registry, self.lanes, self.is_stop_requested = job, registry, lanes, is_stop_requested
        self.active = list(job.probes)
        self.seconds = {"computing": 0.0, "drawing": 0.0}
        self.num_drawn = 0
        self._probes: dict[str, Any] = {}

    def next_after(self, step: int, max_steps: int) -> int:
        """Return the first step after `step` at which a probe is due, or `max_steps`."""
        return min((next_due(c.values["every"], step, max_steps) for c in self.active), default=max_steps)

    def drop(self, name: str) -> None:
        """Remove a probe from the active ones."""
        self.active = [choice for choice in self.active if choice.name != name]

    def observe(self, lane: Lane, *, is_end: bool) -> Iterator[ProbeResult]:
        """Call each probe that is due and yield its result.

        A probe that raises or returns None is not called again; nor is one whose result the caller marks as failed, by
        setting `error`, before it takes the next.

        Args:
            lane: the lane in training.
            is_end: whether training has ended at this step, so that every probe is due.
        """
        max_steps = lane.trainer.max_steps
        due = [choice for choice in self.active if is_end or is_due(choice.values["every"], lane.step, max_steps)]
        if due:
            self.lanes.copy_from(lane)
        for choice in due:
            result = self._compute(choice, lane)
            result.is_drawn = is_end or lane.step in drawn_steps(choice.values["every"], max_steps)
            if result.observation is not None and result.error is None and result.is_drawn:
                self._draw(result)
            yield result
            if result.observation is None or result.error:  # read after the yield: writing the result may have failed
                self.drop(choice.name)

    def _compute(self, choice: PluginConfig, lane: Lane) -> ProbeResult:
        result, began = ProbeResult(choice, lane.step), time.perf_counter()
        try:
            with isolated():
                result.observation = self._call(choice, lane)
                for name, picture in result.observation.pictures.items() if result.observation else ():
                    result.numbers[name] = to_plain(picture.numbers)
        except BaseException as error:
            self._record_error(result, error)
        self.seconds["computing"] += time.perf_counter() - began
        return result

    def _call(self, choice: PluginConfig, lane: Lane) -> Observation | None:
        seed, stream = lane.job.model.seed, f"probe/{choice.name}/{lane.step}"
        seed_all(derive_seed(seed, stream))
        if choice.name not in self._probes:
            self._probes[choice.name] = self.registry.get("probe", choice.name).load()(**choice.values)
        copy = self.lanes.fresh()
        with copy.arithmetic():
            view = View(copy, seeded_generator(seed, stream), self.lanes.exact, is_reopened=self.is_reopened)
            observation = self._probes[choice.name](view)
        if not isinstance(observation, Observation | None):
            raise TypeError(f"a probe returns Observation(...) or None, not {type(observation).__name__}")
        return observation

    def _draw(self, result: ProbeResult) -> None:
        began = time.perf_counter()
        subtitle = f"{self.job.model.name} on {self.job.dataset.name}, step {result.step:,}"
        try:
            with isolated():
                for name, picture in result.observation.pictures.items() if result.observation else ():
                    result.drawn[name] = render(picture, result.numbers[name], subtitle)
                    self.num_drawn += 1
        except BaseException as error:
            self._record_error(result, error)
        self.seconds["drawing"] += time.perf_counter() - began

    def _record_error(self, result: ProbeResult, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt) and self.is_stop_requested():
            raise error
        result.error = error
        traceback.print_exception(error)  # into log.txt


class ProbeLanes:
    """Copies of the lane in training for probes to use, kept from one observation to the next.

        lanes = ProbeLanes(build).copy_from(lane)
        view = View(lanes.fresh(), generator, lanes.exact)

    Args:
        build: returns a new lane of a job, at step 0.
    """

    def __init__(self, build: Build) -> None:
        self.build = build
        self.lane: Lane | None = None
        self._state: dict[str, Any] = {}
        self._cache: dict[JobOptions, tuple[Lane, Any]] = {}

    def copy_from(self, lane: Lane) -> ProbeLanes:
        """Copy the state of a lane, for `fresh` and `exact` to restore, and return self."""
        if self.lane is not lane:
            self._cache.clear()
        self.lane, self._state = lane, lane.state()
        return self

    @property
    def _job(self) -> Job:
        assert self.lane is not None
        return self.lane.job

    def _clean_lane(self, job: Job) -> Lane:
        """Return a lane that no probe has modified beyond what restoring its state undoes.

        It is rebuilt only where a probe did: restoring costs less.
        """
        lane, before = self._cache.get(job.options, (None, None))
        if lane is None or before != unrestored_state(lane.module):
            with precision_context(32, torch.device("cpu")):  # as lanes in training are built
                lane = self.build(job)
            self._cache[job.options] = lane, unrestored_state(lane.module)
        return lane

    def fresh(self) -> Lane:
        """Return a copy of the lane in the job's own precision, in the copied state."""
        lane = self._clean_lane(self._job)
        lane.restore(self._state)
        return lane

    def exact(self) -> Lane:
        """Return a copy of the lane in float64 on the CPU, with the copied step and weights; the rest is new."""
        lane = self._clean_lane(replace(self._job, options=replace(self._job.options, device="cpu", precision=64)))
        lane.step = self._state["step"]
        with torch.no_grad():
            lane.module.load_state_dict(self._state["weights"])
        return lane


def unrestored_state(module: nn.Module) -> list[Any]:
    """Return, as values to compare, the state of a module that loading a state dict does not restore.

    These are the identities of layers and tensors, hooks, plain attributes, the presence of gradients, and the versions
    of buffers that are not persistent.
    """
    return [(name, id(layer), _unrestored_of_layer(layer)) for name, layer in module.named_modules()]


def _unrestored_of_layer(layer: nn.Module) -> list[Any]:
    tensors = [(name, id(p), p.requires_grad, p.grad is None) for name, p in layer._parameters.items() if p is not None]
    transient = [layer._buffers[name] for name in layer._non_persistent_buffers_set]
    values = {name: value for name, value in layer.__dict__.items() if name != "training"}  # which a view sets
    return [
        *tensors,
        *(None if buffer is None else buffer._version for buffer in transient),
        *(len(value) if isinstance(value, OrderedDict) else name for name, value in values.items()),
        *(value for value in values.values() if isinstance(value, int | float | str | None)),
    ]
