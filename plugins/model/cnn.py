"""Convolutional network (LeCun et al., 1989, doi:10.1162/neco.1989.1.4.541), with the shortcuts of He et al. (2016,
arXiv:1512.03385) where `residual` is set.

    h_k = pool(relu(W_k * h_{k-1} + b_k)),  y = V max_over_positions(h_L) + c

An image is convolved in two dimensions, everything else in one, over its positions. Departs from the papers in taking
the maximum over all positions before the output layer, so that what counts is whether a feature is there, not where.
"""

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nnexp import DataSpec, PerLane, Range, model
from nnexp.data import as_image, as_sequence, valid_positions
from nnexp.nn import initialise

Size = Annotated[int, Range(min=1)]


@model
class CNN(nn.Module):
    """Layers of filters that look at a few neighbouring positions, the same filters everywhere.

    Where each position has its own prediction, filters see only the positions up to it, and nothing is pooled.

    Args:
        data: what the dataset says of its tensors.
        channels: filters of each layer; as many layers as numbers.
        kernel_size: positions that a filter sees, along each axis.
        stride: positions between two places of a filter.
        dilation: positions between two taps of a filter.
        pooling: side of the squares over which the maximum is taken after each layer but the last; 1 does not pool.
        residual: add each layer's input to its output, through a 1 x 1 convolution where sizes differ.
        init: initial weights; torch is PyTorch's own draw, normal is N(0, 1/fan_in) with zero biases.
        init_scale: multiplies every weight matrix but the output's.
    """

    fused = True  # False: products of matrices in place of convolutions, faster for many small models under vmap

    def __init__(
        self,
        data: DataSpec,
        *,
        channels: tuple[Size, ...] = (8, 16),
        kernel_size: Size = 3,
        stride: Size = 1,
        dilation: Size = 1,
        pooling: Size = 2,
        residual: bool = False,
        init: Literal["torch", "normal"] = "torch",
        init_scale: Annotated[float, Range(min=0), PerLane] = 1.0,
    ) -> None:
        super().__init__()
        if not channels:
            raise ValueError("model.channels is empty. Give the filters of at least one layer.")
        if data.per_step and stride > 1:
            raise ValueError("with a stride there is no output for each position. Set model.stride=1.")
        self.data = data
        self.is_image = data.kind == "image" and not data.per_step
        self.pooling = 1 if data.per_step else pooling
        self.stride = stride
        conv = Filters2d if self.is_image else Filters1d
        sizes = [data.shape[0] if self.is_image else data.channels, *channels]
        pairs = list(pairwise(sizes))
        self.layers = nn.ModuleList(conv(i, o, kernel_size, stride, dilation=dilation) for i, o in pairs)
        self.shortcuts = nn.ModuleList(self._shortcut(conv, i, o) for i, o in pairs) if residual else None
        self.head = nn.Linear(channels[-1], data.outputs)
        span = (kernel_size - 1) * dilation
        self.padding = (span, 0) if data.per_step else (span // 2, span - span // 2)
        initialise(self, init, init_scale, head=self.head)

    def _shortcut(self, conv: type[nn.Module], inputs: int, outputs: int) -> nn.Module:
        same = inputs == outputs and self.stride == 1
        return nn.Identity() if same else conv(inputs, outputs, 1, self.stride, bias=False)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, *data.shape) -> (B, outputs), or (B, T, outputs) where data.per_step."""
        if self.is_image:
            states = as_image(x, self.data, lengths)
        else:
            states = as_sequence(x, self.data, lengths).transpose(1, 2)
        valid = None
        if lengths is not None and not self.is_image:
            valid = valid_positions(lengths, states.shape[-1]).unsqueeze(1)
        for number in range(len(self.layers)):
            if number:
                states, valid = self._pool(states).relu(), self._pool_valid(valid)
            states, valid = self._layer(number, states, valid)
        if self.data.per_step:
            return self.head(states.transpose(1, 2).contiguous().relu())
        return self.head(self._most(states).relu())

    def _layer(self, number: int, states: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(B, C, ...) -> (B, C', ...), and which positions of it are not padding: these alone hold other than zeros.

        What it gives is not yet bent: that commutes with a maximum, of which fewer numbers are left to be bent.
        """
        new = self.layers[number](states, self.padding, self.fused)
        if self.shortcuts is not None:
            shortcut = self.shortcuts[number]
            new = new + (states if isinstance(shortcut, nn.Identity) else shortcut(states, (0, 0), self.fused))
        if valid is None:
            return new, None
        valid = valid[..., :: self.stride]
        return new * valid, valid

    def _most(self, states: Tensor) -> Tensor:
        """(B, C, ...) -> (B, C): the maximum over all positions."""
        return states.flatten(2).amax(-1) if self.fused else states.movedim(0, -1).flatten(1, -2).amax(1).T

    def _pool_valid(self, valid: Tensor | None) -> Tensor | None:
        return None if valid is None else self._pool(valid.to(torch.get_default_dtype())) > 0

    def _pool(self, states: Tensor) -> Tensor:
        """The maximum over squares, (B, C, ...) -> the same with smaller axes."""
        if self.pooling == 1:
            return states
        pool = F.max_pool2d if states.ndim == 4 else F.max_pool1d
        if self.fused:
            return pool(states, self.pooling, ceil_mode=True)
        # Rows and channels exchanged: in memory rows stand last, which torch takes for its fast order of channels.
        return pool(states.transpose(0, 1), self.pooling, ceil_mode=True).transpose(0, 1)


class Filters(nn.Module):
    """What a convolution of torch is given here: margins, and another way to compute it."""

    def forward(self, states: Tensor, margin: tuple[int, int], fused: bool) -> Tensor:
        """(B, C, ...) -> (B, C', ...).

        Not fused it is one product of matrices, with rows last in memory: for many small models under vmap that is
        faster than convolutions in groups.
        """
        margins = margin * (states.ndim - 2)
        if fused:
            return super().forward(F.pad(states, margins))
        padded = F.pad(states.movedim(0, -1), (0, 0, *margins))
        seen = Windows.apply(padded, self.kernel_size, self.stride, self.dilation)
        sums = self.weight.flatten(1) @ seen.flatten(2).flatten(0, 1)
        if self.bias is not None:
            sums = sums + self.bias.unsqueeze(1)
        return sums.unflatten(1, seen.shape[2:]).movedim(-1, 0)


class Filters1d(Filters, nn.Conv1d):
    """Along a sequence."""


class Filters2d(Filters, nn.Conv2d):
    """Across an image."""


class Windows(torch.autograd.Function):
    """(C, ..., B) -> (C, taps, ..., B): what each tap of a filter sees at each place.

    A function of its own for its gradient: torch's, of slices, writes a whole array for each of them.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(padded: Tensor, *geometry: tuple[int, ...]) -> Tensor:
        return torch.stack([padded[part] for part in _slices(padded.shape[1:-1], *geometry)], dim=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        padded, *geometry = inputs
        ctx.shape, ctx.slices = padded.shape, _slices(padded.shape[1:-1], *geometry)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        total = grad.new_zeros(ctx.shape)
        for part, seen in zip(ctx.slices, grad.unbind(1), strict=True):
            total[part] += seen
        return total, None, None, None


def _slices(sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[Any]:
    """For each tap, the part of (C, ..., B) that it sees."""
    axes = [
        [slice(tap * step, size - (taps - 1 - tap) * step, jump) for tap in range(taps)]
        for size, taps, jump, step in zip(sizes, kernel, stride, dilation, strict=True)
    ]
    return [(slice(None), *part) for part in product(*axes)]
