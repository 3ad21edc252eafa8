"""Loss and gradients of K models of one shape, traced once into a flat list of tensor operations.

`torch.func.vmap` gives one plain module a leading lane axis; the trace leaves neither Python of the module nor autograd
to be run at each step. K lanes, B rows, parameters (K, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from nnexp.data import Split, check_output, loss, measure
from nnexp.spec import DataSpec

Tensors = list[Tensor]


@contextmanager
def unfused(module: nn.Module) -> Iterator[None]:
    """Modules that have code for `torch.func.vmap` use it."""
    having = [child for child in module.modules() if getattr(child, "fused", False) is True]
    for child in having:
        setattr(child, "fused", False)  # noqa: B010  # a type checker takes it for a tensor
    try:
        yield
    finally:
        for child in having:
            setattr(child, "fused", True)  # noqa: B010


class Stacked:
    """One module, called with the tensors of many.

    Args:
        module: gives the code; its own tensors are not used.
        data: what the dataset says of its tensors.
        names: of the parameters that are trained.
        fixed: names of all its other tensors.
    """

    def __init__(self, module: nn.Module, data: DataSpec, names: Sequence[str], fixed: Sequence[str]) -> None:
        self.module, self.data, self.names = module, data, [*names, *fixed]

    def _model(self, tensors: Tensors) -> Callable[..., Tensor]:
        state = dict(zip(self.names, tensors, strict=True))
        return lambda x, *lengths: functional_call(self.module, state, (x, *lengths))

    def _loss(self, tensors: Tensors, batch: Split) -> Tensor:
        x, y, *lengths = batch
        output = self._model(tensors)(x, *lengths)
        check_output(output, y, self.data)
        return loss(output, y, self.data, *lengths)

    def trace(self, params: Tensors, fixed: Tensors, batch: Split) -> GraphModule:
        """A function of all these tensors, one after the other, that gives losses (K,) and the gradient of each
        parameter (K, ...). What the module changes in place of `fixed`, such as running means, it changes there.
        """
        num_params, num_state = len(params), len(params) + len(fixed)

        def step(*tensors: Tensor) -> tuple[Tensor, ...]:
            leaves = [p.detach().requires_grad_() for p in tensors[:num_params]]
            losses = vmap(self._loss)([*leaves, *tensors[num_params:num_state]], tensors[num_state:])
            grads = torch.autograd.grad(losses.sum(), leaves, allow_unused=True, materialize_grads=True)
            return losses.detach(), *grads

        with unfused(self.module), torch.enable_grad():
            traced = make_fx(step)(*params, *(t.clone() for t in fixed), *batch)
        traced.graph.eliminate_dead_code()
        traced.recompile()
        return traced

    @torch.no_grad()
    def measure(self, tensors: Tensors, part: Split) -> dict[str, Tensor]:
        """What `nnexp.data.measure` gives, (K,) each, in evaluation mode."""

        def one(tensors: Tensors, part: Split) -> dict[str, Any]:
            return measure(self._model(tensors), part, self.data)

        self.module.eval()
        try:
            with unfused(self.module):
                return dict(vmap(one)(tensors, part))
        finally:
            self.module.train()
