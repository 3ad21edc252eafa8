"""The layer over time in operations of torch, for where there is no compiler: all K lanes in each of them.

A row of `z` is [x, 1, zeros, h]: one product gives the sums of all gates at a position, and one over all rows and
positions the gradients of all weights. GRU's n gate has two sums, that of x and that of h, and so S = 4 blocks where
G = 3. Positions stand in the order in which they are read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nnexp.kernels.cells import CELLS, At
from nnexp.kernels.layer import GATES, Gradients, Layer
from nnexp.views import valid_positions


def _shapes(layer: Layer) -> list[tuple[int, int, int]]:
    """Of a lane's parts of what is kept."""
    _, rows, positions, channels, units = layer.sizes
    sums = units * (4 if layer.mode == "GRU" else GATES[layer.mode])
    memory = units if layer.mode == "LSTM" else 0
    width = -(-(channels + 1 + units) // 8) * 8  # products are faster on rows of whole vectors
    return [
        (positions + 1, rows, width),
        (positions, rows, sums),
        (positions + 1, rows, memory),
        (positions, rows, memory),
    ]


def kept_size(layer: Layer) -> int:
    """Numbers that a lane keeps for the backward pass."""
    return sum(steps * rows * width for steps, rows, width in _shapes(layer))


class Steps:
    """A layer, and what its backward pass needs.

    Args:
        layer: what to compute.
        kept: (K, kept_size(layer)), of which these are views: `z` (K, T + 1, B, Z) with `h` in it, the states before
            each position and after the last; `sums` (K, T, B, S * H), which become the gates; LSTM's memory `c`
            (K, T + 1, B, H) and its tanh `bent` (K, T, B, H) after each position.
    """

    def __init__(self, layer: Layer, kept: Tensor) -> None:
        shapes = _shapes(layer)
        parts = kept.split([steps * rows * width for steps, rows, width in shapes], dim=1)
        self.z, self.sums, self.c, self.bent = (p.unflatten(1, shape) for p, shape in zip(parts, shapes, strict=True))
        self.layer, self.size, self.channels = layer, layer.w_hh.shape[-1], layer.x.shape[-1]
        self.h, self.blocks = self.z[..., -self.size :], self.sums.shape[-1] // self.size
        self.forward, self.backward = CELLS[layer.mode]
        self.is_split = layer.mode == "GRU"
        self.ok = None
        if layer.lengths is not None:
            self.ok = self.in_order(valid_positions(layer.lengths, layer.x.shape[2])).unsqueeze(-1)

    def in_order(self, sequence: Tensor) -> Tensor:
        """(K, B, T, ...) -> (K, T, B, ...), in the order of reading."""
        return (sequence.flip(2) if self.layer.reverse else sequence).transpose(1, 2)

    def as_given(self, sequence: Tensor) -> Tensor:
        """The way back."""
        return (sequence.flip(1) if self.layer.reverse else sequence).transpose(1, 2)

    def at(self, s: int) -> At:
        g = self.sums[:, s].chunk(self.blocks, dim=-1)
        return At(g, self.h[:, s], self.c[:, s], self.h[:, s + 1], self.c[:, s + 1], self.bent[:, s])


def forward(layer: Layer, kept: Tensor) -> Tensor:
    """The states, (K, B, T, H) or the last ones (K, B, H); fills `kept`."""
    steps = Steps(layer, kept)
    z, channels, size = steps.z, steps.channels, steps.size
    z[..., channels:-size] = 0
    z[..., channels] = 1
    z[:, :-1, :, :channels] = steps.in_order(layer.x)
    z[:, -1, :, :channels] = 0
    steps.h[:, 0] = 0
    steps.c[:, 0] = 0
    weights, hidden, bias = _joined(steps)
    if steps.is_split:
        inputs = slice(2 * size, 3 * size)
        part = torch.bmm(z[:, :-1, :, : channels + 1].flatten(1, 2), weights[:, inputs, : channels + 1].mT)
        steps.sums[..., inputs] = part.unflatten(1, steps.sums.shape[1:3])
    for s in range(layer.x.shape[2]):
        _sum(steps, s, weights, hidden, bias)
        at = steps.at(s)
        steps.forward(at)
        if steps.ok is not None:
            for new, old in ((at.new_h, at.h), (at.new_c, at.c))[: 1 + bool(steps.c.numel())]:
                new.copy_(torch.where(steps.ok[:, s], new, old))
    return steps.as_given(steps.h[:, 1:]).contiguous() if layer.whole else steps.h[:, -1].contiguous()


def _joined(steps: Steps) -> tuple[Tensor, Tensor, Tensor | None]:
    """(K, G * H, Z) for the rows of z; and for the part of GRU's n gate that h alone makes, (K, H, H) and (K, 1, H)."""
    layer, size = steps.layer, steps.size
    zeros = layer.w_hh.new_zeros(*layer.w_hh.shape[:2], steps.z.shape[-1] - size - steps.channels)
    joined = torch.cat([layer.w_ih, zeros, layer.w_hh], dim=-1)
    own = None
    if layer.b_ih is not None and layer.b_hh is not None:
        rows = slice(2 * size if steps.is_split else None)
        joined[..., steps.channels] = layer.b_ih
        joined[:, rows, steps.channels] += layer.b_hh[:, rows]
        own = layer.b_hh[:, None, 2 * size :]
    return joined, layer.w_hh[:, 2 * size :], own


def _sum(steps: Steps, s: int, weights: Tensor, hidden: Tensor, bias: Tensor | None) -> None:
    """The sums of all gates at a position."""
    sums, z, size = steps.sums[:, s], steps.z[:, s], steps.size
    if not steps.is_split:
        torch.bmm(z, weights.mT, out=sums)
        return
    torch.bmm(z, weights[:, : 2 * size].mT, out=sums[..., : 2 * size])
    part = torch.bmm(steps.h[:, s], hidden.mT, out=sums[..., 3 * size :])
    if bias is not None:
        part += bias


def backward(layer: Layer, kept: Tensor, grad: Tensor, needs_x: bool) -> Gradients:
    """Gradients of x and of the weights, from that of the states."""
    steps = Steps(layer, kept)
    d = torch.empty_like(steps.sums)
    given = steps.in_order(grad) if layer.whole else None
    dh = torch.zeros_like(steps.h[:, 0]) if layer.whole else grad
    dc = torch.zeros_like(steps.c[:, 0])
    both = 2 * steps.size if steps.is_split else d.shape[-1]
    for s in reversed(range(d.shape[1])):
        dh = dh if given is None else dh + given[:, s]
        new_dh, new_dc = steps.backward(steps.at(s), dh, dc, d[:, s].chunk(steps.blocks, dim=-1))
        if steps.ok is not None:
            ok = steps.ok[:, s]
            d[:, s].masked_fill_(~ok, 0)
            new_dh = torch.where(ok, new_dh, dh)
            new_dc = torch.where(ok, new_dc, dc) if dc.numel() else dc
        dh, dc = torch.baddbmm(new_dh, d[:, s, :, :both], layer.w_hh[:, :both]), new_dc
        if steps.is_split:
            dh = dh.baddbmm_(d[:, s, :, both + steps.size :], layer.w_hh[:, both:])
    return _of_weights(steps, d, needs_x)


def _of_weights(steps: Steps, d: Tensor, needs_x: bool) -> Gradients:
    """From the gradients (K, T, B, S * H) of all sums."""
    layer, size, channels = steps.layer, steps.size, steps.channels
    all_d, inputs = d.flatten(1, 2), layer.w_ih.shape[1]
    dw = torch.bmm(all_d.mT, steps.z[:, :-1].flatten(1, 2))
    hidden = torch.cat([dw[:, : 2 * size], dw[:, 3 * size :]], dim=1) if steps.is_split else dw
    biases = [dw[:, :inputs, channels], hidden[..., channels]] if layer.b_ih is not None else [None, None]
    dx = None
    if needs_x:
        dx = steps.as_given(torch.bmm(all_d[..., :inputs], layer.w_ih).unflatten(1, d.shape[1:3]))
    grads = [dx, dw[:, :inputs, :channels], hidden[..., -size:], *biases]
    return [None if grad is None else grad.clone(memory_format=torch.contiguous_format) for grad in grads]
