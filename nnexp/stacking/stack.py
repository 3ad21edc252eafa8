"""Training of K lanes of one configuration as one model with a leading lane axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule

from nnexp.data import MAX_EVALUATED_ROWS, StackedBatches, metric_names, sum_metrics
from nnexp.nn import is_compiled
from nnexp.rundir import Rows
from nnexp.stacking.graph_codegen import function_of
from nnexp.stacking.graph_inplace import reuse_memory
from nnexp.stacking.graph_matmul import turn_products
from nnexp.stacking.graph_simplify import reshapes_in_place, simplify
from nnexp.stacking.lane_random import first_keys, step_keys
from nnexp.stacking.stacked_tensors import stack_fixed, stack_weights
from nnexp.stacking.vmap_rules import check_batch_rules
from nnexp.stacking.vmap_trace import TracedStep
from nnexp.training import (
    Diverged,
    Lane,
    PureUpdate,
    StackUpdate,
    is_out_of_range,
    layer_norms,
    row_multiple,
    scaled_norm,
)

LayerNorms = tuple[int, Tensor, Tensor]  # step, learning rates (K,), norms by layer (K, L)


@dataclass(frozen=True)
class Snapshot:
    """Snapshot of all lanes at one step: weights (K, P), optimiser state, and buffers and frozen parameters."""

    step: int
    weights: Tensor
    optimizer: dict[str, Tensor]
    fixed: list[Tensor]


class Stack:
    """Lanes that train together; the tensors of their modules are rows of the stack's tensors.

    The numbers of a lane do not depend on the other lanes. This takes at least two rows, because some operations round
    differently for one, and sometimes more (`nnexp.training.bit_exact`); copies of the first lane fill them up.

        stack = Stack(lanes, should_stop=lambda: False)
        rows = stack.advance(100)  # by lane: losses and gradient norms of each step, or Diverged

    Args:
        lanes: lanes of one configuration, at the same step.
        should_stop: called before every update; training pauses where it returns True.
        draws: whether the modules draw random numbers in training, such as dropout.

    Attributes:
        live: indices of the lanes that have neither diverged nor been released.
        step: number of updates done.
        weights: (K, P), including the rows of copies.
        is_compiled: whether the step uses compiled kernels.
    """

    def __init__(self, lanes: Sequence[Lane], should_stop: Callable[[], bool], draws: bool = False) -> None:
        self.lanes, self.should_stop, self.draws = list(lanes), should_stop, draws
        self.live = set(range(len(lanes)))
        self.step, self.first = lanes[0].step, lanes[0]
        self.norm: Callable[..., Tensor] = torch.linalg.vector_norm  # until one is out of its range
        self._build(max(2, len(lanes)))
        traced = self._trace()
        check_batch_rules(traced)
        multiple = row_multiple(traced, len(self.rows))
        if len(self.rows) % multiple:
            self._build(-(-len(self.rows) // multiple) * multiple)
            traced = self._trace()
        if not reshapes_in_place(traced):
            simplify(traced)
            turn_products(traced)
            reuse_memory(traced)
        names = [str(node.target) for node in traced.graph.nodes]
        self.is_compiled = any(name.startswith("nnexp.") for name in names) and is_compiled(self.weights.device)
        self.run = function_of(traced)

    def _build(self, num_rows: int) -> None:
        """Stack the tensors; rows beyond the lanes are copies of the first."""
        first = self.first
        self.rows = rows = self.lanes + [first] * (num_rows - len(self.lanes))
        self.feed = StackedBatches([lane.batches for lane in rows])
        self.weights, self.params = stack_weights(rows)
        self.fixed = stack_fixed(rows)
        self.updates = [lane.update for lane in rows if isinstance(lane.update, PureUpdate)]
        self.update = StackUpdate(self.updates, self.weights)
        self.state = [*self.params, *self.fixed.values()]
        self.keys = first_keys([lane.job.model.seed for lane in rows], self.weights.device) if self.draws else None
        self.stacked = TracedStep(first.module, first.data, first.weights.names, list(self.fixed))

    def _trace(self) -> GraphModule:
        with self.first.arithmetic():
            return self.stacked.trace(self.state, self.keys, next(self.feed.take(self.step + 1, 1)))

    def first_step(self) -> tuple[Tensor, Tensor]:
        """Return losses (K,) and gradients (K, P) of the next update without making it.

        A stack with random draws computes them in evaluation mode.
        """
        before = self._snapshot()
        batch = next(self.feed.take(self.step + 1, 1))
        if self.draws:
            self.first.module.eval()
            with self.first.arithmetic():
                losses, *grads = self.stacked.step(self.state, None, batch)
            self.first.module.train()
        else:
            losses, *grads = self.run(*self.state, *batch)
        self._restore(before)
        return losses, torch.cat([g.reshape(len(losses), -1) for g in grads], dim=1)

    def first_evaluation(self) -> Tensor:
        """Return the summed loss (K,) of the next update's batch in evaluation mode, over its predictions."""
        before, batch = self._snapshot(), next(self.feed.take(self.step + 1, 1))
        with self.first.arithmetic():
            losses = self.stacked.measure(self.state, batch)["loss"]
        self._restore(before)
        return losses

    def advance(self, stop: int) -> dict[Lane, Rows | Diverged]:
        """Train up to step `stop`, or until `should_stop` returns True.

        A lane that diverges is released, with the weights from before the update that was not finite.

        Returns:
            For each live lane the metrics of these steps, or Diverged with the metrics up to the step that failed.
        """
        before = self._snapshot()
        numbers, layers = self._train(stop - self.step)
        if self.norm is not scaled_norm and is_out_of_range(numbers[1][:, sorted(self.live)]).any():
            self._restore(before)
            self.norm = scaled_norm
            numbers, layers = self._train(len(numbers[1]), pausable=False)
        bad = self._first_non_finite(numbers)
        if bad:
            self._rewind(bad, before)
        rows = self._lane_rows(before.step + 1, numbers, layers)
        outcomes: dict[Lane, Rows | Diverged] = {}
        for k in sorted(self.live):
            lane = self.lanes[k]
            if k in bad:
                outcomes[lane] = lane.divergence_error(rows[k].head(bad[k] + 1))
            else:
                lane.step, self.updates[k].optimizer_state = self.step, self.update.row(k)
                outcomes[lane] = rows[k]
        self.live -= bad.keys()
        return outcomes

    def compacted(self) -> Stack:
        """Return a new stack of the live lanes if at most half are left, else self; a new stack costs a trace."""
        if not self.live or len(self.lanes) <= 2 or 2 * len(self.live) > len(self.lanes):
            return self
        return Stack([self.lanes[k] for k in sorted(self.live)], self.should_stop, self.draws)

    def release(self, lane: Lane) -> None:
        """Leave a lane out of the results from now on."""
        self.live.discard(self.lanes.index(lane))

    def evaluate(self, split: str) -> dict[Lane, dict[str, float]]:
        """Return the metrics of a split, `<split>/<name>`, for each live lane."""
        parts = self.feed.evaluation([lane.splits[split] for lane in self.rows], self.first.data, MAX_EVALUATED_ROWS)
        before = [t.clone() for t in self.fixed.values()]
        with self.first.arithmetic():
            measured = sum_metrics(self.stacked.measure(self.state, part) for part in parts)
        sums = {name: t.tolist() for name, t in measured.items()}
        for tensor, value in zip(self.fixed.values(), before, strict=True):
            tensor.copy_(value)  # a module may change a buffer in evaluation too
        names = metric_names(self.first.data)
        return {
            self.lanes[k]: {f"{split}/{name}": sums[name][k] / sums["count"][k] for name in names}
            for k in sorted(self.live)
        }

    def _train(self, count: int, pausable: bool = True) -> tuple[Tensor, list[LayerNorms]]:
        """Run the hot path: no number leaves the device, and no Python loop runs over lanes.

        Returns:
            Losses and gradient norms (2, updates done, K), and at recorded steps the rates and the norms by layer.
        """
        done = 0
        numbers = self.weights.new_empty(2, count, len(self.rows))
        layers: list[LayerNorms] = []
        for batch in self.feed.take(self.step + 1, count):
            if pausable and self.should_stop():
                break
            step = self.step + 1
            inputs = batch if self.keys is None else (step_keys(self.keys, step), *batch)
            losses, *grads = self.run(*self.state, *inputs)
            flat = torch.cat([g.reshape(len(losses), -1) for g in grads], dim=1)
            norms = self.norm(flat, dim=1)
            if self.first.is_recorded(step):
                layers.append((step, self.update.lrs(step), self._layer_norms(flat)))
            self.update.step(flat, norms, step)
            numbers[0, done], numbers[1, done] = losses, norms
            done, self.step = done + 1, step
        return numbers[:, :done], layers

    def _layer_norms(self, flat: Tensor) -> Tensor:
        """Return the norms (K, L) of the layers of gradients (K, P)."""
        weights = self.first.weights
        norms = torch.stack([scaled_norm(part) for part in flat.split(weights.sizes, dim=1)])
        return layer_norms(norms, weights.layer_index, len(weights.layers)).T

    def _lane_rows(self, first: int, numbers: Tensor, layers: list[LayerNorms]) -> list[Rows]:
        """Return the metrics of each lane, moved to the host in one transfer."""
        names = [f"grad_norm/{layer}" for layer in self.first.weights.layers]
        recorded: list[dict[int, dict[str, float]]] = [{} for _ in self.rows]
        for step, lrs, norms in layers:
            for lane_record, lr, values in zip(recorded, lrs.tolist(), norms.tolist(), strict=True):
                lane_record[step] = {"lr": lr, **dict(zip(names, values, strict=True))}
        return [Rows(first, *each) for each in zip(*numbers.transpose(1, 2).tolist(), recorded, strict=True)]

    def _first_non_finite(self, numbers: Tensor) -> dict[int, int]:
        """Return the index of the first update that is not finite, for each live lane that has one.

        After the last update of training the weights are checked too, because no loss follows.
        """
        is_bad = ~numbers.isfinite().all(0)
        if self.step == self.first.trainer.max_steps and len(is_bad):
            is_bad[-1] |= ~self.weights.isfinite().all(1)
        lanes = is_bad.any(0).nonzero().flatten().tolist()
        return {k: int(is_bad[:, k].nonzero()[0]) for k in lanes if k in self.live}

    def _rewind(self, bad: dict[int, int], before: Snapshot) -> None:
        """Restore each diverged lane to the state before its update that was not finite; the others keep theirs."""
        after = self._snapshot()
        self._restore(before)
        states = []
        for k, index in sorted(bad.items(), key=lambda item: item[1]):
            self._train(before.step + index - self.step, pausable=False)
            states.append((k, self.step, self._snapshot(), self.update.row(k)))
        self._restore(after)
        for k, step, state, optimizer_state in states:
            self.weights[k] = state.weights[k]
            for tensor, value in zip(self.fixed.values(), state.fixed, strict=True):
                tensor[k] = value[k]
            self.lanes[k].step, self.updates[k].optimizer_state = step, optimizer_state

    def _snapshot(self) -> Snapshot:
        # An update returns a new optimiser state and does not change the old one, so that needs no copy.
        fixed = [t.clone() for t in self.fixed.values()]
        return Snapshot(self.step, self.weights.clone(), self.update.state, fixed)

    @torch.no_grad()
    def _restore(self, state: Snapshot) -> None:
        self.step, self.update.state = state.step, state.optimizer
        self.weights.copy_(state.weights)
        for tensor, value in zip(self.fixed.values(), state.fixed, strict=True):
            tensor.copy_(value)
