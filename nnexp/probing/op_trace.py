"""What a forward pass does, operation by operation, at the level at which it is written: of any model, without a word
from it. An operation is a call of torch's, or a function of the model's own that torch differentiates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class Operation:
    """One of them.

    Args:
        scope: path of the layer in whose forward pass it is; "" is the model itself.
        name: of the function, such as `linear`.
        inputs: all tensors that it was given, weights too.
        outputs: all tensors that it gave.
    """

    scope: str
    name: str
    inputs: list[Tensor]
    outputs: list[Tensor]


def operations_of(module: nn.Module, x: Tensor, *lengths: Tensor) -> tuple[list[Operation], Tensor]:
    """The operations of one forward pass, in their order, and what the model gave. They keep all tensors of it."""
    tracer = _Tracer()
    with torch.enable_grad(), tracer.scoped(module), tracer:
        output = module(x, *lengths)
    return tracer.operations, output


class _Tracer(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self._calls: list[tuple[str, list[Tensor]]] = []  # of layers that have not returned: path, inputs
        self._made: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        outputs = tensors_in(args[0] if func is Tensor.__setitem__ else result)
        if outputs and self._calls:
            inputs = tensors_in([args, kwargs])
            self._find_own_functions(inputs)
            self._add(_name_of(func), inputs, outputs)
        return result

    def _find_own_functions(self, tensors: list[Tensor]) -> None:
        """A `torch.autograd.Function` is not told of; what it gave is a tensor with a gradient that nothing made."""
        for tensor in tensors:
            if tensor.grad_fn is not None and id(tensor) not in self._made:
                self._add(tensor.grad_fn.name(), self._calls[-1][1], [tensor])

    def _add(self, name: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        self.operations.append(Operation(self._calls[-1][0], name, inputs, outputs))
        self._made.update(map(id, outputs))

    @contextmanager
    def scoped(self, module: nn.Module) -> Iterator[None]:
        """In the block, layers say when they are called and when they return."""
        handles = []
        for name, layer in module.named_modules():
            handles.append(layer.register_forward_pre_hook(self._enter(name), with_kwargs=True))
            handles.append(layer.register_forward_hook(self._leave))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, name: str) -> Callable[..., None]:
        def enter(layer: nn.Module, args: Any, kwargs: Any) -> None:
            inputs = tensors_in([args, kwargs])
            if self._calls:
                self._find_own_functions(inputs)
            self._calls.append((name, inputs))

        return enter

    def _leave(self, layer: nn.Module, args: Any, output: Any) -> None:
        self._find_own_functions(tensors_in(output))
        self._calls.pop()


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [tensor for item in value for tensor in tensors_in(item)]


def _name_of(func: Any) -> str:
    """`__add__` is add, and the getter of an attribute has the attribute's name."""
    name = (
        func.__self__.__name__ if getattr(func, "__name__", "") == "__get__" else getattr(func, "__name__", "function")
    )
    return str(name).strip("_")
