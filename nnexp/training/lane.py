"""Train one lane: a model, its data and its optimiser. Writes no files."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

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
    rng_states_equal,
    seeded,
)
from nnexp.registry import Registry
from nnexp.rundir import Rows
from nnexp.training.bit_exact import use_exact_products
from nnexp.training.divergence import REPLAY_DIFFERS, Diverged, divergence_message, explain_divergence
from nnexp.training.flat_weights import FlatWeights
from nnexp.training.make_module import convert, make_module
from nnexp.training.norms import is_out_of_range, scaled_norm
from nnexp.training.optimizer_step import clip_gradient, make_update
from nnexp.training.precision import DTYPES, precision_context
from nnexp.training.step_buffer import StepBuffer
from nnexp.training.trainer_base import Trainer

use_exact_products()
MAX_RECORDED_STEPS = 200  # with layer norms and learning rate, besides the first and the last


@dataclass(frozen=True)
class FirstStep:
    """Loss () and flat gradient (P,) of the next update, and whether its forward pass drew random numbers."""

    loss: Tensor
    gradient: Tensor
    draws: bool


class Lane:
    """Training state of one job: model, optimiser, batches and random generators.

        lane = Lane(job, registry, torch.device("cpu"), should_stop=lambda: False)
        rows = lane.advance(100)  # train 100 updates
        lane.evaluate("val")  # {"val/loss": 0.31, "val/accuracy": 0.92}

    Args:
        job: the configuration.
        registry: provides its plugins.
        device: of all tensors.
        should_stop: called before every update; training pauses when it returns True.
        datasets: cache shared with other lanes.

    Raises:
        PluginError: a plugin cannot be imported.
        NnexpError: the dataset violates its contract, or the model has no weights or some of another type.
    """

    def __init__(
        self,
        job: Job,
        registry: Registry,
        device: torch.device,
        should_stop: Callable[[], bool],
        datasets: DatasetCache | None = None,
    ) -> None:
        self.job, self.should_stop = job, should_stop
        self.step = 0
        self.norm: Callable[[Tensor], Tensor] = torch.linalg.vector_norm  # until one is out of its range
        self.arithmetic = partial(precision_context, job.options.precision, device)
        dtype = DTYPES[job.options.precision]
        with seeded(derive_seed(0, "import")):  # random draws at a plugin's import are the same for every job
            classes = {choice.kind: registry.get(choice.kind, choice.name).load() for choice in job.parts}
        self.dataset, self.splits = (datasets or DatasetCache()).get(job, classes["dataset"], dtype, device)
        self.data: DataSpec = self.dataset.spec
        with seeded(derive_seed(job.trainer.seed, "trainer")):
            self.trainer: Trainer = classes["trainer"](**job.trainer.values)
        self.generators = LaneGenerators(derive_seed(job.model.seed, "model"))
        with self.generators.active():
            self.module = make_module(classes["model"], self.data, job.model.values, self.splits["train"])
        convert(self.module, dtype, device)
        self.weights = FlatWeights(self.module)
        with seeded(derive_seed(job.trainer.seed, "optimizer")):
            self.update = make_update(self.trainer, self.weights)
        self.batches = Batches(self.splits["train"], self.trainer.batch_size, derive_seed(job.trainer.seed, "order"))
        self.best_val_loss, self.evaluations_since_best = math.inf, 0
        self.stride = math.ceil(self.trainer.max_steps / MAX_RECORDED_STEPS) or 1

    @property
    def num_weights(self) -> int:
        """P, the number of trainable weights."""
        return self.weights.vector.numel()

    @property
    def columns(self) -> list[str]:
        """Names of the columns of metrics.csv, without `step`."""
        layers = [f"grad_norm/{layer}" for layer in self.weights.layers]
        evaluated = [f"{split}/{name}" for split in ("val", "test") for name in metric_names(self.data)]
        return ["train/loss", "grad_norm", "lr", *layers, *evaluated]

    @property
    def is_ended(self) -> bool:
        """True once training is over: `max_steps` are done, or `patience` is exhausted."""
        patience = self.trainer.patience
        return self.step == self.trainer.max_steps or (patience is not None and self.evaluations_since_best >= patience)

    def update_patience(self, val_loss: float) -> None:
        """Count evaluations since the best validation loss, for early stopping.

        A loss that is not finite does not count: the run ends as diverged.
        """
        if not math.isfinite(val_loss):
            return
        self.evaluations_since_best = 0 if val_loss < self.best_val_loss else self.evaluations_since_best + 1
        self.best_val_loss = min(self.best_val_loss, val_loss)

    def is_recorded(self, step: int) -> bool:
        """Check whether a step has layer norms and learning rate, as about 200 steps, the first and the last have."""
        return step % self.stride == 0 or step in (1, self.trainer.max_steps)

    def advance(self, stop: int) -> Rows:
        """Train up to step `stop`, or until `should_stop`, and return the rows of these steps.

        Raises:
            Diverged: loss, gradient or weights are not finite; the lane is then at the step before, with its weights. A
                lane that answers differently when trained again, which the error says, is where it was.
        """
        before = self.state()
        rows = self._train(stop - self.step).rows(self.weights.layers)
        if self.norm is not scaled_norm and is_out_of_range(torch.tensor(rows.norms)).any():
            self.restore(before)
            self.norm = scaled_norm
            rows = self._train(len(rows), pausable=False).rows(self.weights.layers)
        index = self._first_nonfinite(rows)
        if index is None:
            return rows
        self.restore(before)
        again = self._train(index, pausable=False).rows(self.weights.layers)
        if again.losses != rows.losses[:index]:
            self.restore(before)
            reason = f"{REPLAY_DIFFERS.format(step=self.step)} The weights that are kept are those of step {self.step}."
            raise Diverged(divergence_message(rows.head(index + 1), reason), rows.head(index + 1))
        raise self.divergence_error(rows.head(index + 1))

    def divergence_error(self, rows: Rows) -> Diverged:
        """Return the error of a lane whose weights are those before the update that diverged.

        Args:
            rows: rows of the last steps, that of the diverged update included.
        """
        before = self.state()
        x, y, *lengths = next(self.batches.take(rows.last_step, 1))
        with self.generators.active(), self.arithmetic():
            forward = lambda: loss(self.module(x, *lengths), y, self.data, *lengths)  # noqa: E731
            layer = explain_divergence(self.module, self.weights, forward, math.isfinite(rows.losses[-1]))
        self.restore(before)  # a forward pass moves running means and generators
        return Diverged(divergence_message(rows, layer), rows)

    def first_step(self, training: bool = True) -> FirstStep:
        """Compute the next update's loss and gradient, and restore the lane's state.

        Args:
            training: mode of the module.
        """
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
        """Return the summed loss () over the predictions of the next batch, in evaluation mode; restore the state."""
        before, batch = self.state(), next(self.batches.take(self.step + 1, 1))
        self.module.eval()
        with self.generators.active(), self.arithmetic():
            value = measure(self.module, batch, self.data)["loss"]
        self.module.train()
        self.restore(before)
        return value

    def _first_nonfinite(self, rows: Rows) -> int | None:
        """Return the index of the first row that is not finite, or None.

        No loss follows the last update, so its row counts as not finite if the weights after it are not.
        """
        index = rows.first_nonfinite()
        is_end = index is None and len(rows) > 0 and self.step == self.trainer.max_steps
        return len(rows) - 1 if is_end and not self.weights.vector.isfinite().all() else index

    def _train(self, count: int, pausable: bool = True) -> StepBuffer:
        """Train `count` updates. The hot path: no number is copied from the device."""
        buffer = StepBuffer(self.step + 1, count, self.weights.vector)
        module, data, weights, clip_norm = self.module, self.data, self.weights, self.trainer.clip_norm
        with self.generators.active(), self.arithmetic():
            for x, y, *lengths in self.batches.take(self.step + 1, count):
                if pausable and self.should_stop():
                    break
                step = self.step + 1
                value = loss(module(x, *lengths), y, data, *lengths)
                grads = weights.gradient(value)
                flat = torch.cat([g.reshape(-1) for g in grads])
                norm = self.norm(flat)
                if self.is_recorded(step):
                    buffer.layer_norms.append((step, self.update.lr(step), weights.layer_norms(grads)))
                self.update.step(clip_gradient(flat, norm, clip_norm), step)
                buffer.add(value.detach(), norm)
                self.step = step
        return buffer

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the metrics of a split as `<split>/<name>`; generators, buffers and mode are restored.

        Args:
            split: "train", "val" or "test".
        """
        before = {name: value.clone() for name, value in self.module.named_buffers()}
        self.module.eval()
        with seeded(derive_seed(self.job.model.seed, "evaluation")), self.arithmetic():
            result = evaluate(self.module, self.splits[split], self.data)
        self.module.train()
        for name, value in before.items():  # a module may change its buffers in evaluation mode too
            self.module.get_buffer(name).copy_(value)
        return {f"{split}/{name}": value for name, value in result.items()}

    def state(self) -> dict[str, Any]:
        """Return the state to resume from, for a checkpoint: tensors and plain numbers. Batches need only the step."""
        return {
            "step": self.step,
            "patience": [self.best_val_loss, self.evaluations_since_best],
            "weights": {name: value.detach().clone() for name, value in self.module.state_dict().items()},
            "optimizer": self.update.state(),
            "generators": self.generators.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Set the lane to a state returned by `state`; training continues bit for bit as it would have."""
        self.step = state["step"]
        self.best_val_loss, self.evaluations_since_best = state["patience"]
        with torch.no_grad():
            self.module.load_state_dict(state["weights"])
        self.update.restore(state["optimizer"])
        self.generators.state = state["generators"]
