"""Stacking of the tensors of several lanes; the tensors of their modules become views of the stacked ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from nnexp.training import Lane

ALIGNMENT = 64  # bytes; the same for the weights of every lane, because kernels are chosen by alignment


def stack_weights(lanes: Sequence[Lane]) -> tuple[Tensor, list[Tensor]]:
    """Stack the weights of lanes, and make their parameters views of the rows.

    Args:
        lanes: the lanes; a lane may occur several times, and its parameters are then views of its first row.

    Returns:
        All weights (K, P), and each parameter (K, ...) as a view of them.
    """
    first = lanes[0].weights
    size = first.vector.numel()
    padding = -size % (ALIGNMENT // first.vector.element_size())
    weights = first.vector.new_zeros(len(lanes), size + padding)[:, :size]
    for row, lane in reversed(list(zip(weights, lanes, strict=True))):
        row.copy_(lane.weights.vector)
        lane.weights.bind(row)
    parts = zip(weights.split(first.sizes, dim=1), first.params, strict=True)
    return weights, [part.view(len(lanes), *p.shape) for part, p in parts]


def stack_fixed(lanes: Sequence[Lane]) -> dict[str, Tensor]:
    """Stack buffers and frozen parameters, (K, ...) by name, and make those of the modules views of the rows."""
    tensors = [dict(fixed_tensors(lane.module)) for lane in lanes]
    fixed = {name: torch.stack([each[name].detach() for each in tensors]) for name in tensors[0]}
    for k, lane in reversed(list(enumerate(lanes))):
        for name, stacked in fixed.items():
            _place(lane.module, name, stacked[k])
    return fixed


def fixed_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers and frozen parameters of a module by name."""
    yield from ((name, p.data) for name, p in module.named_parameters() if not p.requires_grad)
    yield from module.named_buffers()


def _place(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Replace a buffer or frozen parameter of a module by a tensor."""
    path, _, leaf = name.rpartition(".")
    owner = module.get_submodule(path)
    if leaf in owner._buffers:
        owner._buffers[leaf] = tensor
    else:
        owner.get_parameter(leaf).data = tensor
