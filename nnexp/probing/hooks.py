"""Forward hooks that record the calls of a model's layers, and inputs that a gradient can be taken of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from nnexp.data import DataSpec


@dataclass(frozen=True)
class Call:
    """One call of a layer in a forward pass.

    Attributes:
        name: path of the layer in the model, as in `named_modules`; "" is the model itself.
        module: the layer.
        inputs: positional arguments of the call.
        output: the returned tensor, or the first of a returned tuple: torch's recurrent layers return their states
            (B, T, H) there.
    """

    name: str
    module: nn.Module
    inputs: tuple[Any, ...]
    output: Tensor


@contextmanager
def record_calls(module: nn.Module) -> Iterator[list[Call]]:
    """Record the calls of all layers of a model within the block, in the order in which they return.

        with record_calls(view.module) as calls:
            view.module(x)

    Calls that return no tensor are left out. The hooks are removed at the end of the block.
    """
    calls: list[Call] = []

    def recorder(name: str) -> Callable[..., None]:
        def hook(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            first = output[0] if isinstance(output, tuple) and output else output
            if isinstance(first, Tensor):
                calls.append(Call(name, layer, inputs, first))

        return hook

    handles = [layer.register_forward_hook(recorder(name)) for name, layer in module.named_modules()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def forward_calls(module: nn.Module, x: Tensor, *lengths: Tensor) -> list[Call]:
    """Run one forward pass and return the calls of all layers, in the order in which they return.

    shapes = {call.name: call.output.shape for call in forward_calls(view.module, *inputs)}
    """
    with record_calls(module) as calls:
        module(x, *lengths)
    return calls


def differentiable_input(x: Tensor, data: DataSpec) -> Tensor:
    """Return a copy of an input that requires a gradient.

    Tokens (B, T) become one-hot rows (B, T, vocab), which `nnexp.data.as_sequence` accepts in place of tokens.
    """
    if data.kind == "tokens" and not x.is_floating_point():
        x = one_hot(x.long(), data.vocab).to(torch.get_default_dtype())
    return x.detach().clone().requires_grad_()


@torch.no_grad()
def accepts_one_hot(module: nn.Module, data: DataSpec, x: Tensor, *lengths: Tensor) -> bool:
    """Return whether a model computes the same from one-hot rows as from tokens; one with an embedding cannot."""
    row, rest = x[:1], [each[:1] for each in lengths]
    expected = module(row, *rest)
    try:
        output = module(differentiable_input(row, data), *rest)
    except (IndexError, RuntimeError, TypeError, ValueError):
        return False
    return output.shape == expected.shape and torch.allclose(output, expected)


@contextmanager
def detached_embeddings(module: nn.Module, x: Tensor) -> Iterator[list[Tensor]]:
    """Collect the embeddings (B, T, E) of tokens x within the block, as leaves that a gradient can be taken of.

    The leaves replace the outputs of `nn.Embedding` layers, so no gradient reaches the embedding weights.
    """
    leaves: list[Tensor] = []

    def hook(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        if inputs[0].shape != x.shape:
            return output  # an embedding of positions
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    handles = [m.register_forward_hook(hook) for m in module.modules() if isinstance(m, nn.Embedding)]
    try:
        yield leaves
    finally:
        for handle in handles:
            handle.remove()
