"""The recurrent layer in torch operations, each for all K lanes, used where there is no C++ kernel.

A row of `z` is [x, 1, zeros, h], so that one product computes the pre-activations of a gate, and another one the
gradients of all its weights. GRU's n gate has separate pre-activations from x and from h, so there are S = 4 blocks for
G = 3 gates. Positions are the first axis, in the order in which they are read, then blocks: every operation is on
contiguous memory. B rows are padded to R, a multiple of the vector size, because torch rounds the remainder of an array
differently, and which rows are in that remainder would depend on other lanes.
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
    """Views of the buffers of a layer by position.

    Args:
        layer: the layer.
        kept: flat buffer that the forward pass fills for the backward pass: `z` (T + 1, K, R, Z), with the states `h`
            before each position and after the last; `sums` (T, S, K, R, H), pre-activations that become the gates;
            LSTM's cell state `c` (T + 1, K, R, H) and its tanh `tanh_c` (T, K, R, H) after each position.
    """

    def __init__(self, layer: Layer, kept: Tensor) -> None:
        shapes = _shapes(layer)
        parts = kept.split([math.prod(shape) for shape in shapes])
        self.z, self.sums, self.c, self.tanh_c = (part.view(shape) for part, shape in zip(parts, shapes, strict=True))
        self.layer, self.size, self.channels = layer, layer.w_hh.shape[-1], layer.x.shape[-1]
        self.h = self.z[..., -self.size :]
        self.ok = None
        if layer.lengths is not None:
            self.ok = self.in_order(valid_positions(layer.lengths, layer.x.shape[2]).unsqueeze(-1))
        self.forward, self.backward = CELLS[layer.mode]
        # The blocks with pre-activations from x, and those with pre-activations from h.
        is_split = layer.mode == "GRU"
        self.of_x, self.of_h = ([0, 1, 2], [0, 1, 3]) if is_split else [list(range(GATES[layer.mode]))] * 2

    def in_order(self, sequence: Tensor) -> Tensor:
        """Return a sequence (K, B, T, N) as (T, K, R, N) in reading order; rows beyond B are zeros."""
        ordered = (sequence.flip(2) if self.layer.reverse else sequence).movedim(2, 0)
        return pad(ordered, (0, 0, 0, self.z.shape[2] - ordered.shape[2]))

    def in_input_order(self, sequence: Tensor) -> Tensor:
        """Return a sequence (T, K, R, N) as (K, B, T, N), the inverse of `in_order`."""
        ordered = sequence[:, :, : self.layer.x.shape[1]]
        return (ordered.flip(0) if self.layer.reverse else ordered).movedim(0, 2).contiguous()

    def at(self, s: int) -> At:
        """Return views of the tensors of the s-th position in reading order."""
        memory = (self.c[s], self.c[s + 1], self.tanh_c[s]) if self.c.numel() else (self.c,) * 3
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
    """Return the size of `kept`, the numbers that the forward pass saves for the backward pass."""
    return sum(map(math.prod, _shapes(layer)))


def forward(layer: Layer, kept: Tensor) -> Tensor:
    """Return the states (K, B, T, H), or the last states (K, B, H) unless `layer.whole`, and fill `kept`."""
    steps = Steps(layer, kept)
    z, channels, size = steps.z, steps.channels, steps.size
    z[..., channels:-size] = 0
    z[..., channels] = 1
    z[:-1, ..., :channels] = steps.in_order(layer.x)
    z[-1, ..., :channels] = 0
    steps.h[0] = 0
    steps.c[0] = 0
    weights = _joint_weights(steps)
    for s in range(layer.x.shape[2]):
        for block, (columns, weight) in enumerate(weights):
            torch.bmm(z[s][..., columns], weight.mT, out=steps.sums[s, block])
        at = steps.at(s)
        steps.forward(at)
        if steps.ok is not None:
            at.keep_where(~steps.ok[s])
    return steps.in_input_order(steps.h[1:]) if layer.whole else steps.h[-1, :, : layer.x.shape[1]].contiguous()


def _joint_weights(steps: Steps) -> list[tuple[slice, Tensor]]:
    """Return for each block of pre-activations its columns of z and its weights (K, H, columns)."""
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
    """Return the gradients of x (None unless `needs_x`), w_ih, w_hh, b_ih and b_hh.

    Args:
        layer: the layer.
        kept: as the forward pass filled it.
        grad: gradient of the states, of their shape.
        needs_x: whether to compute the gradient of x.
    """
    steps = Steps(layer, kept)
    size, (lanes, rows, positions, channels) = steps.size, layer.x.shape
    d = torch.empty_like(steps.sums[0])
    dw = d.new_zeros(len(d), lanes, size, steps.z.shape[-1])
    dx = d.new_zeros(positions if needs_x else 0, lanes, d.shape[2], channels)
    grads = steps.in_order(grad) if layer.whole else None
    dh, dc = torch.zeros_like(d[0]), torch.zeros_like(d[0])
    if grads is None:
        dh[:, :rows] = grad
    for s in reversed(range(positions)):
        dh = dh if grads is None else dh + grads[s]
        at = steps.at(s)
        new_dh, new_dc = steps.backward(at, dh, dc, d.unbind())
        if steps.ok is not None:
            d.masked_fill_(~steps.ok[s], 0)
            new_dh, new_dc = torch.where(steps.ok[s], new_dh, dh), torch.where(steps.ok[s], new_dc, dc)
        dh, dc = new_dh, new_dc
        for gate, (of_x, of_h) in enumerate(zip(steps.of_x, steps.of_h, strict=True)):
            gate_rows = slice(gate * size, (gate + 1) * size)
            dh = torch.baddbmm(dh, d[of_h], layer.w_hh[:, gate_rows])
            if needs_x:
                dx[s].baddbmm_(d[of_x], layer.w_ih[:, gate_rows])
        for block in range(len(d)):
            dw[block].baddbmm_(d[block].mT, steps.z[s])
    return [steps.in_input_order(dx) if needs_x else None, *_split_gradients(steps, dw)]


def _split_gradients(steps: Steps, dw: Tensor) -> Gradients:
    """Split the gradients of the weights of z by block (S, K, H, Z) into those of w_ih, w_hh, b_ih and b_hh."""
    of_x, of_h = (dw[blocks].transpose(0, 1).flatten(1, 2) for blocks in (steps.of_x, steps.of_h))
    one, size = steps.channels, steps.size
    biases = [of_x[..., one], of_h[..., one]] if steps.layer.b_ih is not None else [None, None]
    return [
        t if t is None else t.clone(memory_format=torch.contiguous_format)
        for t in (of_x[..., :one], of_h[..., -size:], *biases)
    ]
