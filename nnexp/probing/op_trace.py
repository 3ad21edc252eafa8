"""Trace of the operations in a forward pass of any model, for example to draw its graph.

An operation is a call of a torch function, or of a `torch.autograd.Function` that the model defines.
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
    """One operation of a forward pass.

    Attributes:
        scope: path of the layer whose forward pass runs the operation; "" is the model itself.
        name: name of the function, such as "linear".
        inputs: all tensors among its arguments, including weights.
        outputs: all tensors that it returned.
    """

    scope: str
    name: str
    inputs: list[Tensor]
    outputs: list[Tensor]


def trace_operations(module: nn.Module, x: Tensor, *lengths: Tensor) -> tuple[list[Operation], Tensor]:
    """Run one forward pass and return its operations in order of execution, and the output of the model.

        operations, output = trace_operations(view.module, *inputs)
        names = [operation.name for operation in operations]

    The operations keep all intermediate tensors alive, and the autograd graph.
    """
    tracer = _Tracer()
    with torch.enable_grad(), tracer.track_layers(module), tracer:
        output = module(x, *lengths)
    return tracer.operations, output


class _Tracer(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self._open_calls: list[tuple[str, list[Tensor]]] = []  # of layers that have not returned: path, inputs
        self._traced: set[int] = set()  # ids of the outputs of operations

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        outputs = tensors_in(args[0] if func is Tensor.__setitem__ else result)
        if outputs and self._open_calls:
            inputs = tensors_in([args, kwargs])
            self._add_autograd_functions(inputs)
            self._add(_name_of(func), inputs, outputs)
        return result

    def _add_autograd_functions(self, tensors: list[Tensor]) -> None:
        """Add calls of `torch.autograd.Function`, which bypass this mode.

        Their outputs are tensors with a `grad_fn` that no traced operation returned.
        """
        for tensor in tensors:
            if tensor.grad_fn is not None and id(tensor) not in self._traced:
                self._add(tensor.grad_fn.name(), self._open_calls[-1][1], [tensor])

    def _add(self, name: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        self.operations.append(Operation(self._open_calls[-1][0], name, inputs, outputs))
        self._traced.update(map(id, outputs))

    @contextmanager
    def track_layers(self, module: nn.Module) -> Iterator[None]:
        """Follow the calls of layers within the block, so that each operation gets its scope."""
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
            if self._open_calls:
                self._add_autograd_functions(inputs)
            self._open_calls.append((name, inputs))

        return enter

    def _leave(self, layer: nn.Module, args: Any, output: Any) -> None:
        self._add_autograd_functions(tensors_in(output))
        self._open_calls.pop()


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors in nested lists, tuples and dictionaries, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [tensor for item in value for tensor in tensors_in(item)]


def _name_of(func: Any) -> str:
    """Return the name of a function without underscores, and for the getter of an attribute the attribute's name."""
    name = (
        func.__self__.__name__ if getattr(func, "__name__", "") == "__get__" else getattr(func, "__name__", "function")
    )
    return str(name).strip("_")
