"""Construct a job's model as training needs it: lazy layers made, on a device, in a precision, all weights known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from nnexp.base import NnexpError
from nnexp.data import DataSpec, Split


def make_module(model_class: Any, data: DataSpec, values: dict[str, Any], example: Split) -> nn.Module:
    """Return a new module, on the CPU, in which a forward pass of two rows has made the lazy layers, if it has any.

    Args:
        model_class: the plugin.
        data: specification of the dataset.
        values: of the plugin's parameters.
        example: a split, for the forward pass.
    """
    module: nn.Module = model_class(data, **values)
    if any(map(is_lazy, _tensors(module))):
        x, _, *lengths = (t[:2].cpu() for t in example)
        with torch.no_grad():
            module.eval()(x.to(torch.get_default_dtype()) if x.is_floating_point() else x, *lengths)
        module.train()
    return module


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


def convert(module: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
    """Move a module to a device, and its tensors of torch's default type to `dtype`; all others keep their type.

    Raises NnexpError for weights of another type, which would train as real numbers of `dtype`, and for lazy layers
    that a forward pass does not use.
    """
    for name, p in module.named_parameters():
        if is_lazy(p):
            raise NnexpError(f"parameter '{name}' is of a lazy layer that the forward pass does not use.")
        if p.requires_grad and p.dtype != torch.get_default_dtype():
            cure = "Train two real numbers and use torch.view_as_complex" if p.is_complex() else ""
            cure = cure or "Keep it in the default type; precision=bf16 computes in bfloat16, precision=64 in float64"
            raise NnexpError(f"parameter '{name}' is of {p.dtype}; nnexp trains real weights of one type. {cure}.")
    module._apply(lambda t: t.to(device, dtype if t.dtype == torch.get_default_dtype() else t.dtype))


def hidden_weights(module: nn.Module) -> list[str]:
    """Return where a module holds weights outside `parameters()`: they are neither trained nor saved."""
    known = {id(t) for t in _tensors(module)}
    return [
        f"{path}.{place}" if path else place
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if name not in ("_parameters", "_buffers", "_modules")
        for place, tensor in _held(value, name)
        if id(tensor) not in known
    ]


def _held(value: Any, name: str, depth: int = 4) -> Iterator[tuple[str, Tensor]]:
    """Yield one tensor that can be trained of each module, list or dictionary in an attribute, with its place."""
    if isinstance(value, nn.Module):
        yield from ((name, p) for p in list(value.parameters())[:1])
    elif isinstance(value, Tensor) and value.requires_grad and value.is_leaf:
        yield name, value
    elif isinstance(value, list | tuple | dict) and depth:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _held(item, f"{name}[{key!r}]", depth - 1)
