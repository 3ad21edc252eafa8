"""Attention in C++ against that of torch: values and gradients, and a lane's numbers as its own."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional as F

from nnexp.nn.kernels import attention, unavailable_reason
from nnexp.nn.kernels.op import is_compiled, without_compiled_kernels

pytestmark = pytest.mark.skipif(not is_compiled(torch.device("cpu")), reason=unavailable_reason())
SIZES = [  # K, B, N, E, heads
    (2, 32, 9, 32, 4),
    (1, 1, 1, 1, 1),
    (3, 5, 7, 12, 3),
    (2, 33, 16, 18, 2),
    (1, 70, 4, 35, 5),
]
every_size = pytest.mark.parametrize("sizes", SIZES, ids=str)
causal_or_not = pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
padded_or_not = pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
both_precisions = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=["64 bits", "32 bits"]
)


def _drawn(sizes: tuple[int, ...], padded: bool, dtype: torch.dtype) -> tuple[Tensor, Any, Tensor]:
    """Queries, keys and values, lengths, and the gradient of the result."""
    *lanes, positions, size, _ = sizes
    lengths = torch.randint(1, positions + 1, lanes) if padded else None
    qkv, grad = (torch.randn(*lanes, positions, n, dtype=torch.float64).to(dtype) for n in (3 * size, size))
    return qkv, lengths, grad


def _ours(qkv: Tensor, lengths: Tensor | None, grad: Tensor, heads: int, causal: bool) -> list[Tensor]:
    qkv = qkv.detach().requires_grad_()
    mixed = attention(qkv, lengths, heads, causal)
    return [mixed.detach(), *torch.autograd.grad(mixed, qkv, grad)]


def _torchs(qkv: Tensor, lengths: Tensor | None, grad: Tensor, heads: int, causal: bool) -> list[Tensor]:
    qkv = qkv.detach().requires_grad_()
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).movedim((-3, -2), (0, -3)).unbind()
    size = qkv.shape[-2]
    allowed = torch.ones(size, size, dtype=torch.bool).tril() if causal else torch.ones(size, size, dtype=torch.bool)
    if lengths is not None:
        allowed = allowed & (torch.arange(size) < lengths[..., None, None, None])
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed).transpose(-2, -3).flatten(-2)
    return [mixed.detach(), *torch.autograd.grad(mixed, qkv, grad)]


def _equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in zip(one, other, strict=True))


@both_precisions
@padded_or_not
@causal_or_not
@every_size
def test_values_and_gradients_are_torchs(sizes, causal, padded, dtype, tolerance):
    given = _drawn(sizes, padded, dtype)
    for one, other in zip(_ours(*given, sizes[-1], causal), _torchs(*given, sizes[-1], causal), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@both_precisions
@causal_or_not
@every_size
def test_numbers_depend_on_no_other_lane_and_on_no_place_in_memory(sizes, causal, dtype, tolerance):
    lanes = torch.tensor([4, 0, 2])
    qkv, lengths, grad = _drawn((5, *sizes[1:]), True, dtype)
    whole = _ours(qkv, lengths, grad, sizes[-1], causal)
    wanted = [t[lanes] for t in whole]
    assert _equal(_ours(qkv[lanes], lengths[lanes], grad[lanes], sizes[-1], causal), wanted)
    for by in (1, 3, 8):
        moved = torch.cat([qkv.new_zeros(by), qkv.flatten()])[by:].view(qkv.shape)
        assert _equal(_ours(moved, lengths, grad, sizes[-1], causal), whole)
    qkv[1], grad[3] = torch.nan, torch.inf
    assert _equal([t[lanes] for t in _ours(qkv, lengths, grad, sizes[-1], causal)], wanted)


def test_a_lane_alone_and_under_vmap_gives_what_it_gives_in_a_stack():
    qkv, lengths, grad = _drawn((3, 5, 6, 8, 2), True, torch.float32)
    whole = _ours(qkv, lengths, grad, 2, True)
    for k in range(3):
        assert _equal(_ours(qkv[k], lengths[k], grad[k], 2, True), [t[k] for t in whole])
    assert torch.equal(vmap(lambda x, n: attention(x, n, 2, True))(qkv, lengths), whole[0])
    shared = vmap(lambda x, n: attention(x, n, 2, True), in_dims=(None, 0))(qkv[0], lengths)
    assert torch.equal(shared, attention(qkv[:1].expand(3, -1, -1, -1), lengths, 2, True))


@pytest.mark.parametrize("factor", [1e3, 1e18])
def test_huge_scores_give_finite_weights(factor):
    qkv, _, grad = _drawn((1, 4, 5, 8, 2), False, torch.float64)
    qkv[..., :8] *= factor
    mixed, _ = _ours(qkv, None, grad, 2, False)
    torch.testing.assert_close(mixed, _torchs(qkv, None, grad, 2, False)[0])


def test_scores_that_are_not_finite_are_seen():
    qkv, _, grad = _drawn((1, 4, 5, 8, 2), False, torch.float32)
    qkv[0, 2, 3, 0] = torch.nan
    mixed, gradient = _ours(qkv, None, grad, 2, False)
    assert mixed[0, 2, 3, :4].isnan().all()
    assert gradient[0, 2].isnan().any()
    assert mixed[0, [0, 1, 3]].isfinite().all()


def test_half_precision_is_computed_in_single():
    qkv = torch.randn(2, 3, 4, 12)
    half = attention(qkv.bfloat16(), None, 2, False)
    assert half.dtype == torch.bfloat16
    assert torch.equal(half, attention(qkv.bfloat16().float(), None, 2, False).bfloat16())


def test_gradients_are_those_of_finite_differences_and_there_is_no_second_derivative():
    qkv = torch.randn(2, 3, 4, 12, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([[4, 1, 2], [3, 4, 4]])
    assert torch.autograd.gradcheck(lambda x: attention(x, lengths, 2, True), qkv)
    (grad,) = torch.autograd.grad(attention(qkv, lengths, 2, True).sum(), qkv, create_graph=True)
    with pytest.raises(NotImplementedError, match="second"):
        grad.sum().backward()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda qkv, n: (qkv, n, 5), "5 heads"),
        (lambda qkv, n: (qkv, n, 0), "0 heads"),
        (lambda qkv, n: (qkv[0, 0], None, 2), "2 heads"),
        (lambda qkv, n: (qkv, n[:, 1:], 2), "lengths must be"),
        (lambda qkv, n: (qkv, n.int(), 2), "lengths must be"),
    ],
)
def test_what_does_not_fit_is_refused(change, reason):
    qkv, lengths, heads = change(torch.randn(2, 3, 4, 12), torch.full((2, 3), 4))
    with pytest.raises(ValueError, match=reason):
        attention(qkv, lengths, heads, False)


def test_where_nothing_is_compiled_there_is_no_such_operation():
    qkv = torch.randn(2, 3, 4, 12)
    with without_compiled_kernels(), pytest.raises(RuntimeError, match="no compiled kernel"):
        attention(qkv, None, 2, False)
