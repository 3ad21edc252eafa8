"""Multilayer perceptron: what it computes, how many weights it has, and when it is linear."""

import pytest
import torch
from contract.registry import plugin
from torch import nn

from nnexp import DataSpec

MLP = plugin("model", "mlp")
PLANE = DataSpec(kind="vector", shape=(2,), outputs=2)
WIDE = DataSpec(kind="sequence", shape=(4, 3), outputs=5)


@pytest.mark.parametrize(
    ("data", "values", "num_weights"),
    [
        (PLANE, {}, 2 * 16 + 16 + 16 * 2 + 2),
        (PLANE, {"num_layers": 0}, 2 * 2 + 2),
        (PLANE, {"num_layers": 3, "hidden_size": 8}, 2 * 8 + 8 + 2 * (8 * 8 + 8) + 8 * 2 + 2),
        (WIDE, {"hidden_size": 7}, 12 * 7 + 7 + 7 * 5 + 5),
        (DataSpec(kind="tokens", shape=(6,), vocab=4), {"num_layers": 0}, 6 * 4 * 2 + 2),
        (DataSpec(kind="image", shape=(3, 4, 5)), {"num_layers": 0}, 60 * 2 + 2),
    ],
)
def test_the_number_of_weights_is_that_of_the_layers(data, values, num_weights):
    assert sum(p.numel() for p in MLP(data, **values).parameters()) == num_weights


def test_the_network_of_the_moons_has_82_weights():
    assert sum(p.numel() for p in MLP(PLANE, hidden_size=16).parameters()) == 82


FUNCTIONS = {
    "tanh": torch.tanh,
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)),
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "identity": lambda x: x,
}


@pytest.mark.parametrize("activation", FUNCTIONS)
@pytest.mark.parametrize("num_layers", [0, 1, 3])
def test_the_output_is_that_of_the_equations(activation, num_layers):
    model = MLP(WIDE, num_layers=num_layers, activation=activation, hidden_size=6).double()
    x = torch.randn(5, 4, 3, dtype=torch.float64)
    layers = [module for module in model.hidden if isinstance(module, nn.Linear)]
    assert len(layers) == num_layers
    h = x.reshape(5, 12)
    for layer in layers:
        h = FUNCTIONS[activation](h @ layer.weight.T + layer.bias)
    expected = h @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(x), expected, rtol=1e-12, atol=1e-12)


def _departure_from_linear(model: nn.Module) -> float:
    """How far f(a x + b y) is from a f(x) + b f(y) + (1 - a - b) f(0), which is zero for a linear f with a bias."""
    model = model.double()
    x, y = torch.randn(2, 50, 2, dtype=torch.float64)
    a, b = 3.0, -1.7
    combined = a * model(x) + b * model(y) + (1 - a - b) * model(torch.zeros_like(x))
    return (model(a * x + b * y) - combined).abs().max().item()


@pytest.mark.parametrize(
    "values",
    [{"num_layers": 0}, *({"num_layers": n, "activation": "identity"} for n in (1, 2, 4))],
    ids=lambda v: "-".join(map(str, v.values())),
)
def test_no_hidden_layer_or_the_identity_makes_the_network_linear(values):
    assert _departure_from_linear(MLP(PLANE, **values)) < 1e-12


@pytest.mark.parametrize("activation", [name for name in FUNCTIONS if name != "identity"])
def test_any_other_activation_bends_it(activation):
    assert _departure_from_linear(MLP(PLANE, activation=activation)) > 1e-3


@pytest.mark.parametrize("init", ["torch", "normal"])
def test_the_scale_multiplies_hidden_matrices_and_not_the_heads(init):
    models = []
    for scale in (1.0, 0.5):
        torch.manual_seed(0)
        models.append(MLP(PLANE, num_layers=2, init=init, init_scale=scale).state_dict())
    plain, scaled = models
    for name in plain:
        factor = 0.5 if name.startswith("hidden") and name.endswith("weight") else 1.0
        assert torch.equal(scaled[name], factor * plain[name]), name


def test_without_hidden_layers_the_scale_changes_nothing():
    models = []
    for scale in (1.0, 0.5):
        torch.manual_seed(0)
        models.append(MLP(PLANE, num_layers=0, init_scale=scale).state_dict())
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_pytorchs_own_draw_is_kept():
    torch.manual_seed(0)
    model = MLP(PLANE, num_layers=1)
    torch.manual_seed(0)
    hidden, head = nn.Linear(2, 16), nn.Linear(16, 2)
    expected = [*hidden.parameters(), *head.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected, strict=True))


def test_with_one_prediction_per_step_it_reads_the_positions_up_to_each_and_none_before_its_context():
    model = MLP(DataSpec(kind="sequence", shape=(9, 3), per_step=True), context=4)
    x = torch.randn(1, 9, 3, requires_grad=True)
    for position in range(9):
        (grad,) = torch.autograd.grad(model(x)[0, position].sum(), x)
        assert grad[0].abs().sum(1).nonzero().flatten().tolist() == list(range(max(0, position - 3), position + 1))
