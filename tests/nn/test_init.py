"""Initial weights: PyTorch's own draw, N(0, 1/fan_in), and the scale of all matrices but the head's."""

from typing import Any

import pytest
import torch
from torch import nn

from nnexp.data.seeding import seeded
from nnexp.nn.init import initialise


class Net(nn.Module):
    """Matrices of every kind, large enough for a standard deviation to be measured."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(100, 200)
        self.conv = nn.Conv2d(8, 64, 3)
        self.recurrent = nn.LSTM(50, 64, num_layers=2)
        self.head = nn.Linear(64, 100)


def _net(init: Any, init_scale: float = 1.0) -> Any:
    with seeded(1):
        net = Net()
        if init is not None:
            initialise(net, init, init_scale, head=net.head)
    return net


MATRICES = [name for name, p in Net().named_parameters() if p.ndim > 1]
BIASES = [name for name, p in Net().named_parameters() if p.ndim == 1]
HEAD = "head.weight"


@pytest.mark.parametrize("name", MATRICES + BIASES)
def test_torch_keeps_pytorchs_own_draw_bit_for_bit(name):
    assert torch.equal(_net("torch").get_parameter(name), _net(None).get_parameter(name))


@pytest.mark.parametrize("name", MATRICES)
def test_normal_draws_matrices_of_variance_one_over_fan_in_and_mean_zero(name):
    weight = _net("normal").get_parameter(name)
    fan_in = weight[0].numel()
    assert weight.std().item() == pytest.approx(fan_in**-0.5, rel=0.05)
    assert abs(weight.mean().item()) < 5 * fan_in**-0.5 / weight.numel() ** 0.5


def test_fan_in_counts_the_inputs_of_one_output():
    net = _net("normal")
    assert net.conv.weight.std().item() == pytest.approx((8 * 9) ** -0.5, rel=0.05)
    assert net.recurrent.weight_hh_l1.std().item() == pytest.approx(64**-0.5, rel=0.05)


@pytest.mark.parametrize("name", MATRICES)
def test_normal_draws_are_not_bounded_as_uniform_ones_are(name):
    weight = _net("normal").get_parameter(name)
    assert weight.abs().max() > 2.5 * weight.std()


@pytest.mark.parametrize("name", BIASES)
def test_normal_sets_biases_to_zero(name):
    assert not _net("normal").get_parameter(name).any()


@pytest.mark.parametrize("init", ["torch", "normal"])
@pytest.mark.parametrize("name", [name for name in MATRICES if name != HEAD])
def test_the_scale_multiplies_every_matrix_but_the_heads(init, name):
    scaled, plain = _net(init, 3.0).get_parameter(name), _net(init).get_parameter(name)
    assert torch.equal(scaled, 3.0 * plain)


@pytest.mark.parametrize("init", ["torch", "normal"])
@pytest.mark.parametrize("name", [HEAD, *BIASES])
def test_the_scale_touches_neither_the_head_nor_biases(init, name):
    assert torch.equal(_net(init, 3.0).get_parameter(name), _net(init).get_parameter(name))


def test_a_scale_of_zero_leaves_the_head_alone():
    net = _net("normal", 0.0)
    assert not net.recurrent.weight_hh_l0.any()
    assert net.head.weight.any()


def test_the_draw_depends_on_the_global_seed_alone():
    assert torch.equal(_net("normal").embedding.weight, _net("normal").embedding.weight)
    with seeded(2):
        other = Net()
        initialise(other, "normal", 1.0, head=other.head)
    assert not torch.equal(other.embedding.weight, _net("normal").embedding.weight)


def test_initialising_leaves_weights_trainable_and_without_history():
    net = _net("normal", 2.0)
    assert all(p.requires_grad and p.is_leaf for p in net.parameters())
