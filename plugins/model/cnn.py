"""Convolutional network (LeCun et al., 1989, doi:10.1162/neco.1989.1.4.541), with the shortcuts of He et al. (2016,
arXiv:1512.03385) where `residual` is set.

    h_k = pool(relu(W_k * h_{k-1} + b_k)),  y = V max_over_positions(h_L) + c

Convolutions are two-dimensional on images, one-dimensional over positions otherwise. Departs from the papers in taking
the maximum over all positions before the output layer, which makes the output independent of where a feature is.
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
    """Convolutional layers with ReLU and max pooling, over images or sequences.

    For data with a target at each position, convolutions are causal and there is no pooling.

    Args:
        data: specification of the dataset's tensors.
        channels: number of filters in each layer.
        kernel_size: positions that a filter reads along each axis.
        stride: step of the filters, in positions.
        dilation: distance between neighbouring taps of a filter, in positions.
        pooling: window and stride of max pooling after each layer but the last; 1 disables it.
        residual: add each layer's input to its output, through a 1 x 1 convolution where shapes differ.
        init: initial weights: PyTorch's defaults (torch), or N(0, 1/fan_in) with zero biases (normal).
        init_scale: factor on every initial weight matrix but the output layer's.
    """

    fused = True  # False: matrix products instead of convolutions, faster for many small models under vmap

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
            raise ValueError("model.channels is empty. Set the number of filters of at least one layer.")
        if data.per_step and stride > 1:
            raise ValueError("a stride skips positions, and each has a target. Set model.stride=1.")
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
        """Return outputs (B, outputs), or (B, T, outputs) where data.per_step, for inputs (B, *data.shape)."""
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
            output: Tensor = self.head(states.transpose(1, 2).contiguous().relu())
        else:
            output = self.head(self._global_max(states).relu())
        return output

    def _layer(self, number: int, states: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the layer's output (B, C', ...) before the activation, and its valid positions; padding is zero.

        ReLU commutes with the maximum, so it is applied after pooling, to fewer numbers.
        """
        new: Tensor = self.layers[number](states, self.padding, self.fused)
        if self.shortcuts is not None:
            shortcut = self.shortcuts[number]
            new = new + (states if isinstance(shortcut, nn.Identity) else shortcut(states, (0, 0), self.fused))
        if valid is None:
            return new, None
        valid = valid[..., :: self.stride]
        return new * valid, valid

    def _global_max(self, states: Tensor) -> Tensor:
        """Return the maximum over all positions, (B, C, ...) -> (B, C)."""
        return states.flatten(2).amax(-1) if self.fused else states.movedim(0, -1).flatten(1, -2).amax(1).T

    def _pool_valid(self, valid: Tensor | None) -> Tensor | None:
        return None if valid is None else self._pool(valid.to(torch.get_default_dtype())) > 0

    def _pool(self, states: Tensor) -> Tensor:
        """Max pooling, (B, C, ...) -> (B, C, ...) with shorter axes."""
        if self.pooling == 1:
            return states
        pool = F.max_pool2d if states.ndim == 4 else F.max_pool1d
        # Unfused layers put rows last in memory: with rows and channels exchanged, that is torch's fast channels_last.
        states = states if self.fused else states.transpose(0, 1)
        pooled: Tensor = pool(states, self.pooling, ceil_mode=True)
        return pooled if self.fused else pooled.transpose(0, 1)


class Filters(nn.modules.conv._ConvNd):
    """Mixin for torch's convolutions: zero padding of each side by its own amount, and an unfused path."""

    def forward(self, states: Tensor, padding: tuple[int, int], fused: bool) -> Tensor:
        """Convolve (B, C, ...) -> (B, C', ...).

        The unfused path is one matrix product, with rows last in memory: under vmap that is faster for many small
        models than grouped convolutions.

        Args:
            padding: zeros before and after each axis.
            fused: use torch's convolution.
        """
        paddings = padding * (states.ndim - 2)
        if fused:
            output: Tensor = super().forward(F.pad(states, paddings))
            return output
        padded = F.pad(states.movedim(0, -1), (0, 0, *paddings))
        windows: Tensor = Windows.apply(padded, self.kernel_size, self.stride, self.dilation)
        sums = self.weight.flatten(1) @ windows.flatten(2).flatten(0, 1)
        if self.bias is not None:
            sums = sums + self.bias.unsqueeze(1)
        maps: Tensor = sums.unflatten(1, windows.shape[2:])
        return maps.movedim(-1, 0)


class Filters1d(Filters, nn.Conv1d):  # type: ignore[misc]  # forward takes more than that of Conv1d
    """Convolution over the positions of a sequence."""


class Filters2d(Filters, nn.Conv2d):  # type: ignore[misc]  # forward takes more than that of Conv2d
    """Convolution over the pixels of an image."""


class Windows(torch.autograd.Function):
    """Sliding windows, (C, ..., B) -> (C, taps, ..., B): the input of each tap of a filter at each output position.

    Has its own backward because autograd's, of one slice per tap, allocates a whole array for each of them.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(padded: Tensor, *geometry: tuple[int, ...]) -> Tensor:
        """Return the windows; `geometry` is kernel size, stride and dilation by axis."""
        return torch.stack([padded[part] for part in _slices(padded.shape[1:-1], *geometry)], dim=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        """Keep the shape and the slices for backward."""
        padded, *geometry = inputs
        ctx.shape, ctx.slices = padded.shape, _slices(padded.shape[1:-1], *geometry)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of the padded input: the windows' gradients, added where they overlap."""
        total = grad.new_zeros(ctx.shape)
        for part, of_tap in zip(ctx.slices, grad.unbind(1), strict=True):
            total[part] += of_tap
        return total, None, None, None


def _slices(sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[Any]:
    """Return, by tap, the slice of (C, ..., B) that it reads."""
    axes = [
        [slice(tap * step, size - (taps - 1 - tap) * step, jump) for tap in range(taps)]
        for size, taps, jump, step in zip(sizes, kernel, stride, dilation, strict=True)
    ]
    return [(slice(None), *part) for part in product(*axes)]
