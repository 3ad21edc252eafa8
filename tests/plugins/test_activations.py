"""Histograms of what layers give, saturation and functions that are no layers, against torch's own numbers."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from nnexp.probing.hooks import forward_calls
from nnexp.registry.observation import to_plain

OWN = '''"""Bounded functions in several forms. Our own."""
import torch
from torch import nn
from nnexp import DataSpec, model
from nnexp.data.views import as_vector


@model
class Own(nn.Module):
    """Layers and functions.

    Args:
        data: what the dataset says of its tensors.
    """

    def __init__(self, data: DataSpec):
        super().__init__()
        self.data, self.first, self.bend, self.head = data, nn.Linear(data.features, 2), nn.Sigmoid(), nn.Linear(2, 2)
        with torch.no_grad():
            self.first.weight.zero_()
            self.first.bias.copy_(torch.tensor([0.0, 4.0]))

    def forward(self, x, lengths=None):
        state = self.bend(self.first(as_vector(x, self.data)))  # 0.5 and 0.982
        for _ in range(3):
            state = torch.tanh(4 * state)  # 0.964 and 0.9992, then more
        return self.head(torch.relu(state - torch.tensor([0.0, 2.0])))
'''
DEEP = '''"""Many layers. Our own."""
from torch import nn
from nnexp import DataSpec, model


@model
class Deep(nn.Module):
    """Many layers.

    Args:
        data: what the dataset says of its tensors.
    """

    def __init__(self, data: DataSpec):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(2, 2) for _ in range(30)])

    def forward(self, x, lengths=None):
        return self.layers(x)
'''


@pytest.fixture
def activations(registry):
    return lambda view, **values: registry.get("probe", "activations").load()(**values)(view)


def test_numbers_are_those_of_the_layers_outputs(view_of, activations) -> None:
    view = view_of("dataset=moons", "model=mlp", step=20)
    seen = activations(view, rows=50)
    x, _ = view.rows("val", 50)
    outputs = {call.name: call.output.detach() for call in forward_calls(view.module, x)}
    assert list(seen.histograms) == ["outputs/hidden.0", "outputs/hidden.1", "outputs/head"]
    for name in ("hidden.0", "hidden.1", "head"):
        output, rows = outputs[name], seen.histograms[f"outputs/{name}"]
        assert seen.scalars[f"mean/{name}"] == pytest.approx(float(output.mean()), abs=1e-6)
        assert seen.scalars[f"spread/{name}"] == pytest.approx(float(output.std(correction=0)), rel=1e-5)
        low, high = output.aminmax()
        counts = torch.histc(output, 30, float(low), float(high))
        assert [row[2] for row in rows] == pytest.approx(counts.tolist(), abs=2)  # numbers at an edge
        assert sum(row[2] for row in rows) == output.numel()
        assert (rows[0][0], rows[-1][1]) == pytest.approx((float(low), float(high)), rel=1e-5)
        assert all(left[1] == right[0] for left, right in pairwise(rows))


@pytest.mark.parametrize(
    ("layer", "share"),
    [(nn.Tanh(), 0.5), (nn.Sigmoid(), 0.5), (nn.ReLU(), 0.25), (nn.ReLU(inplace=True), 0.25), (nn.GELU(), None)],
    ids=repr,
)
def test_each_bounded_function_has_ends_of_its_own(view_of, activations, layer: nn.Module, share: float | None) -> None:
    view = view_of("dataset=moons", "model=mlp")
    view.module.hidden[1] = layer
    with torch.no_grad():
        view.module.hidden[0].weight.zero_()
        view.module.hidden[0].bias.copy_(torch.tensor([1.0, 5.0, -5.0, 2.0]).repeat(4))  # tanh 2 = 0.964
    saturated = {n: v for n, v in activations(view).scalars.items() if n.startswith("saturated/")}
    assert saturated == ({} if share is None else {"saturated/hidden.1": share})


@pytest.mark.parametrize("model", ["rnn", "lstm", "gru"])
def test_states_are_bounded_as_tanh(view_of, activations, model: str) -> None:
    view = view_of("dataset=pattern", f"model={model}")
    with torch.no_grad():
        for p in view.module.core.parameters():
            p.fill_(0)
        view.module.core.bias_ih_l0[-8:] = 20.0
        view.module.core.bias_ih_l0[:-32] = {"rnn": 0.0, "lstm": 20.0, "gru": -20.0}[model]
        if model == "lstm":
            view.module.core.bias_ih_l0[64:72] = 20.0
    seen = activations(view)
    h = next(call.output for call in forward_calls(view.module, view.rows("val", 64)[0]) if call.name == "core")
    assert seen.scalars["saturated/core"] == pytest.approx(float((h.abs() > 0.97).float().mean()), abs=1e-6)
    assert seen.scalars["saturated/core"] > 0.1


def test_functions_that_are_no_layers_are_found_and_named_by_the_layer_before(
    view_of, activations, registry_of
) -> None:
    plugins = registry_of("own", model=OWN)
    seen = activations(view_of("dataset=moons", "model=own", plugins=plugins))
    assert list(seen.histograms) == [f"outputs/{n}" for n in ("first", "bend", "bend.tanh", "bend.relu", "head")]
    assert seen.scalars["saturated/bend"] == 0.5
    assert seen.scalars["saturated/bend.tanh"] == pytest.approx(5 / 6)  # of three calls together
    assert seen.scalars["saturated/bend.relu"] == 0.5
    assert sum(row[2] for row in seen.histograms["outputs/bend.tanh"]) == 3 * 64 * 2


def test_dropout_and_what_computes_weights_are_no_layers(view_of, activations) -> None:
    view = view_of("dataset=moons", "model=mlp")
    view.module.hidden.append(nn.Dropout())
    nn.utils.parametrizations.weight_norm(view.module.head)
    assert list(activations(view).histograms) == ["outputs/hidden.0", "outputs/hidden.1", "outputs/head"]


def test_convolutions_have_their_relu(view_of, activations) -> None:
    seen = activations(view_of("dataset=edges", "model=cnn"))
    names = ["layers.0", "layers.0.relu", "layers.1", "layers.1.relu", "head"]
    assert list(seen.histograms) == [f"outputs/{name}" for name in names]
    counted = sum(row[2] for row in seen.histograms["outputs/layers.0.relu"])
    assert 0 < seen.scalars["saturated/layers.0.relu"] < 1
    assert counted == 64 * 8 * 6 * 6


@pytest.mark.parametrize("is_second", [True, False])
def test_padding_does_not_count(registry, is_second: bool) -> None:
    """(B, T, H) of recurrent layers, and (B, C, T) of convolutions."""
    code = registry.get("probe", "activations").load().__call__.__globals__
    output = torch.arange(2 * 3 * 4.0).view(2, 3, 4)
    valid = torch.tensor([[True, True, False, False], [True] * 4])
    given = output.transpose(1, 2) if is_second else output
    values, counted = code["_flat"](given, valid)
    expected = [*output[0, :, :2].flatten().tolist(), *output[1].flatten().tolist()]
    assert sorted(values[counted].tolist()) == sorted(expected)


def test_what_is_not_finite_does_not_count_and_a_constant_layer_has_a_range(registry) -> None:
    code = registry.get("probe", "activations").load().__call__.__globals__
    measured = code["_measure"]
    layer = code["Layer"]([torch.tensor([[1.0, torch.nan, torch.inf, 3.0]])])
    low, high, mean, spread, saturated, *counts = measured(layer, None).tolist()
    assert (low, high, mean, spread, sum(counts), counts[0], counts[-1]) == (1, 3, 2, 1, 2, 1, 1)
    assert saturated != saturated
    low, high, mean, spread, _, *counts = measured(code["Layer"]([torch.full((5,), 2.0)]), None).tolist()
    assert (low, high, mean, spread, sum(counts)) == (1.5, 2.5, 2, 0, 5)


def test_of_many_layers_some_are_shown_the_first_and_the_last_among_them(view_of, activations, registry_of) -> None:
    seen = activations(view_of("dataset=moons", "model=deep", plugins=registry_of("deep", model=DEEP)))
    picture = seen.pictures["layers"]
    assert picture.title == "Outputs of 12 of 30 layers"
    names = list(to_plain(picture.numbers)["layers"])
    assert (len(names), names[0], names[-1]) == (12, "layers.0", "layers.29")


def test_a_model_gone_astray_has_nothing_to_show(view_of, activations) -> None:
    view = view_of("dataset=moons", "model=mlp")
    with torch.no_grad():
        view.weights.vector.fill_(torch.nan)
    seen = activations(view)
    assert (seen.pictures, seen.histograms) == ({}, {})
