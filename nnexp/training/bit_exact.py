"""Make rounding independent of memory layout, so that a lane's numbers do not depend on its position in a stack.

Two effects were found by running each operation at every offset of arrays of many sizes. MKL selects its kernels by the
alignment of a matrix unless `MKL_CBWR` is set. And torch computes some functions, sigmoid and gelu among them, with
different rounding for the last few numbers of an array, which do not fill a SIMD vector.
"""

from __future__ import annotations

import math
import os

import torch
from torch.fx import GraphModule, Node

VECTOR_BYTES = 128  # torch processes two SIMD vectors at a time, of at most 64 bytes each
# Pointwise operations on real numbers that round equally with and without SIMD.
EXACT = {
    "abs",
    "add",
    "bitwise_and",
    "ceil",
    "clamp",
    "clamp_min",
    "clone",
    "copy",
    "div",
    "eq",
    "floor",
    "ge",
    "gt",
    "le",
}
EXACT |= {"logical_and", "logical_not", "lt", "masked_fill", "maximum", "minimum", "mul", "ne", "neg", "relu", "rsub"}
EXACT |= {
    "sgn",
    "sign",
    "sqrt",
    "sub",
    "threshold_backward",
    "to",
    "_to_copy",
    "where",
    "zeros_like",
    "ones_like",
    "fill",
}


def use_exact_products() -> None:
    """Make MKL's matrix products independent of alignment; MKL reads the setting at the process's first product."""
    before = os.environ.get("MKL_CBWR")
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
    square = torch.ones(64, 64)
    torch.mm(square, square)
    if before is None:
        del os.environ["MKL_CBWR"]


def row_multiple(traced: GraphModule, num_rows: int) -> int:
    """Return the number that a stack's rows must be a multiple of, so that no inexact array ends within a vector.

    Args:
        traced: graph of a training step in which every array has `num_rows` rows.
        num_rows: rows, one per lane, of the traced step.
    """
    result = 1
    for node in traced.graph.nodes:
        value = node.meta.get("val")
        if _is_inexact(node) and isinstance(value, torch.Tensor) and value.numel() % num_rows == 0:
            in_vectors = VECTOR_BYTES // value.element_size()
            result = math.lcm(result, in_vectors // math.gcd(in_vectors, value.numel() // num_rows))
    return result


def _is_inexact(node: Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.pointwise not in target.tags:
        return False
    values = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
    is_complex = any(isinstance(value, torch.Tensor) and value.is_complex() for value in values)
    return is_complex or target.overloadpacket.__name__ not in EXACT
