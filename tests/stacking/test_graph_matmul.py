"""Products made transposed: which, and that they give the same."""

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from nnexp.stacking.graph_codegen import function_of
from nnexp.stacking.graph_matmul import turn_products
from nnexp.stacking.graph_simplify import simplify


def _turned(function, *inputs: Tensor) -> tuple[list[tuple[int, ...]], bool]:
    """The shapes of the products that are left, and whether the results are what they were."""
    graph = make_fx(function)(*inputs)
    simplify(graph)
    turn_products(graph)
    shapes = [tuple(node.meta["val"].shape) for node in graph.graph.nodes if "bmm" in str(node.target)]
    given, wanted = function_of(graph)(*inputs), function(*inputs)
    for one, other in zip(given, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    return shapes, all(one.is_contiguous() for one in given)


@pytest.mark.parametrize("is_strided", [False, True])
def test_a_product_with_short_rows_that_is_read_transposed_is_made_transposed(is_strided):
    a, b = torch.randn(3, 7, 5).double(), torch.randn(3, 5, 2).double()
    if is_strided:
        a, b = torch.randn(3, 5, 7).double().mT, torch.randn(3, 2, 5).double().mT
    shapes, is_contiguous = _turned(lambda a, b: ((a @ b).mT, (a @ b).transpose(1, 2)), a, b)
    assert shapes == [(3, 2, 7)]
    assert is_contiguous


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda a, b: ((a @ b).mT, (a @ b).exp()), (3, 7, 2)),  # read as it is, too
        (lambda a, b: ((a @ b).mT + 1,), (3, 7, 2)),  # read further, maybe by what minds the order in memory
        (lambda a, b: (a @ b,), (3, 7, 2)),
        (lambda a, b: ((b.mT @ a.mT).mT,), (3, 2, 7)),  # its rows are long
    ],
)
def test_other_products_stay(function, shape):
    shapes, _ = _turned(function, torch.randn(3, 7, 5).double(), torch.randn(3, 5, 2).double())
    assert set(shapes) == {shape}
