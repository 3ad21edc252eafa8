"""What the kernels bend numbers with, read off a layer of one unit that has no other numbers in it."""

import pytest
import torch
from torch import Tensor

from nnexp.nn.kernels.op import recurrent

both_precisions = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["32 bits", "64 bits"])


def _points(dtype: torch.dtype) -> Tensor:
    """Positive and negative, tiny, huge, and dense where the functions bend."""
    powers = torch.logspace(-30, 4, 4001, dtype=torch.float64)
    dense = torch.linspace(1e-3, 100, 40001, dtype=torch.float64)
    return torch.cat([powers, dense, -powers, -dense]).to(dtype)


def _tanh(x: Tensor) -> Tensor:
    one, none = x.new_ones(1, 1), x.new_zeros(1, 1)
    return recurrent(x.view(-1, 1, 1), one, none, None, None, None, "RNN_TANH", False, False).flatten()


def _sigmoid(x: Tensor) -> Tensor:
    """GRU's update gate: with a candidate of 1, a state of 0 becomes 1 - z = sigmoid(-(W_z x))."""
    w_ih = torch.tensor([[0.0, 0.0], [-1.0, 0.0], [0.0, 1e3]], dtype=x.dtype)
    given = torch.stack([x, torch.ones_like(x)], dim=-1).unsqueeze(1)
    return 1 - recurrent(given, w_ih, x.new_zeros(3, 1), None, None, None, "GRU", False, False).flatten()


@both_precisions
def test_tanh_is_exact_to_a_few_units_of_the_last_place_however_small(kernel, dtype):
    x = _points(dtype)
    exact = x.double().tanh()
    error = (_tanh(x).double() - exact).abs() / exact.abs()
    assert error.max() < 4 * torch.finfo(dtype).eps


@both_precisions
def test_sigmoid_is_exact_to_the_last_places_of_one(kernel, dtype):
    x = _points(dtype)
    assert (_sigmoid(x).double() - (-x.double()).sigmoid()).abs().max() < 4 * torch.finfo(dtype).eps


@both_precisions
@pytest.mark.parametrize("size", [1e4, 1e30])
def test_huge_sums_give_exactly_the_limits(kernel, dtype, size):
    x = torch.tensor([size, -size], dtype=dtype)
    assert _tanh(x).tolist() == [1, -1]
    assert _sigmoid(x).tolist() == [0, 1]


@pytest.mark.parametrize(("mode", "gates"), [("RNN_TANH", 1), ("RNN_RELU", 1), ("LSTM", 4), ("GRU", 3)])
def test_huge_inputs_have_finite_states_and_gradients(kernel, mode, gates):
    x = torch.tensor([1e4, -1e4, 1e4, 1e4]).view(1, 4, 1).requires_grad_()
    w_ih, w_hh = torch.ones(gates, 1, requires_grad=True), torch.zeros(gates, 1, requires_grad=True)
    states = recurrent(x, w_ih, w_hh, None, None, None, mode, False, True)
    grads = torch.autograd.grad(states.sum(), [x, w_ih, w_hh])
    assert all(t.isfinite().all() for t in (states, *grads))
