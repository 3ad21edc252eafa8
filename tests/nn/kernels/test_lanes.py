"""A lane's numbers are its own, to the bit: whatever the others are, however many, and wherever memory lies."""

import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx

from kernels.layers import MODES, Weights, drawn, lane_of, ours, tracked, with_gradients
from nnexp.nn.kernels.op import recurrent

every_mode = pytest.mark.parametrize("mode", MODES)
both_precisions = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["32 bits", "64 bits"])
every_size = pytest.mark.parametrize("sizes", [(5, 4, 3, 7), (32, 6, 2, 32), (33, 3, 1, 3)], ids=str)  # B, T, C, H


def _pick(tensors: Weights, lanes: list[int]) -> Weights:
    return [None if t is None else t[lanes] for t in tensors]


def _equal(one: list[Tensor], other: list[Tensor]) -> bool:
    """Bit for bit, a NaN being equal to itself."""
    return all(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in zip(one, other, strict=True))


@both_precisions
@every_size
@every_mode
def test_numbers_depend_on_no_other_lane_and_not_on_the_place_in_the_stack(kernel, mode, sizes, dtype):
    x, weights = drawn(mode, 64, *sizes, dtype=dtype)
    grad = torch.randn_like(recurrent(x, *weights, None, mode, False, True))
    whole = ours(x, weights, grad, mode, False, True)
    for lanes in ([0, 1], [63, 0], [7, 50, 8], [9, 3, 11, 62, 1], list(range(63, -1, -1))):
        part = ours(x[lanes], _pick(weights, lanes), grad[lanes], mode, False, True)
        assert _equal(part, [t[lanes] for t in whole]), lanes


def _moved(t: Tensor, by: int) -> Tensor:
    """The same numbers, `by` numbers further in memory."""
    return torch.cat([t.new_zeros(by), t.flatten()])[by:].view(t.shape)


@both_precisions
@every_mode
def test_numbers_do_not_depend_on_where_memory_is_aligned(kernel, mode, dtype):
    x, weights = drawn(mode, 3, 32, 4, 2, 7, dtype=dtype)
    grad = torch.randn_like(recurrent(x, *weights, None, mode, True, True))
    first = ours(x, weights, grad, mode, True, True)
    for by in (1, 3, 8):
        x_moved, grad_moved = _moved(x, by), _moved(grad, by + 1)
        inputs = x_moved.requires_grad_(), [_moved(w, by).requires_grad_() for w in weights]
        states = recurrent(inputs[0], *inputs[1], None, mode, True, True)
        assert _equal(with_gradients(states, grad_moved, inputs[0], *inputs[1]), first), by


