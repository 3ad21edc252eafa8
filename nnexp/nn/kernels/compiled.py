"""The layer over time in C++, see recurrent.cpp."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from nnexp.nn.kernels.build import library
from nnexp.nn.kernels.layer import GATES, Gradients, Layer

ROW_BYTES = 128  # of one number of all rows of a block
INTEGERS = ("lanes", "rows", "positions", "channels", "units", "mode", "is_double", "is_reverse", "is_whole")
POINTERS = (
    *("lengths", "x", "w_ih", "w_hh", "b_ih", "b_hh", "states", "kept"),
    *("grad", "dx", "dw_ih", "dw_hh", "db_ih", "db_hh"),
)


class Problem(ctypes.Structure):
    """The struct of the same name in recurrent.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in INTEGERS),
        ("gaps", ctypes.c_int64 * 4),
        *((name, ctypes.c_void_p) for name in POINTERS),
    ]


def kept_size(layer: Layer) -> int:
    """Numbers that are kept for the backward pass."""
    lanes, rows, positions, _, units = layer.sizes
    block = ROW_BYTES // layer.x.element_size()
    return lanes * -(-rows // block) * block * positions * units * (1 if layer.mode.startswith("RNN") else 4)


def forward(layer: Layer, kept: Tensor) -> Tensor:
    """The states, (K, B, T, H) or the last ones (K, B, H); fills `kept`."""
    states = layer.new_states()
    _call(layer, False, [states, kept])
    return states


def backward(layer: Layer, kept: Tensor, grad: Tensor, needs_x: bool) -> Gradients:
    """Gradients of x and of the weights, from that of the states."""
    grads = [None if w is None else w.new_zeros(w.shape) for w in (layer.x if needs_x else None, *layer.weights)]
    _call(layer, True, [None, kept, grad, *grads])
    return grads


def _call(layer: Layer, is_backward: bool, more: list[Tensor | None]) -> None:
    tensors = [layer.lengths, layer.x, *layer.weights, *more]
    problem = Problem(
        *layer.sizes,
        list(GATES).index(layer.mode),
        layer.x.dtype == torch.float64,
        layer.reverse,
        layer.whole,
        (ctypes.c_int64 * 4)(*(0 if w is None else w.stride(0) for w in layer.weights)),
        *(None if tensor is None else tensor.data_ptr() for tensor in tensors),
    )
    compiled, _ = library()
    assert compiled is not None
    compiled.nnexp_recurrent(ctypes.byref(problem), ctypes.c_int64(is_backward))
