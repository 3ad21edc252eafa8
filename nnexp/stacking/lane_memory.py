"""How many lanes fit into memory at once."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from nnexp.base import free_memory
from nnexp.training import Lane

SHARE = 0.5  # of what is free: others need memory too
# Numbers kept for the backward pass, times what stands beside them: gradients, temporaries, an evaluation's outputs.
TIMES_KEPT = 4
# Weights, gradients and optimiser states, of the lane and of the stack, before an update and after, and a way back.
TIMES_WEIGHTS = 24


def lanes_that_fit(lane: Lane, own_data: bool, share: float = 1.0) -> int:
    """How many like this, at least 1, where other processes leave them a share of the memory that is free."""
    return max(1, int(share * SHARE * free_bytes(lane.weights.vector.device) / lane_bytes(lane, own_data)))


def lane_bytes(lane: Lane, own_data: bool) -> int:
    """Memory that one more lane like this needs, with or without data of its own."""
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
    with contextlib.suppress(Exception), hooks:  # what is wrong with it is said elsewhere; or it allows no hooks
        lane.first_step()
    vector = lane.weights.vector
    data = sum(t.untyped_storage().nbytes() for split in lane.splits.values() for t in split) if own_data else 0
    return TIMES_KEPT * sum(kept.values()) + TIMES_WEIGHTS * vector.numel() * vector.element_size() + data


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a device, or for this process on the machine."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return free_memory()