@every_mode
def test_numbers_do_not_depend_on_the_gap_between_lanes(kernel, mode):
    x, weights = drawn(mode, 3, 32, 4, 2, 7)
    grad = torch.randn_like(recurrent(x, *weights, None, mode, False, True))
    first = ours(x, weights, grad, mode, False, True)
    sizes = [w[0].numel() for w in weights]
    rows = torch.cat([w.flatten(1) for w in weights] + [torch.zeros(3, 5)], dim=1)
    views = [part.view(w.shape) for part, w in zip(rows[:, :-5].split(sizes, dim=1), weights, strict=True)]
    assert not views[0].is_contiguous()
    states = recurrent(x.requires_grad_(), *(view.requires_grad_() for view in views), None, mode, False, True)
    assert _equal(with_gradients(states, grad, x, *views), first)
    shared = [w[:1].expand_as(w) for w in weights]
    of_one = recurrent(x[:1].expand_as(x), *shared, None, mode, False, True)
    assert _equal([of_one[k] for k in range(3)], [first[0][0]] * 3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@every_mode
def test_a_lane_that_is_not_finite_leaves_the_others_as_they_are(kernel, mode, bad):
    x, weights = drawn(mode, 5, 33, 4, 2, 7)
    grad = torch.randn_like(recurrent(x, *weights, None, mode, False, True))
    whole, others = ours(x, weights, grad, mode, False, True), [0, 1, 3, 4]
    for tensors in ([x], weights):
        spoilt = [t.clone() for t in (x, *weights)]
        spoilt[0 if tensors[0] is x else 2][2] = bad
        bent = ours(spoilt[0], spoilt[1:], grad, mode, False, True)
        assert _equal([t[others] for t in bent], [t[others] for t in whole])
        assert not all(t[2].isfinite().all() for t in bent)


@every_mode
def test_a_row_that_is_not_finite_leaves_the_states_of_others_as_they_are(kernel, mode):
    x, weights = drawn(mode, 2, 34, 4, 2, 7)
    whole = recurrent(x, *weights, None, mode, False, True)
    x[0, 3] = float("nan")
    bent = recurrent(x, *weights, None, mode, False, True)
    others = [row for row in range(34) if row != 3]
    assert _equal([bent[0, others], bent[1]], [whole[0, others], whole[1]])
    assert bent[0, 3].isnan().all()


@every_mode
def test_under_vmap_it_is_the_operation_on_all_lanes(kernel, mode):
    x, weights = drawn(mode, 3, 5, 4, 2, 7)
    grad = torch.randn_like(recurrent(x, *weights, None, mode, False, True))

    def one(x: Tensor, *weights: Tensor) -> Tensor:
        return recurrent(x, *weights, None, mode, False, True)

    inputs = tracked(x, weights)
    assert _equal(
        with_gradients(vmap(one)(inputs[0], *inputs[1]), grad, inputs[0], *inputs[1]),
        ours(x, weights, grad, mode, False, True),
    )
    last = vmap(one, in_dims=(None, *[1] * 4))(x[0], *(w.movedim(0, 1) for w in weights))
    assert torch.equal(last, recurrent(x[:1].expand(3, -1, -1, -1), *weights, None, mode, False, True))


@every_mode
def test_one_lane_alone_is_close_to_the_same_in_a_stack(kernel, mode):
    x, weights = drawn(mode, 3, 5, 4, 2, 7)
    grad = torch.randn_like(recurrent(x, *weights, None, mode, False, True))
    whole = ours(x, weights, grad, mode, False, True)
    for k in range(3):
        alone = ours(x[k], lane_of(weights, k), grad[k], mode, False, True)
        for one, many in zip(alone, whole, strict=True):
            torch.testing.assert_close(one, many[k], rtol=1e-12, atol=1e-12)


@every_mode
def test_traced_it_is_one_node_forward_and_one_backward(kernel, mode):
    x, weights = drawn(mode, 3, 5, 4, 2, 7)
    lengths = torch.tensor([1, 4, 2, 3, 4]).repeat(3, 1)

    def gradient(x: Tensor, lengths: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        weights = tuple(w.detach().requires_grad_() for w in weights)
        states = vmap(lambda x, n, *w: recurrent(x, *w, n, mode, False, False))(x, lengths, *weights)
        return torch.autograd.grad(states.square().sum(), weights)

    graph = make_fx(gradient)(x, lengths, *weights)
    names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert [name for name in names if "nnexp" in name] == [
        "nnexp.recurrent.default",
        "nnexp.recurrent_backward.default",
    ]
    assert not [name for name in names if "mm" in name or "tanh" in name]
    other_x, other = drawn(mode, 3, 5, 4, 2, 7)
    assert _equal(list(graph(other_x, lengths, *other)), list(gradient(other_x, lengths, *other)))


@every_mode
def test_autocast_does_not_reach_into_it(kernel, mode):
    x, weights = drawn(mode, 2, 5, 4, 2, 7, dtype=torch.float32)
    grad = torch.randn_like(recurrent(x, *weights, None, mode, False, True))
    plain = ours(x, weights, grad, mode, False, True)
    with torch.autocast("cpu", torch.bfloat16):
        assert _equal(ours(x, weights, grad, mode, False, True), plain)
