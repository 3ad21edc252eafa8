"""Norms of gradients that neither underflow nor overflow when squared.

A tensor is multiplied by a power of two before it is squared, and its norm divided by it. Both are exact: the norm has
the bits of the plain one wherever that is right.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LOW, HIGH = 1e-15, 1e18  # between these a plain norm is right: the squares that are lost are too small to count


def is_out_of_range(norms: Tensor) -> Tensor:
    """Return where plain norms may have lost squares to underflow or overflow; never where they are not a number."""
    return (norms < LOW) | (norms > HIGH)


def _exponents(largest: Tensor) -> Tensor:
    """Return the powers of two above the largest magnitudes, for which a power and its inverse are normal numbers."""
    limit = 126 if largest.dtype == torch.float32 else 1022
    return torch.frexp(largest).exponent.clamp(-limit, limit)


def scaled_norm(t: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Return the Euclidean norm along an axis, as `torch.linalg.vector_norm` does.

    >>> scaled_norm(torch.tensor([3e-33, 4e-33]))
    tensor(5.0000e-33)
    """
    exponents = _exponents(t.abs().amax(dim, keepdim=True))
    norms = torch.linalg.vector_norm(torch.ldexp(t, -exponents), dim=dim, keepdim=True)
    norms = torch.ldexp(norms, exponents)
    return norms if keepdim else norms.squeeze(dim)


def layer_norms(norms: Tensor, layers: Tensor, num_layers: int) -> Tensor:
    """Return the norm of each layer's tensors together.

    Args:
        norms: (M, ...), the norm of each tensor.
        layers: (M,), the layer of each.
        num_layers: L.

    Returns:
        (L, ...).
    """
    exponents = _exponents(norms)
    shape = (num_layers, *norms.shape[1:])
    index = layers.view(-1, *[1] * (norms.ndim - 1)).expand_as(norms)
    of_layer = exponents.new_full(shape, -2000).scatter_reduce(0, index, exponents, "amax")
    squares = torch.ldexp(norms, -of_layer[layers]).square()
    return torch.ldexp(squares.new_zeros(shape).index_add(0, layers, squares).sqrt(), of_layer)


def tensor_norms(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of each of M tensors, (M,)."""
    every = list(tensors)
    exponents = _exponents(torch.stack(torch._foreach_norm(every, torch.inf)))
    powers = torch.ldexp(torch.ones_like(exponents, dtype=every[0].dtype), -exponents)
    scaled = torch._foreach_mul(every, powers.unbind())
    return torch.ldexp(torch.stack(torch._foreach_norm(scaled)), exponents)
