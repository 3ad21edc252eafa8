"""Looking inside a model, whatever it is: what its layers gave, and gradients of what it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from nnexp.spec import DataSpec


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
    `nnexp.views.as_sequence` takes in their place.
    """
    if data.kind == "tokens" and not x.is_floating_point():
        x = one_hot(x.long(), data.vocab).to(torch.get_default_dtype())
    return x.detach().clone().requires_grad_()
