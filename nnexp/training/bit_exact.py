"""What keeps a number's last digits apart from where in memory it stands, and so a lane's from its place in a stack.

Found by trying each operation at all places of arrays of all sizes: MKL picks its kernels by the alignment of a matrix
unless told not to, and torch computes some functions, sigmoid and gelu among them, in another way for the last few
numbers of an array, those that fill no vector.
"""

from __future__ import annotations

import math
import os

import torch
from torch.fx import GraphModule, Node

VECTORS = 128  # bytes of the two vectors that torch takes at a time, on the processors with the longest
# Pointwise operations on real numbers that round the same in every vector and in none.
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
    """Have MKL treat matrices alike wherever they lie: it reads this once, at the first product of the process."""
    before = os.environ.get("MKL_CBWR")
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
    square = torch.ones(64, 64)
    torch.mm(square, square)
    if before is None:
        del os.environ["MKL_CBWR"]


def row_multiple(traced: GraphModule, num_rows: int) -> int:
    """The number of rows of a stack must be a multiple of this, so that no array ends within a vector.

    Args:
        traced: of a step in which every array has `num_rows` rows.
    """
    result = 1
    for node in traced.graph.nodes:
        value = node.meta.get("val")
        if _is_inexact(node) and isinstance(value, torch.Tensor) and value.numel() % num_rows == 0:
            at_once = VECTORS // value.element_size()
            result = math.lcm(result, at_once // math.gcd(at_once, value.numel() // num_rows))
    return result


def _is_inexact(node: Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.pointwise not in target.tags:
        return False
    values = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
    is_complex = any(isinstance(value, torch.Tensor) and value.is_complex() for value in values)
    return is_complex or target.overloadpacket.__name__ not in EXACT
