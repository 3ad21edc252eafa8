"""The training loss, and the check of a model's output."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nnexp.base import NnexpError
from nnexp.data.data_spec import DataSpec
from nnexp.data.views import valid_positions


def loss(output: Tensor, target: Tensor, data: DataSpec, lengths: Tensor | None = None) -> Tensor:
    """Return the mean loss over predictions, a scalar (): cross-entropy in nats for classes, else squared error.

        loss(module(x), y, data)

    Args:
        output: (B, outputs), or (B, T, outputs) if `data.per_step`.
        target: labels (B,) or (B, T); values of the shape of `output`.
        data: decides which loss.
        lengths: (B,) integers; positions from there on are padding and do not count if `data.per_step`.
    """
    is_padded = data.per_step and lengths is not None
    reduction = "none" if is_padded else "mean"
    if data.target == "value":
        each = F.mse_loss(output, target.reshape(output.shape), reduction=reduction)
    elif data.per_step:
        each = F.cross_entropy(output.flatten(0, 1), target.flatten().long(), reduction=reduction)
    else:
        each = F.cross_entropy(output, target.long())
    return mean_valid_positions(each.reshape(*output.shape[:2], -1).mean(-1), lengths) if is_padded else each


def mean_valid_positions(each: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the mean of `each` (B, T) over positions before `lengths` (B,), a scalar (); without lengths over all."""
    if lengths is None:
        return each.mean()
    valid = valid_positions(lengths, each.shape[1])
    return torch.where(valid, each, torch.zeros_like(each)).sum() / valid.sum()


def check_output(output: object, target: Tensor, data: DataSpec) -> None:
    """Raise NnexpError unless `output` is a tensor (B, outputs), or (B, T, outputs) if `data.per_step`.

    Args:
        output: return value of the model.
        target: labels or values of the same batch, for B and T.
        data: specification of the dataset.
    """
    rows = target.shape[:2] if data.per_step else target.shape[:1]
    expected = (*rows, data.outputs)
    if not isinstance(output, Tensor):
        found = type(output).__name__
        raise NnexpError(f"the model returned {found}; the data require one tensor of shape {expected}.")
    if tuple(output.shape) != expected:
        found = str(tuple(output.shape))
        raise NnexpError(f"the model returned a tensor of shape {found}; the data require {expected}.")
