"""Convolutional network (LeCun et al., 1989, doi:10.1162/neco.1989.1.4.541), with the shortcuts of He et al. (2016,
arXiv:1512.03385) where `residual` is set.

    h_k = pool(relu(W_k * h_{k-1} + b_k)),  y = V max_over_positions(h_L) + c

An image is convolved in two dimensions, everything else in one, over its positions. Departs from the papers in taking
the maximum over all positions before the output layer, so that what counts is whether a feature is there, not where.
"""

from itertools import pairwise
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nnexp import DataSpec, PerLane, Range, model
from nnexp.init import initialise
from nnexp.views import as_image, as_sequence, valid_positions

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
        conv = nn.Conv2d if self.is_image else nn.Conv1d
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
        for number, layer in enumerate(self.layers):
            states, valid = self._layer(number, layer, states, valid)
        if self.data.per_step:
            return self.head(states.transpose(1, 2))
        if valid is not None:
            states = states.masked_fill(~valid, -torch.inf)
        return self.head(states.flatten(2).amax(-1))

    def _layer(self, number: int, layer: nn.Module, states: Tensor, valid: Tensor | None):
        """(B, C, ...) -> (B, C', ...), and which positions of it are not padding: these alone hold other than zeros."""
        new = layer(F.pad(states, self.padding * (states.ndim - 2)))
        if self.shortcuts is not None:
            new = new + self.shortcuts[number](states)
        new = new.relu()
        is_pooled = self.pooling > 1 and number < len(self.layers) - 1
        if valid is not None:
            valid = valid[..., :: self.stride]
            new = new * valid
            valid = self._pool(valid.to(new.dtype)) > 0 if is_pooled else valid
        return self._pool(new) if is_pooled else new, valid

    def _pool(self, states: Tensor) -> Tensor:
        pool = F.max_pool2d if states.ndim == 4 else F.max_pool1d
        return pool(states, self.pooling, ceil_mode=True)
