"""One lane: a model, its data and its optimiser, trained step by step. Numbers only; no file is written here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nnexp.base import rng_states_equal
from nnexp.config import Job
from nnexp.data import (
    Batches,
    DatasetCache,
    DataSpec,
    LaneGenerators,
    derive_seed,
    evaluate,
    loss,
    measure,
    metric_names,
    seeded,
)
from nnexp.registry import Registry
from nnexp.rundir import Rows
from nnexp.training.bit_exact import use_exact_products
from nnexp.training.divergence import Diverged, explain_divergence
from nnexp.training.flat_weights import FlatWeights
from nnexp.training.optimizer_step import clip_gradient, make_update
from nnexp.training.precision import DTYPES, precision_context
from nnexp.training.step_buffer import StepBuffer
from nnexp.training.trainer_base import Trainer

use_exact_products()
POINTS = 200


@dataclass(frozen=True)
class FirstStep:
    """A loss () and its gradient (P,), and whether computing them drew random numbers."""

    loss: Tensor
    gradient: Tensor
    draws: bool


class Lane:
    """A job's own model in training.

    Args:
        job: what to train.
        registry: where its plugins are found.
        device: where its tensors live.
        stopped: asked before every update; training pauses where it says yes.
        datasets: holds the data that other lanes may share.
    """

    def __init__(
        self,
        job: Job,
        registry: Registry,
        device: torch.device,
        stopped: Callable[[], bool],
        datasets: DatasetCache | None = None,
    ) -> None:
        self.job, self.stopped = job, stopped
        self.step = 0
        self.arithmetic = partial(precision_context, job.options.precision, device)
        dtype = DTYPES[job.options.precision]
        with seeded(derive_seed(0, "import")):  # what a module draws when it is imported is the same for every job
            classes = {choice.kind: registry.get(choice.kind, choice.name).load() for choice in job.parts}
        self.dataset, self.splits = (datasets or DatasetCache()).get(job, classes["dataset"], dtype, device)
        self.data: DataSpec = self.dataset.spec
        with seeded(derive_seed(job.trainer.seed, "trainer")):
            self.trainer: Trainer = classes["trainer"](**job.trainer.values)
        self.generators = LaneGenerators(derive_seed(job.model.seed, "model"))
        with self.generators.active():
            self.module = classes["model"](self.data, **job.model.values)
        self.module.to(device, dtype)
        self.weights = FlatWeights(self.module)
        with seeded(derive_seed(job.trainer.seed, "optimizer")):
            self.update = make_update(self.trainer, self.weights)
        self.batches = Batches(self.splits["train"], self.trainer.batch_size, derive_seed(job.trainer.seed, "order"))
        self.best, self.waited = math.inf, 0
        self.stride = math.ceil(self.trainer.max_steps / POINTS) or 1

    @property
    def num_weights(self) -> int:
        return self.weights.vector.numel()

    @property
    def columns(self) -> list[str]:
        """Columns of metrics.csv."""
        layers = [f"grad_norm/{layer}" for layer in self.weights.layers]
        evaluated = [f"{split}/{name}" for split in ("val", "test") for name in metric_names(self.data)]
        return ["train/loss", "grad_norm", "lr", *layers, *evaluated]

    @property
    def is_ended(self) -> bool:
        """Whether training is over: the last step, or no better validation loss for as long as `patience` allows."""
        patience = self.trainer.patience
        return self.step == self.trainer.max_steps or (patience is not None and self.waited >= patience)

    def observe(self, val_loss: float) -> None:
        """Take note of an evaluation; one that is not finite says nothing of patience, for divergence ends the run."""
        if not math.isfinite(val_loss):
            return
        self.waited = 0 if val_loss < self.best else self.waited + 1
        self.best = min(self.best, val_loss)

    def is_recorded(self, step: int) -> bool:
        """Whether a step has layer norms and learning rate: a bounded number have, with the first and the last."""
        return step % self.stride == 0 or step in (1, self.trainer.max_steps)

    def advance(self, stop: int) -> Rows:
        """Train up to step `stop`, or until stopped; gives the rows of these steps.

        Raises Diverged, with the rows up to the step that is not finite, and the weights as they were before it.
        """
        before = self.state()
        rows = self._train(stop - self.step).rows(self.weights.layers)
        bad = self._first_bad(rows)
        if bad is None:
            return rows
        self.restore(before)
        self._train(bad, pausable=False)
        raise self.diverged(rows.cut(bad + 1))

    def diverged(self, rows: Rows) -> Diverged:
        """What to say of a lane whose last row is not finite; its weights are those from before that update."""
        before = self.state()
        message = self._explain(rows)
        self.restore(before)  # a forward pass moves running means and generators
        return Diverged(message, rows)

    def first_step(self, training: bool = True) -> FirstStep:
        """The next update's loss and gradient, computed and forgotten."""
        before = self.state()
        self.module.train(training)
        x, y, *lengths = next(self.batches.take(self.step + 1, 1))
        with self.generators.active(), self.arithmetic():
            value = loss(self.module(x, *lengths), y, self.data, *lengths)
            gradient = torch.cat([g.reshape(-1) for g in self.weights.gradient(value)])
        draws = not rng_states_equal(before["generators"], self.generators.state)
        self.module.train()
        self.restore(before)
        return FirstStep(value.detach(), gradient, draws)

    @torch.no_grad()
    def first_evaluation(self) -> Tensor:
        """The loss () of the next update's batch in evaluation mode, times its predictions."""
        before, batch = self.state(), next(self.batches.take(self.step + 1, 1))
        self.module.eval()
        with self.generators.active(), self.arithmetic():
            value = measure(self.module, batch, self.data)["loss"]
        self.module.train()
        self.restore(before)
        return value

    def _first_bad(self, rows: Rows) -> int | None:
        """Index of the first row that is not finite; after the last update its weights count, for no loss follows."""
        bad = rows.first_bad()
        is_end = bad is None and len(rows) > 0 and self.step == self.trainer.max_steps
        return len(rows) - 1 if is_end and not self.weights.vector.isfinite().all() else bad

    def _train(self, count: int, pausable: bool = True) -> StepBuffer:
        """The hot path: no number leaves the device here."""
        buffer = StepBuffer(self.step + 1, count, self.weights.vector)
        module, data, weights, clip_norm = self.module, self.data, self.weights, self.trainer.clip_norm
        with self.generators.active(), self.arithmetic():
            for x, y, *lengths in self.batches.take(self.step + 1, count):
                if pausable and self.stopped():
                    break
                step = self.step + 1
                value = loss(module(x, *lengths), y, data, *lengths)
                grads = weights.gradient(value)
                flat = torch.cat([g.reshape(-1) for g in grads])
                norm = torch.linalg.vector_norm(flat)
                if self.is_recorded(step):
                    buffer.layer_norms.append((step, self.update.lr(step), weights.layer_norms(grads)))
                self.update.step(clip_gradient(flat, norm, clip_norm), step)
                buffer.add(value.detach(), norm)
                self.step = step
        return buffer

    def _explain(self, rows: Rows) -> str:
        step, loss_value, norm = rows.last_step, rows.losses[-1], rows.norms[-1]
        x, y, *lengths = next(self.batches.take(step, 1))
        with self.generators.active(), self.arithmetic():
            where = explain_divergence(
                self.module, self.weights, lambda: loss(self.module(x, *lengths), y, self.data, *lengths)
            )
        last = f" The last finite gradient norm was {rows.norms[-2]:.3g}." if len(rows) > 1 else ""
        if math.isfinite(loss_value + norm):
            return f"step {step}: the update is so large that it leaves weights that are not finite.{last}"
        what = "loss" if not math.isfinite(loss_value) else "gradient"
        return f"step {step}: the {what} is not finite. {where}{last}"

    def evaluate(self, split: str) -> dict[str, float]:
        """Metrics of a split, `<split>/<name>`; training goes on as if nothing had been evaluated."""
        before = {name: value.clone() for name, value in self.module.named_buffers()}
        self.module.eval()
        with seeded(derive_seed(self.job.model.seed, "evaluation")), self.arithmetic():
            result = evaluate(self.module, self.splits[split], self.data)
        self.module.train()
        for name, value in before.items():  # which a module may change in evaluation too
            self.module.get_buffer(name).copy_(value)
        return {f"{split}/{name}": value for name, value in result.items()}

    def state(self) -> dict[str, Any]:
        """All that training goes on from, as tensors and plain numbers. Batches need only the step."""
        return {
            "step": self.step,
            "patience": [self.best, self.waited],
            "weights": {name: value.detach().clone() for name, value in self.module.state_dict().items()},
            "optimizer": self.update.state(),
            "generators": self.generators.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state, as if training had never stopped."""
        self.step = state["step"]
        self.best, self.waited = state["patience"]
        with torch.no_grad():
            self.module.load_state_dict(state["weights"])
        self.update.restore(state["optimizer"])
        self.generators.state = state["generators"]
