"""What rounds differently by its place in memory is found."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from nnexp.training.bit_exact import EXACT, VECTOR_BYTES, row_multiple


@pytest.mark.parametrize(
    ("function", "shape", "multiple"),
    [
        (lambda x: x.sigmoid(), (3, 32), 1),
        (lambda x: x.sigmoid(), (3, 8), 4),
        (lambda x: x.sigmoid(), (3, 5, 7), 32),
        (lambda x: x.sigmoid().double().sigmoid(), (3, 4), 8),
        (lambda x: (x + x) * x.relu(), (3, 5, 7), 1),
        (lambda x: torch.view_as_real(torch.complex(x, x) * 2), (3, 8), 2),  # 8 bytes a number
        (lambda x: torch.complex(x, x).abs(), (3, 8), 4),
        (lambda x: torch.bmm(x, x.transpose(1, 2)).sum(1), (3, 5, 7), 1),
    ],
)
def test_rows_must_fill_vectors_where_an_operation_is_not_exact(function, shape, multiple) -> None:
    assert row_multiple(make_fx(function)(torch.zeros(shape)), 3) == multiple


def test_exact_operations_round_the_same_at_every_place() -> None:
    torch.manual_seed(0)
    x = torch.randn(1000)
    for name in sorted(EXACT & {"add", "sub", "mul", "div", "sqrt", "abs", "neg", "relu", "maximum", "minimum"}):
        function = getattr(torch, name)
        arguments = [x.abs()] if name in ("sqrt", "abs", "neg", "relu") else [x, x.flip(0)]
        whole = function(*arguments)
        for start in range(1, VECTOR_BYTES):
            assert torch.equal(function(*(a[start : start + 7] for a in arguments)), whole[start : start + 7])


def test_products_do_not_depend_on_where_a_matrix_lies() -> None:
    torch.manual_seed(0)
    one, other = torch.randn(7, 33), torch.randn(33, 7)
    found = []
    for place in range(9):
        many, others = torch.randn(9, 7, 33), torch.randn(9, 33, 7)
        many[place], others[place] = one, other
        found.append(torch.bmm(many, others)[place])
    assert all(torch.equal(each, found[0]) for each in found)
