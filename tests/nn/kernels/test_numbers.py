"""The kernels against torch's own layers: states and all gradients, for sizes that fill vectors and that do not."""

import pytest
import torch
from contract.combinations import covering
from torch import Tensor

from kernels.layers import MODES, drawn, expected, lane_of, ours
from nnexp.nn.kernels.op import is_compiled, recurrent, without_compiled_kernels

SIZES = [  # K, B, T, C, H
    (2, 32, 16, 2, 32),
    (1, 1, 1, 1, 1),
    (2, 5, 2, 61, 3),
    (1, 32, 2, 1, 33),
    (3, 33, 3, 2, 7),
    (2, 5, 16, 2, 16),
    (1, 2, 40, 3, 5),
    (2, 1, 16, 7, 64),
]
every_mode = pytest.mark.parametrize("mode", MODES)
every_way = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
whole_or_last = pytest.mark.parametrize("whole", [True, False], ids=["whole", "last"])
PRECISIONS = {"64 bits": (torch.float64, 1e-12, 1e-12), "32 bits": (torch.float32, 1e-5, 1e-6)}
# The C++ has a way of its own for some of these three at once: any three values are together in one of the tests.
LAYERS = covering(MODES, SIZES, (False, True), (True, False), tuple(PRECISIONS), (True, False), strength=3)


def _same(given: list[Tensor], wanted: list[Tensor], rtol: float, atol: float) -> None:
    """A sum of many terms is as exact as its largest are."""
    for one, other in zip(given, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol * max(1.0, other.abs().max().item()))


@pytest.mark.parametrize(("mode", "sizes", "reverse", "whole", "precision", "bias"), LAYERS, ids=str)
def test_states_and_gradients_are_torchs(kernel, mode, sizes, reverse, whole, precision, bias):
    dtype, rtol, atol = PRECISIONS[precision]
    x, weights = drawn(mode, *sizes, bias=bias, dtype=dtype)
    states = recurrent(x, *weights, None, mode, reverse, whole)
    grad = torch.randn_like(states)
    together = ours(x, weights, grad, mode, reverse, whole)
    for k in range(len(x)):
        wanted = expected(x[k], lane_of(weights, k), grad[k], mode, reverse, whole)
        _same([t[k] for t in together], wanted, rtol, atol)


@whole_or_last
@every_way
@every_mode
def test_a_state_stays_where_the_input_is_padding(kernel, mode, reverse, whole):
    x, weights = drawn(mode, 2, 34, 6, 2, 5)
    lengths = torch.arange(68).remainder(6).add(1).view(2, 34)
    grad = torch.randn_like(recurrent(x, *weights, lengths, mode, reverse, whole))
    together = ours(x, weights, grad, mode, reverse, whole, lengths=lengths)
    for k in range(2):
        wanted = expected(x[k], lane_of(weights, k), grad[k], mode, reverse, whole, lengths=lengths[k])
        _same([t[k] for t in together], wanted, 1e-12, 1e-12)


@pytest.mark.slow
@every_way
@pytest.mark.parametrize("bias", [True, False], ids=["biases", "no biases"])
@every_mode
def test_gradients_are_those_of_finite_differences(kernel, mode, bias, reverse):
    x, weights = drawn(mode, 2, 3, 4, 2, 3, bias=bias)
    lengths = torch.tensor([[4, 1, 2], [3, 4, 4]])
    given = [t.requires_grad_() for t in (x, *weights) if t is not None]

    def states(x: Tensor, *weights: Tensor) -> Tensor:
        return recurrent(x, *weights, *[None] * (4 - len(weights)), lengths, mode, reverse, True)

    assert torch.autograd.gradcheck(states, given)


@every_mode
def test_only_the_gradients_that_are_asked_for_are_given(kernel, mode):
    x, weights = drawn(mode, 2, 3, 4, 2, 3)
    weights[1].requires_grad_()
    recurrent(x, *weights, None, mode, False, True).sum().backward()
    assert weights[1].grad.any()
    assert [t.grad for t in (x, weights[0], *weights[2:])] == [None] * 4


def test_a_second_derivative_is_refused(kernel):
    x, weights = drawn("LSTM", 1, 2, 3, 2, 2)
    x.requires_grad_()
    (grad,) = torch.autograd.grad(recurrent(x, *weights, None, "LSTM", False, True).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="second"):
        grad.sum().backward()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x, w, n: (x, [w[0][:, :5], *w[1:]], n), "a weight has shape"),
        (lambda x, w, n: (x[:1], w, n), "a weight has shape"),
        (lambda x, w, n: (x, [*w[:3], w[3][:, 1:]], n), "a weight has shape"),
        (lambda x, w, n: (x.float(), w, n), "float32"),
        (lambda x, w, n: (x, w, n[:, 1:]), "lengths must be"),
        (lambda x, w, n: (x, w, n.int()), "lengths must be"),
    ],
)
def test_what_does_not_fit_is_refused(kernel, change, reason):
    x, weights = drawn("LSTM", 2, 3, 4, 2, 3)
    x, weights, lengths = change(x, weights, torch.full((2, 3), 4))
    with pytest.raises(ValueError, match=reason):
        recurrent(x, *weights, lengths, "LSTM", False, True)


@pytest.mark.skipif(not is_compiled(torch.device("cpu")), reason="there is one kernel on this machine")
def test_a_backward_pass_of_the_other_kernel_is_refused():
    x, weights = drawn("LSTM", 2, 3, 4, 2, 3)
    states = recurrent(x.requires_grad_(), *weights, None, "LSTM", False, True)
    with without_compiled_kernels(), pytest.raises(RuntimeError, match="another kernel"):
        states.sum().backward()
