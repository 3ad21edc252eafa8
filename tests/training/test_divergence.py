"""The sentence that says where a number first stopped being finite."""

from typing import Any

import pytest
import torch
from torch import nn

from nnexp.training.divergence import explain_divergence
from nnexp.training.flat_weights import FlatWeights

X = torch.linspace(-1, 1, 12).view(4, 3)


class Through(nn.Module):
    """Applies a function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class InfiniteSlope(torch.autograd.Function):
    """The identity, with a gradient that is not finite."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.inf


def _net(function=lambda x: x) -> tuple[Any, FlatWeights]:
    torch.manual_seed(0)
    net = nn.Sequential()
    net.add_module("first", nn.Linear(3, 5))
    net.add_module("middle", Through(function))
    net.add_module("second", nn.Linear(5, 5))
    net.add_module("head", nn.Linear(5, 2))
    return net, FlatWeights(net)


def _explain(net: nn.Module, weights: FlatWeights, function=lambda output: output.square().mean()) -> str:
    return explain_divergence(net, weights, lambda: function(net(X)), is_loss_finite=True)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["first.weight", "second.bias", "head.weight"])
def test_weights_that_are_not_finite_are_named_first(name, value):
    net, weights = _net(lambda x: x / 0)
    with torch.no_grad():
        net.get_parameter(name).view(-1)[-1] = value
    named = f"The weights of layer '{name.partition('.')[0]}'"
    assert _explain(net, weights) == f"{named} are no longer finite: its last update was too large."


def test_of_several_layers_with_bad_weights_the_first_is_named():
    net, weights = _net()
    with torch.no_grad():
        net.second.weight[0, 0] = net.head.bias[0] = torch.nan
    assert "'second'" in _explain(net, weights)


@pytest.mark.parametrize("function", [lambda x: x / 0, lambda x: (x - 9).log()], ids=["inf", "nan"])
def test_the_first_output_that_is_not_finite_is_named(function):
    assert _explain(*_net(function)) == "The first output that is not finite is that of layer 'middle'."


def test_one_bad_number_in_an_output_is_found():
    def spoil(x):
        return torch.where(torch.arange(20).view(4, 5) == 13, torch.inf, x)

    assert "'middle'" in _explain(*_net(spoil))


def test_an_output_of_several_tensors_is_looked_into():
    net, weights = _net(lambda x: (x, x * torch.nan))
    net.second = Through(lambda pair: pair[0])
    assert "'middle'" in _explain(net, weights)


def test_the_model_itself_is_called_the_output():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 2)

        def forward(self, x):
            return self.inner(x) / 0

    net = Outer()
    assert _explain(net, FlatWeights(net)) == "The first output that is not finite is that of layer 'output'."


def test_a_loss_that_alone_is_not_finite_is_told_from_outputs():
    text = _explain(*_net(), lambda output: (output * 0).sum().log())
    assert text == "The output of every layer is finite; the loss is not."


def test_the_first_bad_gradient_on_the_way_back_is_named():
    text = _explain(*_net(InfiniteSlope.apply))
    assert text == "The first gradient that is not finite is that of layer 'first'."


def test_a_gradient_that_is_bad_from_the_loss_on_is_that_of_the_last_layer():
    text = _explain(*_net(), lambda output: InfiniteSlope.apply(output).square().mean())
    assert text == "The first gradient that is not finite is that of layer 'head'."


def test_a_norm_that_alone_overflows_is_told_from_gradients():
    net, weights = _net()
    grads = torch.cat([g.flatten() for g in weights.gradient(7e37 * net(X).sum())])
    assert grads.isfinite().all()
    assert torch.linalg.vector_norm(grads) == torch.inf
    text = _explain(net, weights, lambda output: 7e37 * output.sum())
    assert text == "The gradient of every layer is finite; the norm over all layers is not."


@pytest.mark.parametrize("function", [lambda x: x, lambda x: x / 0], ids=["finite", "infinite"])
def test_looking_leaves_no_hook_and_no_gradient_behind(function):
    net, weights = _net(function)
    before = weights.vector.clone()
    _explain(net, weights)
    assert not any(module._forward_hooks for module in net.modules())
    assert all(p.grad is None for p in net.parameters())
    assert torch.equal(weights.vector, before)


def test_hooks_are_removed_when_the_model_fails():
    net, weights = _net()
    with pytest.raises(RuntimeError):
        explain_divergence(net, weights, lambda: net(X[:, :2]).sum(), is_loss_finite=True)
    assert not any(module._forward_hooks for module in net.modules())


def test_a_loss_that_is_finite_when_computed_again_blames_no_layer():
    net, weights = _net()
    found = explain_divergence(net, weights, lambda: net(X).sum(), is_loss_finite=False)
    assert found == "Computed again, it is finite: the model answers differently when asked twice."
