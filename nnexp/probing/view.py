"""What a probe is given: one lane as it is at one step, in a copy of its own.

Shapes: B rows of a batch, P weights of the model.
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
from nnexp.training import FlatWeights, Lane, clip_gradient


@dataclass(frozen=True)
class NextUpdate:
    """The update that training makes next, not made.

    Args:
        loss: () of its batch.
        gradient: (P,) of that loss.
        clipped: (P,) what of it reaches the optimiser.
        change: (P,) what the optimiser adds to the weights; None of a run that had ended, whose weights alone are kept.
        weights: (P,) before it.
        layers: names, as in the columns `grad_norm/<layer>` of metrics.csv.
    """

    loss: Tensor
    gradient: Tensor
    clipped: Tensor
    change: Tensor | None
    weights: Tensor
    layers: list[str]
    _flat: FlatWeights

    def layer_norms(self, vector: Tensor) -> Tensor:
        """(number of layers,): the norm of each layer's part of a vector (P,)."""
        return self._flat.layer_norms(vector.split(self._flat.sizes))


class View:
    """One lane at one step. All of it is the probe's own, to be used and changed; hooks are taken off again.

    Attributes:
        step: updates done.
        max_steps: updates of the whole training.
        model: the name of the model plugin.
        data: what the dataset says of its tensors.
        module: the model with the weights of this step, in evaluation mode; `view.module(x, *lengths)`.
        generator: for the probe's draws, on the CPU, seeded by the job, the probe and the step.
    """

    def __init__(
        self, lane: Lane, generator: torch.Generator, exact: Callable[[], Lane], *, is_reopened: bool = False
    ) -> None:
        self._lane, self._exact, self._is_reopened = lane, exact, is_reopened
        self.generator = generator
        self.step, self.max_steps = lane.step, lane.trainer.max_steps
        self.model, self.data = lane.job.model.name, lane.data
        self.module: nn.Module = lane.module.eval()

    @property
    def dataset(self) -> Any:
        """The dataset plugin itself, shared with training: to be read, never changed."""
        return self._lane.dataset

    @property
    def device(self) -> torch.device:
        return self._lane.weights.vector.device

    @property
    def weights(self) -> FlatWeights:
        """All weights of `module` as one vector, with names and layers."""
        return self._lane.weights

    def rows(self, split: str = "val", count: int = 64) -> Split:
        """Copies of the first rows of a split: `x, y, *lengths`; fewer where there are fewer."""
        return tuple(t[:count].clone() for t in self._lane.splits[split])

    def loss(self, output: Tensor, y: Tensor, *lengths: Tensor) -> Tensor:
        """(): the loss that is trained on."""
        return loss(output, y, self.data, *lengths)

    @cached_property
    def update(self) -> NextUpdate:
        """The next update, in training mode, of the batch that training takes next."""
        lane = self._lane
        before, state = lane.weights.vector.detach().clone(), lane.state()
        lane.module.train()
        x, y, *lengths = next(lane.batches.take(self.step + 1, 1))
        with lane.generators.active(), torch.enable_grad():
            value = loss(lane.module(x, *lengths), y, self.data, *lengths)
            gradient = torch.cat([g.reshape(-1) for g in lane.weights.gradient(value)])
            clipped = clip_gradient(gradient, torch.linalg.vector_norm(gradient), lane.trainer.clip_norm)
            lane.update.step(clipped, self.step + 1)
        change = None if self._is_reopened else lane.weights.vector.detach() - before
        lane.module.eval()
        lane.restore(state)
        return NextUpdate(value.detach(), gradient, clipped, change, before, lane.weights.layers, lane.weights)

    @contextmanager
    def exact(self) -> Iterator[View]:
        """The same in numbers of 64 bits, on the CPU; in the block, tensors that are made are of these."""
        lane = self._exact()
        with lane.arithmetic():
            yield View(lane, self.generator, lambda: lane)
