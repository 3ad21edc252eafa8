"""Any kind of data as what a model reads. B rows, T positions, C channels, F features.

`lengths` (B,) says how many positions of each row count; those after are padding, and read as zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from nnexp.data.data_spec import DataSpec


def valid_positions(lengths: Tensor, num_positions: int) -> Tensor:
    """(B,) -> (B, T): whether a position is not padding."""
    return torch.arange(num_positions, device=lengths.device) < lengths.unsqueeze(-1)


def as_sequence(x: Tensor, data: DataSpec, lengths: Tensor | None = None) -> Tensor:
    """(B, *data.shape) -> (B, T, C): a vector is F positions of one number, an image is read row by row.

    Tokens may also be given as their one-hot rows (B, T, vocab), of which a gradient can be asked.
    """
    if data.kind == "tokens":
        is_one_hot = x.is_floating_point() and x.shape[-1] == data.vocab
        sequence = x if is_one_hot else one_hot(x.long(), data.vocab).to(torch.get_default_dtype())
    elif data.kind == "image":
        sequence = x.transpose(1, 2).flatten(2)
    else:
        sequence = x if data.kind == "sequence" else x.unsqueeze(-1)
    if lengths is None:
        return sequence
    return torch.where(valid_positions(lengths, data.max_length).unsqueeze(-1), sequence, torch.zeros_like(sequence))


def as_image(x: Tensor, data: DataSpec, lengths: Tensor | None = None) -> Tensor:
    """(B, C, H, W) -> the same; the positions of an image are its rows."""
    if lengths is None:
        return x
    return torch.where(valid_positions(lengths, data.max_length)[:, None, :, None], x, torch.zeros_like(x))


def as_vector(x: Tensor, data: DataSpec, lengths: Tensor | None = None) -> Tensor:
    """(B, *data.shape) -> (B, F): every number of an input, in one row."""
    if data.kind == "image":
        return as_image(x, data, lengths).flatten(1)
    return as_sequence(x, data, lengths).flatten(1)


def as_windows(x: Tensor, data: DataSpec, size: int, lengths: Tensor | None = None) -> Tensor:
    """(B, *data.shape) -> (B, T, size * C): each position with the `size - 1` before it, and never one after it."""
    sequence = as_sequence(x, data, lengths)
    return pad(sequence, (0, 0, size - 1, 0)).unfold(1, size, 1).flatten(2)


def as_patches(x: Tensor, data: DataSpec, size: int, lengths: Tensor | None = None) -> Tensor:
    """(B, *data.shape) -> (B, N, P): squares of `size` pixels of an image, row by row; else the positions.

    An image that is not a whole number of patches gets zeros to the right and below.
    """
    if data.kind != "image":
        return as_sequence(x, data, lengths)
    _, height, width = data.shape
    whole = pad(as_image(x, data, lengths), (0, -width % size, 0, -height % size))
    tiles = whole.unfold(2, size, size).unfold(3, size, size)  # (B, C, rows, columns, size, size)
    return tiles.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def patch_counts(data: DataSpec, size: int) -> tuple[int, int]:
    """(N, P): number of patches of an input, and numbers in each."""
    if data.kind != "image":
        return data.max_length, data.channels
    channels, height, width = data.shape
    return -(-height // size) * -(-width // size), channels * size * size


def last_valid(states: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, T, H) -> (B, H): the state at each row's last position that is not padding."""
    if lengths is None:
        return states[:, -1]
    index = (lengths - 1).view(-1, 1, 1).expand(-1, 1, states.shape[-1])
    return states.gather(1, index).squeeze(1)


def mean_valid(states: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, T, H) -> (B, H): the mean over positions that are not padding."""
    if lengths is None:
        return states.mean(1)
    weight = valid_positions(lengths, states.shape[1]).unsqueeze(-1).to(states.dtype)
    return (states * weight).sum(1) / weight.sum(1)
