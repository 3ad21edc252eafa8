"""What the two kernels of a layer over time have in common: its sizes and its modes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}  # as `torch.nn.RNNBase.mode` names them

Gradients = list[Tensor | None]


@dataclass(frozen=True)
class Layer:
    """One direction of one layer, of K lanes; every tensor is contiguous, a weight at least in each lane.

    Args:
        x: (K, B, T, C).
        w_ih: (K, G * H, C), for G gates.
        w_hh: (K, G * H, H).
        b_ih: (K, G * H), or None as b_hh.
        b_hh: (K, G * H).
        lengths: (K, B) integers; where a position is padding the state stays. None: there is none.
        mode: a key of GATES.
        reverse: from the last position to the first.
        whole: give the states at all positions, not only after the last that is read.
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
        """K, B, T, C, H."""
        lanes, rows, positions, channels = self.x.shape
        return lanes, rows, positions, channels, self.w_hh.shape[-1]

    @property
    def weights(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        return self.w_ih, self.w_hh, self.b_ih, self.b_hh

    def new_states(self) -> Tensor:
        lanes, rows, positions, _, units = self.sizes
        return self.x.new_empty((lanes, rows, positions, units) if self.whole else (lanes, rows, units))

    def __post_init__(self) -> None:
        """What C++ reads must be there, for it does not look."""
        lanes, rows, _, channels, units = self.sizes
        size = GATES[self.mode] * units
        shapes = [(size, channels), (size, units), (size,), (size,)]
        for weight, shape in zip(self.weights, shapes, strict=True):
            if weight is not None and weight.shape != (lanes, *shape):
                raise ValueError(f"a weight is {tuple(weight.shape)}, and must be {(lanes, *shape)}")
            if weight is not None and (weight.dtype, weight.device) != (self.x.dtype, self.x.device):
                raise ValueError(f"x is {self.x.dtype} on {self.x.device}, a weight {weight.dtype} on {weight.device}")
        if self.lengths is not None and (self.lengths.shape, self.lengths.dtype) != ((lanes, rows), torch.int64):
            raise ValueError(f"lengths must be {(lanes, rows)} of int64")
