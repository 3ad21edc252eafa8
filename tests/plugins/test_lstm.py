"""LSTM: the effective forget bias, once in all layers and directions, and initial weights."""

import math
from typing import Any

import pytest
import torch
from contract.registry import plugin
from torch import Tensor, nn

from nnexp import DataSpec
from nnexp.data.seeding import seeded

LSTM = plugin("model", "lstm")
DATA = DataSpec(kind="sequence", shape=(9, 3), outputs=2)
SIZE = 5

every_init = pytest.mark.parametrize("init", ["torch", "normal"])
every_depth = pytest.mark.parametrize("num_layers", [1, 2, 3])
both_ways = pytest.mark.parametrize("bidirectional", [False, True], ids=["forward", "both ways"])


def _model(seed: int = 0, **values) -> Any:
    with seeded(seed):
        return LSTM(DATA, **{"hidden_size": SIZE, **values})


def _memory_kept(model: Any, steps: int) -> Tensor:
    """(layers and directions, hidden): what is left of c after some steps of input zero, with all matrices zero."""
    lstm = model.double().core
    zero = torch.zeros(lstm.num_layers * (1 + lstm.bidirectional), 1, SIZE, dtype=torch.float64)
    x = torch.zeros(1, steps, 3, dtype=torch.float64)
    return (lstm(x, (zero, zero + 1))[1][1] - lstm(x, (zero, zero))[1][1]).squeeze(1)


@every_init
@every_depth
@both_ways
@pytest.mark.parametrize("forget_bias", [0.0, 1.0, 3.0, 5.0, -2.0])
def test_the_forget_gate_starts_at_the_sigmoid_of_the_bias_everywhere(forget_bias, bidirectional, num_layers, init):
    options = {"num_layers": num_layers, "bidirectional": bidirectional, "init": init}
    model = _model(forget_bias=forget_bias, init_scale=0.0, **options)
    gate = 1 / (1 + math.exp(-forget_bias))
    expected = torch.full((num_layers * (1 + bidirectional), SIZE), gate, dtype=torch.float64)
    torch.testing.assert_close(_memory_kept(model, 1), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("forget_bias", "kept"), [(0.0, 6.223e-61), (3.0, 6.0222e-05), (5.0, 0.26104)])
def test_over_two_hundred_steps_the_memory_decays_as_the_gates_power(forget_bias, kept):
    model = _model(forget_bias=forget_bias, init_scale=0.0, init="normal")
    left = _memory_kept(model, 200) if kept > 1e-10 else _memory_kept(model, 10).pow(20)
    assert left.tolist() == [[pytest.approx(kept, rel=1e-4)] * SIZE]


def _preactivations(model: Any) -> list[list[Tensor]]:
    """The gates (i, f, g, o) of each layer and direction for input and state zero."""
    biases = dict(model.core.named_parameters())
    ends = [name.removeprefix("bias_ih_") for name in biases if name.startswith("bias_ih_")]
    return [list((biases[f"bias_ih_{end}"] + biases[f"bias_hh_{end}"]).detach().chunk(4)) for end in ends]


@every_init
@every_depth
@both_ways
def test_the_two_forget_biases_add_up_to_the_bias_once_everywhere(bidirectional, num_layers, init):
    model = _model(num_layers=num_layers, bidirectional=bidirectional, forget_bias=3.0, init=init)
    gates = _preactivations(model)
    assert len(gates) == num_layers * (1 + bidirectional)
    assert [gate[1].tolist() for gate in gates] == [[3.0] * SIZE] * len(gates)


@pytest.mark.parametrize("forget_bias", [0.0, 1.0])
def test_a_forget_bias_without_biases_is_refused_with_the_reason(forget_bias):
    with pytest.raises(
        ValueError, match=r"model\.forget_bias needs biases\. Set model\.forget_bias=null, or model\.bias=true"
    ):
        _model(bias=False, forget_bias=forget_bias)


@every_depth
@both_ways
def test_no_forget_bias_leaves_pytorchs_own_draw_bit_for_bit(bidirectional, num_layers):
    model = _model(num_layers=num_layers, bidirectional=bidirectional, forget_bias=None)
    with seeded(0):
        lstm = nn.LSTM(3, SIZE, num_layers, bidirectional=bidirectional)
        expected = [*lstm.parameters(), *nn.Linear(SIZE * (1 + bidirectional), 2).parameters()]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected, strict=True))


@every_depth
@both_ways
def test_the_forget_bias_touches_no_other_number(bidirectional, num_layers):
    options = {"num_layers": num_layers, "bidirectional": bidirectional}
    plain, biased = (dict(_model(forget_bias=b, **options).named_parameters()) for b in (None, 3.0))
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
    for gates in _preactivations(model):
        assert [gate.unique().tolist() for gate in gates] == [[0.0], [1.5], [0.0], [0.0]]
    assert not model.head.bias.any()


@every_init
def test_the_scale_multiplies_all_matrices_but_the_heads(init):
    plain, scaled = (_model(num_layers=2, init=init, init_scale=s).state_dict() for s in (1.0, 2.0))
    for name in plain:
        factor = 2.0 if name.startswith("core.weight") else 1.0
        assert torch.equal(scaled[name], factor * plain[name]), name


@pytest.mark.parametrize(("hidden_size", "num_layers", "num_weights"), [(32, 1, 4802), (5, 2, 452)])
def test_the_number_of_weights_is_that_of_torchs_lstm_and_the_head(hidden_size, num_layers, num_weights):
    model = _model(hidden_size=hidden_size, num_layers=num_layers)
    assert sum(p.numel() for p in model.parameters()) == num_weights
