"""Arguments, sizes and modes of a recurrent layer, shared by the C++ kernel and the torch kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}  # as `torch.nn.RNNBase.mode` names them

Gradients = list[Tensor | None]


@dataclass(frozen=True)
class Layer:
    """One direction of one recurrent layer for K lanes. Tensors are contiguous, weights at least within each lane.

    Args:
        x: inputs (K, B, T, C).
        w_ih: input weights (K, G * H, C) of G gates.
        w_hh: recurrent weights (K, G * H, H).
        b_ih: input biases (K, G * H); None if and only if `b_hh` is.
        b_hh: recurrent biases (K, G * H).
        lengths: (K, B) integers; at positions from there on the state does not change. None: no padding.
        mode: a key of GATES.
        reverse: read from the last position to the first.
        whole: return the states at all positions instead of the last one.

    Raises:
        ValueError: shapes, types or devices do not fit together.
    """

    x: Tensor
    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor | None
    b_hh: Tensor | None
    lengths: Tensor | None
    mode: str
    reverse: bool
    whole: bool

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """The sizes (K, B, T, C, H)."""
        lanes, rows, positions, channels = self.x.shape
        return lanes, rows, positions, channels, self.w_hh.shape[-1]

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """The weights (w_ih, w_hh, b_ih, b_hh)."""
        return self.w_ih, self.w_hh, self.b_ih, self.b_hh

    def new_states(self) -> Tensor:
        """Allocate the output: (K, B, T, H) if `whole`, else (K, B, H)."""
        lanes, rows, positions, _, units = self.sizes
        return self.x.new_empty((lanes, rows, positions, units) if self.whole else (lanes, rows, units))

    def __post_init__(self) -> None:
        """Check all tensors: C++ reads memory unchecked."""
        lanes, rows, _, channels, units = self.sizes
        size = GATES[self.mode] * units
        shapes = [(size, channels), (size, units), (size,), (size,)]
        for weight, shape in zip(self.weights, shapes, strict=True):
            if weight is not None and weight.shape != (lanes, *shape):
                raise ValueError(f"a weight has shape {tuple(weight.shape)} and must have {(lanes, *shape)}")
            if weight is not None and (weight.dtype, weight.device) != (self.x.dtype, self.x.device):
                raise ValueError(f"x is {self.x.dtype} on {self.x.device}, a weight {weight.dtype} on {weight.device}")
        if self.lengths is not None and (self.lengths.shape, self.lengths.dtype) != ((lanes, rows), torch.int64):
            raise ValueError(f"lengths must be {(lanes, rows)} of int64")
