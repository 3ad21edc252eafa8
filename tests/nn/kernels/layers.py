"""Layers of torch, one for each lane, to hold the kernels against; and what goes into both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nnexp.nn.kernels.op import recurrent

MODES = ["RNN_TANH", "RNN_RELU", "LSTM", "GRU"]
Weights = list[Any]  # four tensors, or None where there are no biases


def torchs(mode: str, channels: int, units: int, bias: bool = True) -> nn.RNNBase:
    """Torch's own layer of a mode, in one direction."""
    if mode.startswith("RNN"):
        return nn.RNN(channels, units, bias=bias, nonlinearity=mode[4:].lower(), batch_first=True)
    return getattr(nn, mode)(channels, units, bias=bias, batch_first=True)


def drawn(mode: str, *sizes: int, bias: bool = True, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Weights]:
    """x (K, B, T, C) and the four weights of K lanes, from sizes K, B, T, C, H."""
    lanes, *_, channels, units = sizes
    shapes = [w.shape for w in torchs(mode, channels, units, bias).parameters()]
    weights = [units**-0.5 * (2 * torch.rand(lanes, *shape, dtype=torch.float64) - 1).to(dtype) for shape in shapes]
    return torch.randn(*sizes[:4], dtype=torch.float64).to(dtype), [*weights, *[None] * (4 - len(weights))]


def lane_of(tensors: Weights, k: int) -> Weights:
    return [None if t is None else t[k] for t in tensors]


def with_gradients(states: Tensor, grad: Tensor, *of: Tensor | None) -> list[Tensor]:
    """The states, and the gradients of what is there."""
    return [states.detach(), *torch.autograd.grad(states, [t for t in of if t is not None], grad)]


def tracked(x: Tensor, weights: Weights) -> tuple[Tensor, Weights]:
    return x.clone().requires_grad_(), [None if w is None else w.clone().requires_grad_() for w in weights]


def ours(x: Tensor, weights: Weights, grad: Tensor, *options: object, lengths: Tensor | None = None) -> list[Tensor]:
    """States and gradients, of one lane (B, T, C) or of K."""
    x, weights = tracked(x, weights)
    return with_gradients(recurrent(x, *weights, lengths, *options), grad, x, *weights)


def expected(
    x: Tensor, weights: Weights, grad: Tensor, mode: str, reverse: bool, whole: bool, lengths: Tensor | None = None
) -> list[Tensor]:
    """The same of one lane, by torch: rows one by one, as long as each is."""
    x, weights = tracked(x, weights)
    module = torchs(mode, x.shape[-1], weights[1].shape[-1], weights[2] is not None).to(x.dtype)
    named = dict(zip((name for name, _ in module.named_parameters()), weights, strict=False))
    rows = []
    for row, length in zip(x, [x.shape[1]] * len(x) if lengths is None else lengths.tolist(), strict=True):
        given = row[:length].flip(0) if reverse else row[:length]
        states = torch.func.functional_call(module, named, (given.unsqueeze(0),))[0][0]
        if not whole:
            rows.append(states[-1])
            continue
        padding = torch.zeros_like(states[:1]) if reverse else states[-1:]
        states = states.flip(0) if reverse else states
        rows.append(torch.cat([states, padding.expand(x.shape[1] - length, -1)]))
    return with_gradients(torch.stack(rows), grad, x, *weights)
