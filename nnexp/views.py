"""Any kind of data as what a model reads. B rows, T positions, C channels, F features."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from nnexp.spec import DataSpec


def as_sequence(x: Tensor, data: DataSpec) -> Tensor:
    """(B, *data.shape) -> (B, T, C): a vector is F positions of one number, an image is read row by row."""
    if data.kind == "tokens":
        return one_hot(x, data.vocab).to(torch.get_default_dtype())
    if data.kind == "image":
        return x.transpose(1, 2).flatten(2)
    return x if data.kind == "sequence" else x.unsqueeze(-1)


def as_vector(x: Tensor, data: DataSpec) -> Tensor:
    """(B, *data.shape) -> (B, F): every number of an input, in one row."""
    return as_sequence(x, data).flatten(1) if data.kind == "tokens" else x.flatten(1)


def last_valid(states: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, T, H) -> (B, H): the state at each row's last position that is not padding."""
    if lengths is None:
        return states[:, -1]
    index = (lengths - 1).view(-1, 1, 1).expand(-1, 1, states.shape[-1])
    return states.gather(1, index).squeeze(1)
