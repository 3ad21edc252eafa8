"""Convert inputs of any kind to what a model reads: sequences, vectors, images, windows or patches.

Shapes: B rows, T positions, C channels, F features, H hidden units. `data` is the dataset's specification. `lengths`
(B,) are numbers of valid positions; later positions are padding, which every function here reads as zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from nnexp.data.data_spec import DataSpec


def valid_positions(lengths: Tensor, num_positions: int) -> Tensor:
    """Return a mask (B, T), True at positions before `lengths` (B,), for T = `num_positions`."""
    return torch.arange(num_positions, device=lengths.device) < lengths.unsqueeze(-1)


def as_sequence(x: Tensor, data: DataSpec, lengths: Tensor | None = None) -> Tensor:
    """Return inputs (B, *data.shape) as sequences (B, T, C) with T = data.max_length and C = data.channels.

    A vector becomes F positions of one channel, tokens become one-hot, and an image is read row by row. Tokens may also
    be passed as one-hot rows (B, T, vocab) of real numbers, for gradients with respect to the input.

        def forward(self, x, lengths=None):
            return self.head(last_valid(self.core(as_sequence(x, self.data, lengths))[0], lengths))
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
    """Return images (B, C, H, W) with padding set to zero; the positions of an image are its rows."""
    if lengths is None:
        return x
    return torch.where(valid_positions(lengths, data.max_length)[:, None, :, None], x, torch.zeros_like(x))


def as_vector(x: Tensor, data: DataSpec, lengths: Tensor | None = None) -> Tensor:
    """Return inputs (B, *data.shape) flattened to (B, F) with F = data.features."""
    if data.kind == "image":
        return as_image(x, data, lengths).flatten(1)
    return as_sequence(x, data, lengths).flatten(1)


def as_windows(x: Tensor, data: DataSpec, size: int, lengths: Tensor | None = None) -> Tensor:
    """Return causal windows (B, T, size * C): each position with the `size - 1` positions before it.

    Positions before the first are zeros. Channels are the slow axis of a window, positions the fast one, oldest first.
    """
    sequence = as_sequence(x, data, lengths)
    return pad(sequence, (0, 0, size - 1, 0)).unfold(1, size, 1).flatten(2)


def as_patches(x: Tensor, data: DataSpec, size: int, lengths: Tensor | None = None) -> Tensor:
    """Return images as N square patches of `size` x `size` pixels, row by row, (B, N, P); other kinds as sequences.

    An image whose height or width is not a multiple of `size` is padded with zeros to the right and below.
    """
    if data.kind != "image":
        return as_sequence(x, data, lengths)
    _, height, width = data.shape
    padded = pad(as_image(x, data, lengths), (0, -width % size, 0, -height % size))
    tiles = padded.unfold(2, size, size).unfold(3, size, size)  # (B, C, rows, columns, size, size)
    return tiles.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def patch_counts(data: DataSpec, size: int) -> tuple[int, int]:
    """Return (N, P) of `as_patches`: patches of an input, and numbers in each."""
    if data.kind != "image":
        return data.max_length, data.channels
    channels, height, width = data.shape
    return -(-height // size) * -(-width // size), channels * size * size


def last_valid(states: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the states (B, H) at each row's last valid position, from states (B, T, H) at all positions."""
    if lengths is None:
        return states[:, -1]
    index = (lengths - 1).view(-1, 1, 1).expand(-1, 1, states.shape[-1])
    return states.gather(1, index).squeeze(1)


def mean_valid(states: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the mean (B, H) of states (B, T, H) over valid positions."""
    if lengths is None:
        return states.mean(1)
    weight = valid_positions(lengths, states.shape[1]).unsqueeze(-1).to(states.dtype)
    return (states * weight).sum(1) / weight.sum(1)
