"""The loss that is trained on, and the check of what a model returns."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nnexp.base import NnexpError
from nnexp.data.data_spec import DataSpec
from nnexp.data.views import valid_positions


def loss(output: Tensor, target: Tensor, data: DataSpec, lengths: Tensor | None = None) -> Tensor:
    """Mean over predictions: cross-entropy in nats for classes, squared error for values.

    A prediction for a position that is padding, one at or after `lengths` (B,), does not count.
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
    """The mean of (B, T) over positions that are not padding."""
    if lengths is None:
        return each.mean()
    valid = valid_positions(lengths, each.shape[1])
    return torch.where(valid, each, torch.zeros_like(each)).sum() / valid.sum()


def check_output(output: object, target: Tensor, data: DataSpec) -> None:
    """Raise NnexpError where a model does not give what its contract says."""
    rows = target.shape[:2] if data.per_step else target.shape[:1]
    expected = (*rows, data.outputs)
    if not isinstance(output, Tensor):
        raise NnexpError(f"the model gave a {type(output).__name__}, its data need one tensor of shape {expected}.")
    if tuple(output.shape) != expected:
        raise NnexpError(f"the model gave a tensor of shape {tuple(output.shape)}, its data need {expected}.")
