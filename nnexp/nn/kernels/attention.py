"""Attention as a custom torch operation with its own rules for vmap and gradients; tracing records it as one node.

It exists in C++ only (attention.cpp); where `is_compiled` is False, a model uses ordinary torch operations instead.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.library import define, impl, register_autograd, register_fake, register_vmap

from nnexp.nn.kernels.build import library
from nnexp.nn.kernels.op import is_compiled, never, with_lanes

NAME, BACK = "nnexp::attention", "nnexp::attention_backward"
_ARGUMENTS = "Tensor qkv, Tensor? lengths, int num_heads, bool causal"
INTEGERS = ("lanes", "rows", "positions", "size", "heads", "is_double", "is_causal")
POINTERS = ("lengths", "qkv", "grad", "mixed", "dqkv")


class Problem(ctypes.Structure):
    """Arguments of the C++ function, the struct of the same name in attention.cpp."""

    _fields_ = [(name, ctypes.c_int64) for name in INTEGERS] + [(name, ctypes.c_void_p) for name in POINTERS]


def attention(qkv: Tensor, lengths: Tensor | None, num_heads: int, causal: bool) -> Tensor:
    """Return multi-head scaled dot-product attention (B, N, E), with K lanes (K, B, N, E).

    `torch.func.vmap` calls it once with all lanes. Half precision is computed in single precision.

        if is_compiled(x.device):
            mixed = attention(self.qkv(x), lengths, num_heads=4, causal=True)

    Args:
        qkv: (B, N, 3E) or (K, B, N, 3E), queries, keys and values of each position, each of them by head.
        lengths: (B,) or (K, B) integers of at least 1; keys from there on are padding. None: no padding.
        num_heads: a divisor of E.
        causal: whether a query reads only keys up to its own position.

    Raises:
        ValueError: shapes or types do not fit together.
        RuntimeError: there are no compiled kernels on this device.
    """
    if qkv.dtype not in (torch.float32, torch.float64):
        return attention(qkv.float(), lengths, num_heads, causal).to(qkv.dtype)
    mixed: Tensor = torch.ops.nnexp.attention(qkv, lengths, num_heads, causal)
    return mixed


def _check(qkv: Tensor, lengths: Tensor | None, num_heads: int) -> None:
    """Raise ValueError unless shapes and types fit: C++ reads memory unchecked."""
    if qkv.dim() not in (3, 4) or num_heads < 1 or qkv.shape[-1] % (3 * num_heads):
        raise ValueError(f"queries, keys and values of {num_heads} heads cannot be of shape {tuple(qkv.shape)}")
    if lengths is not None and (lengths.shape, lengths.dtype) != (qkv.shape[:-2], torch.int64):
        raise ValueError(f"lengths must be {tuple(qkv.shape[:-2])} of int64")


def _call(
    qkv: Tensor, lengths: Tensor | None, num_heads: int, causal: bool, grad: Tensor | None, result: Tensor
) -> Tensor:
    _check(qkv, lengths, num_heads)
    compiled, reason = library()
    if compiled is None or not is_compiled(qkv.device):
        raise RuntimeError(f"attention has no compiled kernel here: {reason or qkv.device}")
    tensors = [None if t is None else t.contiguous() for t in (lengths, qkv, grad)]
    tensors += [result, None] if grad is None else [None, result]
    *lanes, rows, positions, size = qkv.shape
    sizes = (*(lanes or [1]), rows, positions, size // 3, num_heads)
    pointers = (None if t is None else t.data_ptr() for t in tensors)
    problem = Problem(*sizes, qkv.dtype == torch.float64, causal, *pointers)
    compiled.nnexp_attention(ctypes.byref(problem), ctypes.c_int64(grad is not None))
    return result


def _new(qkv: Tensor) -> Tensor:
    return qkv.new_empty(*qkv.shape[:-1], qkv.shape[-1] // 3)


def _forward(qkv: Tensor, lengths: Tensor | None, num_heads: int, causal: bool) -> Tensor:
    return _call(qkv, lengths, num_heads, causal, None, _new(qkv))


def _backward(grad: Tensor, qkv: Tensor, lengths: Tensor | None, num_heads: int, causal: bool) -> Tensor:
    return _call(qkv, lengths, num_heads, causal, grad, qkv.new_empty(qkv.shape))


def _fake(qkv: Tensor, lengths: Tensor | None, num_heads: int, causal: bool) -> Tensor:
    _check(qkv, lengths, num_heads)
    return _new(qkv)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.options = inputs[2:]


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return torch.ops.nnexp.attention_backward(grad, *ctx.saved_tensors, *ctx.options), None, None, None


def _lanes(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
    return torch.ops.nnexp.attention(*with_lanes(info.batch_size, in_dims, arguments)), 0


define(NAME, f"({_ARGUMENTS}) -> Tensor")
define(BACK, f"(Tensor grad, {_ARGUMENTS}) -> Tensor")
impl(NAME, "CompositeExplicitAutograd", _forward)
impl(BACK, "CompositeExplicitAutograd", _backward)
register_fake(NAME, _fake)
register_fake(BACK, lambda grad, qkv, *_: qkv.new_empty(qkv.shape))
register_autograd(NAME, _gradient, setup_context=_save)
register_autograd(BACK, never)
register_vmap(NAME, _lanes)
