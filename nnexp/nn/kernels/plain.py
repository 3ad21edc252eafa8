"""The layer over time in operations of torch, for where there is no compiler: all K lanes in each of them.

A row of `z` is [x, 1, zeros, h], so that one product gives the sums of a gate, and another the gradients of all its
weights. GRU's n gate has two sums, that of x and that of h, and so S = 4 blocks where there are G = 3 gates. Positions
come first, in the order in which they are read, then blocks: every operation is on memory without gaps. Rows are filled
up to R, whole vectors, for torch rounds what is left over in another way, and where that is depends on other lanes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from nnexp.data import valid_positions
from nnexp.nn.kernels.cells import CELLS, At
from nnexp.nn.kernels.layer import GATES, Gradients, Layer


class Steps:
    """A layer in operations of torch.

    Args:
        layer: what to compute.
        kept: what the backward pass needs, filled by the forward pass: `z` (T + 1, K, R, Z), with the states `h` before
            each position and after the last; `sums` (T, S, K, R, H), which become the gates; LSTM's memory `c`
            (T + 1, K, R, H) and its tanh `bent` (T, K, R, H) after each position.
    """

    def __init__(self, layer: Layer, kept: Tensor) -> None:
        shapes = _shapes(layer)
        parts = kept.split([math.prod(shape) for shape in shapes])
        self.z, self.sums, self.c, self.bent = (part.view(shape) for part, shape in zip(parts, shapes, strict=True))
        self.layer, self.size, self.channels = layer, layer.w_hh.shape[-1], layer.x.shape[-1]
        self.h = self.z[..., -self.size :]
        self.ok = None
        if layer.lengths is not None:
            self.ok = self.in_order(valid_positions(layer.lengths, layer.x.shape[2]).unsqueeze(-1))
        self.forward, self.backward = CELLS[layer.mode]
        # Which blocks have the sums of x, and which those of h.
        is_split = layer.mode == "GRU"
        self.of_x, self.of_h = ([0, 1, 2], [0, 1, 3]) if is_split else [list(range(GATES[layer.mode]))] * 2

    def in_order(self, sequence: Tensor) -> Tensor:
        """(K, B, T, N) -> (T, K, R, N), in the order of reading; more rows of zeros."""
        ordered = (sequence.flip(2) if self.layer.reverse else sequence).movedim(2, 0)
        return pad(ordered, (0, 0, 0, self.z.shape[2] - ordered.shape[2]))

    def as_given(self, sequence: Tensor) -> Tensor:
        """The way back."""
        ordered = sequence[:, :, : self.layer.x.shape[1]]
        return (ordered.flip(0) if self.layer.reverse else ordered).movedim(0, 2).contiguous()

    def at(self, s: int) -> At:
        memory = (self.c[s], self.c[s + 1], self.bent[s]) if self.c.numel() else (self.c,) * 3
        return At(self.sums[s].unbind(), self.h[s], self.h[s + 1], *memory)


def _shapes(layer: Layer) -> list[tuple[int, ...]]:
    lanes, rows, positions, channels, units = layer.sizes
    rows, width = -(-rows // 32) * 32, -(-(channels + 1 + units) // 8) * 8
    blocks, memory = (4 if layer.mode == "GRU" else GATES[layer.mode]), (units if layer.mode == "LSTM" else 0)
    return [
        (positions + 1, lanes, rows, width),
        (positions, blocks, lanes, rows, units),
        (positions + 1, lanes, rows, memory),
        (positions, lanes, rows, memory),
    ]


def kept_size(layer: Layer) -> int:
    """Numbers that are kept for the backward pass."""
    return sum(map(math.prod, _shapes(layer)))


def forward(layer: Layer, kept: Tensor) -> Tensor:
    """The states, (K, B, T, H) or the last ones (K, B, H); fills `kept`."""
    steps = Steps(layer, kept)
    z, channels, size = steps.z, steps.channels, steps.size
    z[..., channels:-size] = 0
    z[..., channels] = 1
    z[:-1, ..., :channels] = steps.in_order(layer.x)
    z[-1, ..., :channels] = 0
    steps.h[0] = 0
    steps.c[0] = 0
    weights = _joined(steps)
    for s in range(layer.x.shape[2]):
        for block, (columns, weight) in enumerate(weights):
            torch.bmm(z[s][..., columns], weight.mT, out=steps.sums[s, block])
        at = steps.at(s)
        steps.forward(at)
        if steps.ok is not None:
            at.keep_where(~steps.ok[s])
    return steps.as_given(steps.h[1:]) if layer.whole else steps.h[-1, :, : layer.x.shape[1]].contiguous()


def _joined(steps: Steps) -> list[tuple[slice, Tensor]]:
    """For each block of sums its columns of z, and its weights (K, H, columns)."""
    layer, size, channels = steps.layer, steps.size, steps.channels
    whole = layer.w_hh.new_zeros(*layer.w_hh.shape[:2], steps.z.shape[-1])
    whole[..., :channels], whole[..., -size:] = layer.w_ih, layer.w_hh
    if layer.b_ih is not None and layer.b_hh is not None:
        whole[..., channels] = layer.b_ih + layer.b_hh
    blocks = [(slice(None), weight) for weight in whole.split(size, dim=1)]
    if steps.of_x == steps.of_h:
        return blocks
    _, last = blocks.pop()
    of_x, of_h = last[..., : channels + 1].clone(), last[..., channels:].clone()
    if layer.b_ih is not None and layer.b_hh is not None:
        of_x[..., channels], of_h[..., 0] = layer.b_ih[:, -size:], layer.b_hh[:, -size:]
    return [*blocks, (slice(channels + 1), of_x), (slice(channels, None), of_h)]


def backward(layer: Layer, kept: Tensor, grad: Tensor, needs_x: bool) -> Gradients:
    """Gradients of x and of the weights, from that of the states."""
    steps = Steps(layer, kept)
    size, (lanes, rows, positions, channels) = steps.size, layer.x.shape
    d = torch.empty_like(steps.sums[0])
    dw = d.new_zeros(len(d), lanes, size, steps.z.shape[-1])
    dx = d.new_zeros(positions if needs_x else 0, lanes, d.shape[2], channels)
    given = steps.in_order(grad) if layer.whole else None
    dh, dc = torch.zeros_like(d[0]), torch.zeros_like(d[0])
    if given is None:
        dh[:, :rows] = grad
    for s in reversed(range(positions)):
        dh = dh if given is None else dh + given[s]
        at = steps.at(s)
        new_dh, new_dc = steps.backward(at, dh, dc, d.unbind())
        if steps.ok is not None:
            d.masked_fill_(~steps.ok[s], 0)
            new_dh, new_dc = torch.where(steps.ok[s], new_dh, dh), torch.where(steps.ok[s], new_dc, dc)
        dh, dc = new_dh, new_dc
        for gate, (of_x, of_h) in enumerate(zip(steps.of_x, steps.of_h, strict=True)):
            its = slice(gate * size, (gate + 1) * size)
            dh = torch.baddbmm(dh, d[of_h], layer.w_hh[:, its])
            if needs_x:
                dx[s].baddbmm_(d[of_x], layer.w_ih[:, its])
        for block in range(len(d)):
            dw[block].baddbmm_(d[block].mT, steps.z[s])
    return [steps.as_given(dx) if needs_x else None, *_apart(steps, dw)]


def _apart(steps: Steps, dw: Tensor) -> Gradients:
    """The gradients of w_ih, w_hh, b_ih and b_hh, from those of the weights of z by block (S, K, H, Z)."""
    of_x, of_h = (dw[blocks].transpose(0, 1).flatten(1, 2) for blocks in (steps.of_x, steps.of_h))
    one, size = steps.channels, steps.size
    biases = [of_x[..., one], of_h[..., one]] if steps.layer.b_ih is not None else [None, None]
    return [
        t if t is None else t.clone(memory_format=torch.contiguous_format)
        for t in (of_x[..., :one], of_h[..., -size:], *biases)
    ]
