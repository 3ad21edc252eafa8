"""Looking inside a model, whatever it is: what its layers gave, and gradients of what it was given."""

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

    Args:
        name: the layer's path in the model; "" is the model itself.
        module: the layer.
        inputs: the tensors that it was given by position.
        output: what it gave, the first tensor of it: of torch's recurrent layers the states (B, T, H).
    """

    name: str
    module: nn.Module
    inputs: tuple[Any, ...]
    output: Tensor


@contextmanager
def watching(module: nn.Module) -> Iterator[list[Call]]:
    """A list of the calls that the layers of a model get in the block, in the order in which they return."""
    calls: list[Call] = []

    def note(name: str) -> Callable[..., None]:
        def hook(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            first = output[0] if isinstance(output, tuple) and output else output
            if isinstance(first, Tensor):
                calls.append(Call(name, layer, inputs, first))

        return hook

    handles = [layer.register_forward_hook(note(name)) for name, layer in module.named_modules()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def calls_of(module: nn.Module, x: Tensor, *lengths: Tensor) -> list[Call]:
    """The calls of one forward pass."""
    with watching(module) as calls:
        module(x, *lengths)
    return calls


def differentiable(x: Tensor, data: DataSpec) -> Tensor:
    """The same input, of which a gradient can be asked: tokens (B, T) as the one-hot rows (B, T, vocab) that
    `nnexp.data.views.as_sequence` takes in their place.
    """
    if data.kind == "tokens" and not x.is_floating_point():
        x = one_hot(x.long(), data.vocab).to(torch.get_default_dtype())
    return x.detach().clone().requires_grad_()


@torch.no_grad()
def takes_one_hot(module: nn.Module, data: DataSpec, x: Tensor, *lengths: Tensor) -> bool:
    """Whether a model gives for one-hot rows what it gives for their tokens; one that looks them up cannot."""
    row, rest = x[:1], [each[:1] for each in lengths]
    expected = module(row, *rest)
    try:
        output = module(differentiable(row, data), *rest)
    except (IndexError, RuntimeError, TypeError, ValueError):
        return False
    return output.shape == expected.shape and torch.allclose(output, expected)


@contextmanager
def embedding(module: nn.Module, x: Tensor) -> Iterator[list[Tensor]]:
    """What embeddings give for tokens x in the block, cut off from the weights so that a gradient can be asked."""
    leaves: list[Tensor] = []

    def hook(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        if inputs[0].shape != x.shape:
            return output  # of positions
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    handles = [m.register_forward_hook(hook) for m in module.modules() if isinstance(m, nn.Embedding)]
    try:
        yield leaves
    finally:
        for handle in handles:
            handle.remove()
