"""LSTM: the loop against torch.nn.LSTM, the effective forget bias, initial weights, and rows of different length."""

import math

import pytest
import torch
from torch import Tensor, nn

from nnexp import DataSpec, plugin
from nnexp.seeding import seeded

LSTM = plugin("model", "lstm")
DATA = DataSpec(kind="sequence", shape=(9, 3), outputs=2)
PER_STEP = DataSpec(kind="sequence", shape=(9, 3), outputs=2, per_step=True)
SIZE = 5
LAYERS = [1, 2, 3]


def _model(data: DataSpec = DATA, seed: int = 0, **values) -> nn.Module:
    with seeded(seed):
        return LSTM(data, **{"hidden_size": SIZE, **values})


def _drawn_anew(model: nn.Module) -> nn.Module:
    """The model with every weight and every bias drawn anew, so that none is zero."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.5 * torch.randn_like(p))
    return model


def _output_and_gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    output = model(x)
    weighted = (output * torch.linspace(-1, 1, output.numel(), dtype=x.dtype).view(output.shape)).mean()
    return [output.detach(), *torch.autograd.grad(weighted, [x, *model.parameters()])]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("data", [DATA, PER_STEP], ids=["last step", "every step"])
@pytest.mark.parametrize("num_layers", LAYERS)
def test_the_loop_is_torchs_lstm_in_outputs_and_gradients(num_layers, data, dtype, tolerance):
    model = _drawn_anew(_model(data, num_layers=num_layers)).to(dtype)
    x = torch.randn(4, 9, 3, dtype=dtype)
    fused = _output_and_gradients(model, x)
    model.fused = False
    for one, other in zip(_output_and_gradients(model, x), fused, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("num_layers", LAYERS)
def test_the_output_is_the_head_on_the_states_of_torchs_lstm(num_layers, fused):
    model = _drawn_anew(_model(PER_STEP, num_layers=num_layers)).double()
    model.fused = fused
    reference = nn.LSTM(3, SIZE, num_layers, batch_first=True).double()
    reference.load_state_dict(model.core.state_dict())
    x = torch.randn(4, 9, 3, dtype=torch.float64)
    expected = reference(x)[0] @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-12)


def _memory_kept(model: nn.Module, steps: int) -> Tensor:
    """(layers, hidden): what is left of c after some steps of input zero, with all matrices zero."""
    lstm, layers = model.double().core, model.core.num_layers
    zero = torch.zeros(layers, 1, SIZE, dtype=torch.float64)
    x = torch.zeros(1, steps, 3, dtype=torch.float64)
    return (lstm(x, (zero, zero + 1))[1][1] - lstm(x, (zero, zero))[1][1]).squeeze(1)


@pytest.mark.parametrize("init", ["torch", "normal"])
@pytest.mark.parametrize("num_layers", LAYERS)
@pytest.mark.parametrize("forget_bias", [0.0, 1.0, 3.0, 5.0, -2.0])
def test_the_forget_gate_starts_at_the_sigmoid_of_the_bias_in_all_layers(forget_bias, num_layers, init):
    model = _model(num_layers=num_layers, forget_bias=forget_bias, init=init, init_scale=0.0)
    gate = 1 / (1 + math.exp(-forget_bias))
    expected = torch.full((num_layers, SIZE), gate, dtype=torch.float64)
    torch.testing.assert_close(_memory_kept(model, 1), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("forget_bias", "kept"), [(0.0, 6.223e-61), (3.0, 6.0222e-05), (5.0, 0.26104)])
def test_over_two_hundred_steps_the_memory_decays_as_the_gates_power(forget_bias, kept):
    model = _model(forget_bias=forget_bias, init_scale=0.0, init="normal")
    left = _memory_kept(model, 200) if kept > 1e-10 else _memory_kept(model, 10).pow(20)
    assert left.tolist() == [[pytest.approx(kept, rel=1e-4)] * SIZE]


def _preactivations(model: nn.Module, layer: int) -> list[Tensor]:
    """The gates (i, f, g, o) of a layer for input and state zero."""
    part = [model.core.get_parameter(f"bias_{side}_l{layer}") for side in ("ih", "hh")]
    return list(sum(part).detach().chunk(4))


@pytest.mark.parametrize("init", ["torch", "normal"])
@pytest.mark.parametrize("num_layers", LAYERS)
def test_the_two_forget_biases_add_up_to_the_bias_once_in_all_layers(num_layers, init):
    model = _model(num_layers=num_layers, forget_bias=3.0, init=init)
    for layer in range(num_layers):
        assert _preactivations(model, layer)[1].tolist() == [3.0] * SIZE


@pytest.mark.parametrize("num_layers", LAYERS)
def test_no_forget_bias_leaves_pytorchs_own_draw_bit_for_bit(num_layers):
    model = _model(num_layers=num_layers, forget_bias=None)
    with seeded(0):
        expected = [*nn.LSTM(3, SIZE, num_layers).parameters(), *nn.Linear(SIZE, 2).parameters()]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected, strict=True))


@pytest.mark.parametrize("num_layers", LAYERS)
def test_the_forget_bias_touches_no_other_number(num_layers):
    plain, biased = (dict(_model(num_layers=num_layers, forget_bias=b).named_parameters()) for b in (None, 3.0))
    for name, p in plain.items():
        keep = torch.ones(len(p), dtype=torch.bool)
        if name.startswith("core.bias"):
            keep[SIZE : 2 * SIZE] = False
        assert torch.equal(p[keep], biased[name][keep]), name


def test_normal_draws_matrices_of_variance_one_over_fan_in_and_leaves_only_the_forget_bias():
    model = _model(hidden_size=64, num_layers=2, init="normal", forget_bias=1.5)
    fan_ins = {"weight_ih_l0": 3, "weight_hh_l0": 64, "weight_ih_l1": 64, "weight_hh_l1": 64}
    for name, fan_in in fan_ins.items():
        std = model.core.get_parameter(name).std().item()
        assert std == pytest.approx(fan_in**-0.5, rel=0.03 if fan_in == 64 else 0.12)
    for layer in range(2):
        assert [gate.unique().tolist() for gate in _preactivations(model, layer)] == [[0.0], [1.5], [0.0], [0.0]]
    assert not model.head.bias.any()


@pytest.mark.parametrize("init", ["torch", "normal"])
def test_the_scale_multiplies_all_matrices_but_the_heads(init):
    plain, scaled = (_model(num_layers=2, init=init, init_scale=s).state_dict() for s in (1.0, 2.0))
    for name in plain:
        factor = 2.0 if name.startswith("core.weight") else 1.0
        assert torch.equal(scaled[name], factor * plain[name]), name


@pytest.mark.parametrize("fused", [True, False])
def test_padding_after_a_rows_length_changes_nothing(fused):
    model = _drawn_anew(_model(num_layers=2)).double()
    model.fused = fused
    x, lengths = torch.randn(4, 9, 3, dtype=torch.float64), torch.tensor([9, 1, 4, 6])
    output = model(x, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(x[row : row + 1, :length])
        torch.testing.assert_close(output[row], alone[0], rtol=0, atol=1e-12)
    assert not torch.allclose(output, model(x))


@pytest.mark.parametrize("fused", [True, False])
def test_a_prediction_per_step_depends_on_no_later_step(fused):
    model = _model(PER_STEP)
    model.fused = fused
    x = torch.randn(4, 9, 3)
    changed = x.clone()
    changed[:, 5:] += 1
    assert model(x).shape == (4, 9, 2)
    assert torch.equal(model(x)[:, :5], model(changed)[:, :5])
    assert (model(x)[:, 5:] != model(changed)[:, 5:]).all()


@pytest.mark.parametrize(("hidden_size", "num_layers", "num_weights"), [(32, 1, 4802), (5, 2, 452)])
def test_the_number_of_weights_is_that_of_torchs_lstm_and_the_head(hidden_size, num_layers, num_weights):
    model = _model(hidden_size=hidden_size, num_layers=num_layers)
    assert sum(p.numel() for p in model.parameters()) == num_weights
