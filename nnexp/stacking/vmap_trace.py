"""Losses and gradients of K models of one shape, traced once into a graph of tensor operations.

`torch.func.vmap` adds a lane axis to one plain module. Running the graph needs neither the module's Python code nor
autograd.

Shapes: K lanes, B rows, parameters (K, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.func import functional_call, vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from nnexp.data import DataSpec, Split, check_output, loss, measure
from nnexp.stacking.lane_random import LaneRandom
from nnexp.stacking.vmap_rules import Rules
from nnexp.training import VECTOR_BYTES


@contextmanager
def without_fused_kernels(module: nn.Module) -> Iterator[None]:
    """Set `fused` to False on all submodules within the block, so that they run code that vmap supports."""
    fused = [child for child in module.modules() if getattr(child, "fused", False) is True]
    for child in fused:
        setattr(child, "fused", False)  # noqa: B010  # mypy assumes that attributes of a module are tensors
    try:
        yield
    finally:
        for child in fused:
            setattr(child, "fused", True)  # noqa: B010


def pad_rows(x: Tensor) -> Tensor:
    """Repeat the last row of (B, ...) until B fills vector registers, as `nnexp.training.bit_exact` requires."""
    missing = -len(x) % VECTOR_BYTES
    return torch.cat([x, x[-1:].expand(missing, *x.shape[1:])]) if missing else x


class TracedStep:
    """Training step of K lanes, computed by one module with the stacked tensors of all.

    Args:
        module: the module whose code is run; its own tensors are not used.
        data: specification of the dataset.
        names: names of the trained parameters.
        fixed: names of the buffers and frozen parameters.
    """

    def __init__(self, module: nn.Module, data: DataSpec, names: Sequence[str], fixed: Sequence[str]) -> None:
        self.module, self.data, self.names, self.num_trained = module, data, [*names, *fixed], len(names)

    def _model(self, state: dict[str, Tensor]) -> Callable[..., Tensor]:
        return lambda x, *lengths: functional_call(self.module, state, (x, *lengths))

    def _loss(self, tensors: Sequence[Tensor], key: Tensor | None, batch: Split) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss () of one lane, and the tensors that the module has replaced, such as running means."""
        x, y, *lengths = batch
        before = dict(zip(self.names, tensors, strict=True))
        state = dict(before)
        with Rules(), nullcontext() if key is None else LaneRandom(key):
            output = self._model(state)(x, *lengths)
        check_output(output, y, self.data)
        changed = {name: t.detach() for name, t in state.items() if t is not before[name]}
        return loss(output, y, self.data, *lengths), changed

    def step(self, state: Sequence[Tensor], keys: Tensor | None, batch: Split) -> tuple[Tensor, ...]:
        """Return the losses (K,) and the gradient (K, ...) of each trained parameter.

        Args:
            state: trained parameters, then buffers and frozen parameters, each (K, ...); tensors that the module
                changes, such as running means, are updated in place.
            keys: (K,), random keys of this update from `lane_random.step_keys`; None for a module without random
                numbers.
            batch: inputs, targets and lengths, each (K, B, ...).
        """
        leaves = [t.detach().requires_grad_() for t in state[: self.num_trained]]
        with without_fused_kernels(self.module), torch.enable_grad():
            in_dims = (0, None if keys is None else 0, 0)
            losses, changed = vmap(self._loss, in_dims)([*leaves, *state[self.num_trained :]], keys, batch)
            grads = torch.autograd.grad(losses.sum(), leaves, allow_unused=True, materialize_grads=True)
        for name, value in changed.items():
            state[self.names.index(name)].copy_(value)
        return losses.detach(), *grads

    def trace(self, state: Sequence[Tensor], keys: Tensor | None, batch: Split) -> GraphModule:
        """Trace `step` into a graph whose inputs are the tensors of state, keys where there are any, and batch."""
        key_inputs = [] if keys is None else [keys]
        first, second = len(state), len(state) + len(key_inputs)

        def step(*tensors: Tensor) -> tuple[Tensor, ...]:
            return self.step(tensors[:first], tensors[first] if key_inputs else None, tensors[second:])

        fixed = [t.clone() for t in state[self.num_trained :]]  # tracing runs the step, which changes them
        with tracing(TracingContext(FakeTensorMode(allow_fallback_kernels=True))):  # or each node makes its own mode
            return make_fx(step)(*state[: self.num_trained], *fixed, *key_inputs, *batch)

    @torch.no_grad()
    def measure(self, state: Sequence[Tensor], part: Split) -> dict[str, Tensor]:
        """Return the sums of `nnexp.data.measure`, each (K,), in evaluation mode.

        Args:
            state: tensors of all lanes, as for `step`.
            part: inputs, targets and lengths of one part of a split, each (K, B, ...).
        """

        def one(tensors: Sequence[Tensor], part: Split) -> dict[str, Tensor]:
            model = self._model(dict(zip(self.names, tensors, strict=True)))
            with Rules():
                return measure(lambda *inputs: model(*map(pad_rows, inputs))[: len(part[0])], part, self.data)

        self.module.eval()
        try:
            with without_fused_kernels(self.module):
                return dict(vmap(one)(list(state), part))
        finally:
            self.module.train()
