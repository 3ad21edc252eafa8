"""The recurrent layer in C++: Python side of recurrent.cpp."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from nnexp.nn.kernels.build import library
from nnexp.nn.kernels.layer import GATES, Gradients, Layer

ROW_BYTES = 128  # size of one number for all rows of a block
INTEGERS = ("lanes", "rows", "positions", "channels", "units", "mode", "is_double", "is_reverse", "is_whole")
POINTERS = (
    *("lengths", "x", "w_ih", "w_hh", "b_ih", "b_hh", "states", "kept"),
    *("grad", "dx", "dw_ih", "dw_hh", "db_ih", "db_hh"),
)


class Problem(ctypes.Structure):
    """Arguments of the C++ function, the struct of the same name in recurrent.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in INTEGERS),
        ("gaps", ctypes.c_int64 * 4),
        *((name, ctypes.c_void_p) for name in POINTERS),
    ]


def kept_size(layer: Layer) -> int:
    """Return the size of `kept`, the numbers that the forward pass saves for the backward pass."""
    lanes, rows, positions, _, units = layer.sizes
    block = ROW_BYTES // layer.x.element_size()
    return lanes * -(-rows // block) * block * positions * units * (1 if layer.mode.startswith("RNN") else 4)


def forward(layer: Layer, kept: Tensor) -> Tensor:
    """Return the states (K, B, T, H), or the last states (K, B, H) unless `layer.whole`, and fill `kept`."""
    states = layer.new_states()
    _call(layer, False, [states, kept])
    return states


def backward(layer: Layer, kept: Tensor, grad: Tensor, needs_x: bool) -> Gradients:
    """Return the gradients of x (None unless `needs_x`), w_ih, w_hh, b_ih and b_hh.

    Args:
        layer: the layer.
        kept: as the forward pass filled it.
        grad: gradient of the states, of their shape.
        needs_x: whether to compute the gradient of x.
    """
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
