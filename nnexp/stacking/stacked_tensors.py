"""The tensors of several lanes as rows of larger ones, of which their modules' own are then views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from nnexp.training import Lane

ALIGNMENT = 64  # bytes: every lane's weights begin as every other's do, so that no kernel treats them differently


def stack_weights(lanes: Sequence[Lane]) -> tuple[Tensor, list[Tensor]]:
    """(K, P), and of it each parameter (K, ...). Of a lane that is there twice, the first row is its own."""
    own = lanes[0].weights
    size = own.vector.numel()
    padding = -size % (ALIGNMENT // own.vector.element_size())
    weights = own.vector.new_zeros(len(lanes), size + padding)[:, :size]
    for row, lane in reversed(list(zip(weights, lanes, strict=True))):
        row.copy_(lane.weights.vector)
        lane.weights.bind(row)
    parts = zip(weights.split(own.sizes, dim=1), own.params, strict=True)
    return weights, [part.view(len(lanes), *p.shape) for part, p in parts]


def stack_fixed(lanes: Sequence[Lane]) -> dict[str, Tensor]:
    """(K, ...) of what is not trained: buffers, and parameters that need no gradient."""
    tensors = [dict(fixed_tensors(lane.module)) for lane in lanes]
    fixed = {name: torch.stack([each[name].detach() for each in tensors]) for name in tensors[0]}
    for k, lane in reversed(list(enumerate(lanes))):
        for name, stacked in fixed.items():
            _place(lane.module, name, stacked[k])
    return fixed


def fixed_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What of a module is not trained."""
    yield from ((name, p.data) for name, p in module.named_parameters() if not p.requires_grad)
    yield from module.named_buffers()


def _place(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Make one of a module's fixed tensors this one."""
    path, _, leaf = name.rpartition(".")
    owner = module.get_submodule(path)
    if leaf in owner._buffers:
        owner._buffers[leaf] = tensor
    else:
        owner.get_parameter(leaf).data = tensor
