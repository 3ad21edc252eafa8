"""K lanes of one configuration as one model with a leading lane axis, trained by one sequence of tensor operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule

from nnexp.data import MAX_EVALUATED_ROWS, StackedBatches, metric_names, sum_metrics
from nnexp.nn import is_compiled
from nnexp.rundir import Rows
from nnexp.stacking.graph_inplace import reuse_memory
from nnexp.stacking.graph_matmul import turn_products
from nnexp.stacking.graph_simplify import function_of, reshapes_in_place, simplify
from nnexp.stacking.lane_random import first_keys, step_keys
from nnexp.stacking.stacked_tensors import stack_fixed, stack_weights
from nnexp.stacking.vmap_rules import check_batch_rules
from nnexp.stacking.vmap_trace import TracedStep
from nnexp.training import Diverged, Lane, PureUpdate, StackUpdate, row_multiple

LayerNorms = tuple[int, Tensor]


@dataclass(frozen=True)
class State:
    """All that changes in training, of all lanes."""

    step: int
    weights: Tensor
    optimizer: dict[str, Tensor]
    fixed: list[Tensor]


class Stack:
    """Lanes that go on together. While they do, their modules' tensors are rows of the stack's.

    A lane's numbers depend on nothing of the others. That needs two rows at least, for of one some operations compute
    in another way, and now and then more (`training.bit_exact`): copies of the first lane stand in those that are left.

    Args:
        lanes: of one configuration, at the same step.
        stopped: asked before every update; training pauses where it says yes.
        draws: whether the modules draw random numbers in training, as for dropout.
    """

    def __init__(self, lanes: Sequence[Lane], stopped: Callable[[], bool], draws: bool = False) -> None:
        self.lanes, self.stopped, self.draws = list(lanes), stopped, draws
        self.live = set(range(len(lanes)))
        self.step, self.first = lanes[0].step, lanes[0]
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
        """Make the tensors; rows beyond the lanes are copies of the first."""
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
        """Losses (K,) and gradients (K, P) of the next update, which is not made; without draws, in evaluation mode."""
        before = self._kept()
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
        """(K,): the loss of the next update's batch in evaluation mode, times its predictions."""
        before, batch = self._kept(), next(self.feed.take(self.step + 1, 1))
        with self.first.arithmetic():
            losses = self.stacked.measure(self.state, batch)["loss"]
        self._restore(before)
        return losses

    def advance(self, stop: int) -> dict[Lane, Rows | Diverged]:
        """Train up to step `stop`, or until stopped; gives the rows of these steps for each lane that is live.

        A lane that diverges is released: its weights are those from before the update that went wrong, and its rows
        end there.
        """
        before = self._kept()
        numbers, layer_norms = self._train(stop - self.step)
        bad = self._first_bad(numbers)
        if bad:
            self._rewind(bad, before)
        rows = self._lane_rows(before.step + 1, numbers, layer_norms)
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
        """A smaller stack where half of the lanes were released: making it costs a trace."""
        if not self.live or len(self.lanes) <= 2 or 2 * len(self.live) > len(self.lanes):
            return self
        return Stack([self.lanes[k] for k in sorted(self.live)], self.stopped, self.draws)

    def release(self, lane: Lane) -> None:
        """Nothing more is said of a lane that is at its end."""
        self.live.discard(self.lanes.index(lane))

    def evaluate(self, split: str) -> dict[Lane, dict[str, float]]:
        """Metrics of a split, `<split>/<name>`, for each lane that is live."""
        parts = self.feed.evaluation([lane.splits[split] for lane in self.rows], self.first.data, MAX_EVALUATED_ROWS)
        before = [t.clone() for t in self.fixed.values()]
        with self.first.arithmetic():
            measured = sum_metrics(self.stacked.measure(self.state, part) for part in parts)
        sums = {name: t.tolist() for name, t in measured.items()}
        for mine, kept in zip(self.fixed.values(), before, strict=True):
            mine.copy_(kept)  # a module may change a buffer in evaluation too
        names = metric_names(self.first.data)
        return {
            self.lanes[k]: {f"{split}/{name}": sums[name][k] / sums["count"][k] for name in names}
            for k in sorted(self.live)
        }

    def _train(self, count: int, pausable: bool = True) -> tuple[Tensor, list[LayerNorms]]:
        """The hot path: no number leaves the device here, and nothing is done lane by lane.

        Gives losses and gradient norms (2, updates done, K), and now and then the norms by layer.
        """
        done = 0
        numbers = self.weights.new_empty(2, count, len(self.rows))
        layer_norms: list[LayerNorms] = []
        for batch in self.feed.take(self.step + 1, count):
            if pausable and self.stopped():
                break
            step = self.step + 1
            given = batch if self.keys is None else (step_keys(self.keys, step), *batch)
            losses, *grads = self.run(*self.state, *given)
            flat = torch.cat([g.reshape(len(losses), -1) for g in grads], dim=1)
            norms = torch.linalg.vector_norm(flat, dim=1)
            if self.first.is_recorded(step):
                layer_norms.append((step, self._layer_norms(flat)))
            self.update.step(flat, norms, step)
            numbers[0, done], numbers[1, done] = losses, norms
            done, self.step = done + 1, step
        return numbers[:, :done], layer_norms

    def _layer_norms(self, flat: Tensor) -> Tensor:
        """(K, P) -> (K, number of layers)."""
        own = self.first.weights
        squares = torch.stack([part.square().sum(1) for part in flat.split(own.sizes, dim=1)], dim=1)
        return squares.new_zeros(len(flat), len(own.layers)).index_add(1, own.layer_index, squares).sqrt()

    def _lane_rows(self, first: int, numbers: Tensor, layer_norms: list[LayerNorms]) -> list[Rows]:
        """Of each lane, moved to the host at once."""
        names = [f"grad_norm/{layer}" for layer in self.first.weights.layers]
        sparse: list[dict[int, dict[str, float]]] = [{} for _ in self.rows]
        for step, norms in layer_norms:
            for lane, of_lane, values in zip(self.rows, sparse, norms.tolist(), strict=True):
                of_lane[step] = {"lr": lane.update.lr(step), **dict(zip(names, values, strict=True))}
        return [Rows(first, *each) for each in zip(*numbers.transpose(1, 2).tolist(), sparse, strict=True)]

    def _first_bad(self, numbers: Tensor) -> dict[int, int]:
        """For each live lane that is not finite, the index of its first update that is not; after the last update its
        weights count, for no loss follows.
        """
        is_bad = ~numbers.isfinite().all(0)
        if self.step == self.first.trainer.max_steps and len(is_bad):
            is_bad[-1] |= ~self.weights.isfinite().all(1)
        lanes = is_bad.any(0).nonzero().flatten().tolist()
        return {k: int(is_bad[:, k].nonzero()[0]) for k in lanes if k in self.live}

    def _rewind(self, bad: dict[int, int], before: State) -> None:
        """Give each lane that went wrong the state from before that update; the others keep theirs."""
        after = self._kept()
        self._restore(before)
        found = []
        for k, index in sorted(bad.items(), key=lambda item: item[1]):
            self._train(before.step + index - self.step, pausable=False)
            found.append((k, self.step, self._kept(), self.update.row(k)))
        self._restore(after)
        for k, step, state, optimizer_state in found:
            self.weights[k] = state.weights[k]
            for mine, theirs in zip(self.fixed.values(), state.fixed, strict=True):
                mine[k] = theirs[k]
            self.lanes[k].step, self.updates[k].optimizer_state = step, optimizer_state

    def _kept(self) -> State:
        # What an update gives is new, and what it was given is not changed: no copy is needed.
        fixed = [t.clone() for t in self.fixed.values()]
        return State(self.step, self.weights.clone(), self.update.state, fixed)

    @torch.no_grad()
    def _restore(self, state: State) -> None:
        self.step, self.update.state = state.step, state.optimizer
        self.weights.copy_(state.weights)
        for mine, theirs in zip(self.fixed.values(), state.fixed, strict=True):
            mine.copy_(theirs)
