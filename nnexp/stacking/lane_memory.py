"""Estimate of how many lanes fit into memory at once."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from nnexp.base import free_memory
from nnexp.training import Lane

FREE_SHARE = 0.5  # of the free memory: other processes need some too
# Per byte saved for the backward pass: also gradients, temporaries, and outputs of an evaluation.
ACTIVATION_FACTOR = 4
# Per byte of weights: weights, gradients and optimiser states, of lane and stack, before and after an update.
WEIGHT_FACTOR = 24


def lanes_that_fit(lane: Lane, own_data: bool, share: float = 1.0) -> int:
    """Return how many lanes of this kind can be trained as one stack, at least 1.

    Args:
        lane: a built lane.
        own_data: whether each lane has its own dataset.
        share: share of the free memory that this process may use.
    """
    return max(1, int(share * FREE_SHARE * free_bytes(lane.weights.vector.device) / lane_bytes(lane, own_data)))


def lane_bytes(lane: Lane, own_data: bool) -> int:
    """Return the estimated bytes that one more lane of this kind needs; runs one forward and backward pass.

    Args:
        lane: a built lane; its state is unchanged.
        own_data: whether to include the dataset.
    """
    saved: dict[int, int] = {}

    def record(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor)
    with contextlib.suppress(Exception), hooks:  # an error is reported when the lane trains; or it does not allow hooks
        lane.first_step()
    vector = lane.weights.vector
    data = sum(t.untyped_storage().nbytes() for split in lane.splits.values() for t in split) if own_data else 0
    return ACTIVATION_FACTOR * sum(saved.values()) + WEIGHT_FACTOR * vector.numel() * vector.element_size() + data


def free_bytes(device: torch.device) -> int:
    """Return the free bytes on a GPU, or for this process in main memory."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return free_memory()
