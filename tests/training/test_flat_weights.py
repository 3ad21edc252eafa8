"""All weights of a module as one vector, of which the parameters are views."""

from typing import Any

import pytest
import torch
from torch import nn

from nnexp.base.errors import NnexpError
from nnexp.training.flat_weights import FlatWeights, layer_name


class Net(nn.Module):
    """Two layers of an LSTM, a head, a parameter of its own, one that is unused and one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 5, num_layers=2, batch_first=True)
        self.head = nn.Linear(5, 2)
        self.scale = nn.Parameter(torch.ones(()))
        self.unused = nn.Linear(4, 4)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(self.scale * self.head(self.lstm(x)[0][:, -1]))


X = torch.linspace(-1, 1, 4 * 6 * 3).view(4, 6, 3)


def _loss(net: Net) -> torch.Tensor:
    return net(X).square().sum()


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("head.bias", "head"),
        ("lstm.weight_hh_l1", "lstm.l1"),
        ("lstm.bias_ih_l0", "lstm.l0"),
        ("lstm.weight_ih_l0_reverse", "lstm.l0_reverse"),
        ("weight_hh_l10", "l10"),
        ("hidden.2.weight", "hidden.2"),
        ("blocks.0.lstm.weight_hh_l0", "blocks.0.lstm.l0"),
        ("scale", "scale"),
        ("cell.weight_hh", "cell"),
    ],
)
def test_the_layer_of_a_parameter_is_read_from_its_name(name, layer):
    assert layer_name(name) == layer


def test_making_the_vector_changes_no_output():
    net = Net()
    before = net(X)
    weights = FlatWeights(net)
    assert torch.equal(net(X), before)
    assert weights.vector.shape == (sum(p.numel() for p in net.parameters() if p.requires_grad),)


def test_parameters_are_views_of_the_vector_in_order():
    net = Net()
    weights = FlatWeights(net)
    address = weights.vector.data_ptr()
    for name, p in zip(weights.names, weights.params, strict=True):
        assert p is net.get_parameter(name)
        assert p.data_ptr() == address
        address += p.numel() * p.element_size()
    assert torch.equal(weights.vector, torch.cat([p.detach().flatten() for p in weights.params]))


def test_setting_the_vector_sets_the_parameters_and_changing_them_changes_the_vector():
    net: Any = Net()
    weights = FlatWeights(net)
    weights.set(torch.arange(float(len(weights.vector))))
    assert net.scale.item() == 0
    assert net.lstm.weight_ih_l0.flatten().tolist() == list(range(1, 61))
    with torch.no_grad():
        net.lstm.weight_ih_l0[0, 0] = -7.0
    assert weights.vector[1] == -7.0


def test_a_state_that_is_loaded_goes_into_the_vector():
    net, other = Net(), Net()
    weights = FlatWeights(net)
    net.load_state_dict(other.state_dict())
    assert torch.equal(weights.vector, FlatWeights(other).vector)


def test_setting_copies_so_that_the_given_vector_stays_ones_own():
    weights = FlatWeights(Net())
    given = torch.zeros_like(weights.vector)
    weights.set(given)
    given += 1
    assert not weights.vector.any()


def test_the_gradient_is_autograds_own():
    net = Net()
    weights = FlatWeights(net)
    grads = weights.gradient(_loss(net))
    _loss(net).backward()
    for name, p, grad in zip(weights.names, weights.params, grads, strict=True):
        expected = torch.zeros_like(p) if p.grad is None else p.grad
        assert torch.equal(grad, expected), name


def test_a_parameter_that_the_loss_does_not_depend_on_has_a_gradient_of_zero():
    net = Net()
    weights = FlatWeights(net)
    grads = dict(zip(weights.names, weights.gradient(_loss(net)), strict=True))
    assert grads["unused.weight"].shape == (4, 4)
    assert not grads["unused.weight"].any()
    assert grads["head.weight"].any()


def test_the_gradient_leaves_no_trace_on_the_parameters():
    net = Net()
    FlatWeights(net).gradient(_loss(net))
    assert all(p.grad is None for p in net.parameters())


def test_frozen_parameters_are_left_out():
    net = Net()
    before = net.frozen.weight.clone()
    weights = FlatWeights(net)
    weights.set(torch.zeros_like(weights.vector))
    assert not [name for name in weights.names if name.startswith("frozen")]
    assert torch.equal(net.frozen.weight, before)


def test_layers_stand_in_the_order_of_the_module():
    assert FlatWeights(Net()).layers == ["scale", "lstm.l0", "lstm.l1", "head", "unused"]


def test_layer_norms_are_the_norms_of_each_layers_whole_gradient():
    net = Net().double()
    weights = FlatWeights(net)
    grads = weights.gradient(net(X.double()).square().sum())
    norms = weights.layer_norms(grads)
    for layer, norm in zip(weights.layers, norms.tolist(), strict=True):
        parts = [g.flatten() for name, g in zip(weights.names, grads, strict=True) if layer_name(name) == layer]
        assert norm == pytest.approx(torch.cat(parts).norm().item(), rel=1e-12)


def test_the_layers_norms_make_up_the_whole_norm():
    net = Net().double()
    weights = FlatWeights(net)
    grads = weights.gradient(net(X.double()).square().sum())
    whole = torch.cat([g.flatten() for g in grads]).norm()
    assert weights.layer_norms(grads).square().sum().sqrt().item() == pytest.approx(whole.item(), rel=1e-12)


def test_a_weight_that_is_shared_is_in_the_vector_once():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    assert FlatWeights(net).vector.numel() == 15


@pytest.mark.parametrize("module", [nn.ReLU(), nn.Linear(2, 2).requires_grad_(False)])
def test_a_module_without_weights_is_refused_by_name(module):
    with pytest.raises(NnexpError, match=f"{type(module).__name__} has no weights to train"):
        FlatWeights(module)
