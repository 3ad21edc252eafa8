"""Loss and gradients of K models of one shape, traced once into a flat list of tensor operations.

`torch.func.vmap` gives one plain module a leading lane axis; the trace leaves neither Python of the module nor autograd
to be run at each step. K lanes, B rows, parameters (K, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from nnexp.data import DataSpec, Split, check_output, loss, measure
from nnexp.stacking.lane_random import LaneRandom
from nnexp.stacking.vmap_rules import Rules
from nnexp.training import VECTOR_BYTES


@contextmanager
def without_fused_kernels(module: nn.Module) -> Iterator[None]:
    """Modules that have code for `torch.func.vmap` use it."""
    having = [child for child in module.modules() if getattr(child, "fused", False) is True]
    for child in having:
        setattr(child, "fused", False)  # noqa: B010  # a type checker takes it for a tensor
    try:
        yield
    finally:
        for child in having:
            setattr(child, "fused", True)  # noqa: B010  # likewise


def filled(x: Tensor) -> Tensor:
    """The rows of an evaluation (B, ...), and its last row again until they fill vectors, as `bit_exact` asks."""
    missing = -len(x) % VECTOR_BYTES
    return torch.cat([x, x[-1:].expand(missing, *x.shape[1:])]) if missing else x


class TracedStep:
    """One module, called with the tensors of many.

    Args:
        module: gives the code; its own tensors are not used.
        data: what the dataset says of its tensors.
        names: of the parameters that are trained.
        fixed: names of all its other tensors.
    """

    def __init__(self, module: nn.Module, data: DataSpec, names: Sequence[str], fixed: Sequence[str]) -> None:
        self.module, self.data, self.names, self.num_trained = module, data, [*names, *fixed], len(names)

    def _model(self, state: dict[str, Tensor]) -> Callable[..., Tensor]:
        return lambda x, *lengths: functional_call(self.module, state, (x, *lengths))

    def _loss(self, tensors: Sequence[Tensor], key: Tensor | None, batch: Split) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, and those tensors that the module has put in the place of others."""
        x, y, *lengths = batch
        given = dict(zip(self.names, tensors, strict=True))
        state = dict(given)
        with Rules(), nullcontext() if key is None else LaneRandom(key):
            output = self._model(state)(x, *lengths)
        check_output(output, y, self.data)
        changed = {name: t.detach() for name, t in state.items() if t is not given[name]}
        return loss(output, y, self.data, *lengths), changed

    def step(self, state: Sequence[Tensor], keys: Tensor | None, batch: Split) -> tuple[Tensor, ...]:
        """Losses (K,), and the gradient of each parameter (K, ...).

        Args:
            state: the parameters, then the other tensors; what a module changes of these, as it does running means, is
                changed in place.
            keys: (K,) where the lanes' draws begin, see `lane_random`; None where the module draws nothing.
            batch: (K, B, ...) each.
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
        """The same as a function of all tensors that are there, one after the other."""
        given = [] if keys is None else [keys]
        first, second = len(state), len(state) + len(given)

        def step(*tensors: Tensor) -> tuple[Tensor, ...]:
            return self.step(tensors[:first], tensors[first] if given else None, tensors[second:])

        fixed = [t.clone() for t in state[self.num_trained :]]  # for tracing runs the step
        return make_fx(step)(*state[: self.num_trained], *fixed, *given, *batch)

    @torch.no_grad()
    def measure(self, state: Sequence[Tensor], part: Split) -> dict[str, Tensor]:
        """What `nnexp.data.metrics.measure` gives, (K,) each, in evaluation mode."""

        def one(tensors: Sequence[Tensor], part: Split) -> dict[str, Tensor]:
            model = self._model(dict(zip(self.names, tensors, strict=True)))
            with Rules():
                return measure(lambda *inputs: model(*map(filled, inputs))[: len(part[0])], part, self.data)

        self.module.eval()
        try:
            with without_fused_kernels(self.module):
                return dict(vmap(one)(list(state), part))
        finally:
            self.module.train()
