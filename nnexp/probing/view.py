"""The view that a probe observes: one lane at one step, as the probe's private copy.

Shapes: B rows of a batch, P weights of the model, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from nnexp.data import Split, loss
from nnexp.training import FlatWeights, Lane, clip_gradient, scaled_norm


@dataclass(frozen=True)
class NextUpdate:
    """The optimiser update that training makes after this step, computed on the probe's copy.

    Training itself makes the same update later: the batch, the random numbers and the optimiser state are the same.
    Vectors (P,) concatenate all trained tensors in the order of `View.weights.names`.

    Attributes:
        loss: (), training loss of the batch, before the update.
        gradient: (P,), gradient of `loss`, before clipping.
        clipped: (P,), gradient after clipping, as the optimiser reads it.
        change: (P,), weights after the update minus `weights`. None where a finished run was reopened: only its weights
            were saved, not the state of its optimiser.
        weights: (P,), weights before the update.
        layers: names of the L layers, as in the columns `grad_norm/<layer>` of metrics.csv.
    """

    loss: Tensor
    gradient: Tensor
    clipped: Tensor
    change: Tensor | None
    weights: Tensor
    layers: list[str]
    _flat: FlatWeights

    def norm(self, vector: Tensor) -> Tensor:
        """Return the Euclidean norm () of a vector (P,), which does not underflow when squared."""
        return scaled_norm(vector)

    def layer_norms(self, vector: Tensor) -> Tensor:
        """Return the norm of each layer's part of a vector.

            norms = dict(zip(update.layers, update.layer_norms(update.gradient).tolist(), strict=True))

        Args:
            vector: (P,), for example `gradient`, `clipped`, `change` or `weights`.

        Returns:
            (L,), Euclidean norms in the order of `layers`.
        """
        return self._flat.layer_norms(vector.split(self._flat.sizes))


class View:
    """One lane at one step, passed to every call of a probe.

    The view owns copies of the model, the optimiser and the random state, so a probe may change weights, register hooks
    or draw random numbers; training continues unchanged. Only `dataset` is shared with training and must not be
    modified.

        def __call__(self, view: View) -> Observation:
            x, y, *lengths = view.rows("val", 64)
            with torch.no_grad():
                loss = view.loss(view.module(x, *lengths), y, *lengths)
            norm = view.update.norm(view.update.gradient)
            return Observation(scalars={"val_loss": loss.item(), "gradient_norm": norm.item()})

    Attributes:
        step: number of updates done, from 0 to `max_steps`.
        max_steps: number of updates of the complete training.
        model: name of the model plugin, such as "lstm".
        data: kind, shape and target of the dataset's tensors (`nnexp.DataSpec`).
        module: the model with the weights of this step, in evaluation mode. `module(x, *lengths)` maps
            (B, *data.shape) to (B, outputs), or to (B, T, outputs) where `data.per_step`.
        generator: generator on the CPU for the probe's own draws, seeded from the job, the probe's name and the step,
            so that an observation can be reproduced.
    """

    def __init__(
        self, lane: Lane, generator: torch.Generator, exact: Callable[[], Lane], *, is_reopened: bool = False
    ) -> None:
        """Wrap a lane that belongs to the probe; plugins receive views and do not create them.

        Args:
            lane: copy of the lane in training.
            generator: generator for the probe's draws.
            exact: returns a copy of the lane in float64 on the CPU.
            is_reopened: whether the lane was restored from the weights of a finished run.
        """
        self._lane, self._exact, self._is_reopened = lane, exact, is_reopened
        self.generator = generator
        self.step, self.max_steps = lane.step, lane.trainer.max_steps
        self.model, self.data = lane.job.model.name, lane.data
        self.module: nn.Module = lane.module.eval()

    @property
    def dataset(self) -> Any:
        """Return the dataset plugin itself; it is shared with training and must not be modified."""
        return self._lane.dataset

    @property
    def device(self) -> torch.device:
        """Return the device of the model and of the tensors from `rows`."""
        return self._lane.weights.vector.device

    @property
    def weights(self) -> FlatWeights:
        """Return all trained weights of `module` as one vector.

        `weights.vector` is (P,); the parameters of `module` are views of it. `weights.names` and `weights.params` list
        the trained tensors, `weights.layers` their layers.
        """
        return self._lane.weights

    def rows(self, split: str = "val", count: int = 64) -> Split:
        """Return copies of the first rows of a split.

            x, y, *lengths = view.rows("train", 256)

        Args:
            split: "train", "val" or "test".
            count: maximum number of rows; a smaller split returns all of its rows.

        Returns:
            x (B, *data.shape); y (B,), or (B, T) where `data.per_step`; and lengths (B,) for datasets of sequences of
            different lengths.
        """
        return tuple(t[:count].clone() for t in self._lane.splits[split])

    def loss(self, output: Tensor, y: Tensor, *lengths: Tensor) -> Tensor:
        """Return the loss () that training minimises, as a mean over predictions; padded positions are ignored.

        Args:
            output: result of `module(x, *lengths)`.
            y: targets of the same rows.
            lengths: (B,), where the split has them.
        """
        return loss(output, y, self.data, *lengths)

    @cached_property
    def update(self) -> NextUpdate:
        """Compute the next update on the batch that training reads next, in training mode.

        The first access costs one forward and backward pass. `module` has the weights of this step afterwards.
        """
        lane = self._lane
        before, state = lane.weights.vector.detach().clone(), lane.state()
        lane.module.train()
        x, y, *lengths = next(lane.batches.take(self.step + 1, 1))
        with lane.generators.active(), torch.enable_grad():
            value = loss(lane.module(x, *lengths), y, self.data, *lengths)
            gradient = torch.cat([g.reshape(-1) for g in lane.weights.gradient(value)])
            clipped = clip_gradient(gradient, scaled_norm(gradient), lane.trainer.clip_norm)
            lane.update.step(clipped, self.step + 1)
        change = None if self._is_reopened else lane.weights.vector.detach() - before
        lane.module.eval()
        lane.restore(state)
        return NextUpdate(value.detach(), gradient, clipped, change, before, lane.weights.layers, lane.weights)

    @contextmanager
    def exact(self) -> Iterator[View]:
        """Yield a view of the same weights and rows in float64 on the CPU.

        Within the block, new floating-point tensors are float64 by default.

            with view.exact() as exact:
                x, y, *lengths = exact.rows("train", 8)
                loss = exact.loss(exact.module(x, *lengths), y, *lengths)
        """
        lane = self._exact()
        with lane.arithmetic():
            yield View(lane, self.generator, lambda: lane)
