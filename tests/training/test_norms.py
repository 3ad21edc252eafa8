"""Norms keep their bits where a plain norm is right, and are right where squares underflow or overflow."""

import math

import pytest
import torch

from nnexp.stacking.stack import Stack
from nnexp.training.flat_weights import FlatWeights
from nnexp.training.norms import layer_norms, scaled_norm, tensor_norms

TINY = '''"""Outputs of 1e-25. Our own."""
from torch import nn
from nnexp import DataSpec, model

@model
class Tiny(nn.Module):
    """One layer.

    Args:
        data: what the dataset says.
        scale: of the outputs.
    """
    def __init__(self, data: DataSpec, *, scale: float = 1e-25):
        super().__init__()
        self.head, self.scale = nn.Linear(2, 2), scale

    def forward(self, x, lengths=None):
        return self.head(x) * self.scale
'''


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 1e9])
def test_in_range_the_bits_are_those_of_the_plain_norm(dtype, scale):
    torch.manual_seed(0)
    t = scale * torch.randn(7, 1000, dtype=dtype)
    assert torch.equal(scaled_norm(t), torch.linalg.vector_norm(t, dim=-1))
    assert torch.equal(scaled_norm(t, dim=0, keepdim=True), torch.linalg.vector_norm(t, dim=0, keepdim=True))
    assert torch.equal(tensor_norms(list(t)), torch.stack(torch._foreach_norm(list(t))))
    layers = torch.tensor([0, 1, 0, 0, 2, 1, 2])
    squares = tensor_norms(list(t)).square()
    assert torch.equal(
        layer_norms(tensor_norms(list(t)), layers, 3), squares.new_zeros(3).index_add(0, layers, squares).sqrt()
    )


@pytest.mark.parametrize("scale", [1e-38, 1e-33, 1e-20, 1e19, 1e36])
def test_out_of_range_it_is_that_of_float64(scale):
    torch.manual_seed(0)
    t = scale * torch.randn(3, 50)
    expected = torch.linalg.vector_norm(t.double(), dim=-1)
    torch.testing.assert_close(scaled_norm(t).double(), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(tensor_norms(list(t)).double(), expected, rtol=1e-5, atol=0)
    found = layer_norms(scaled_norm(t), torch.tensor([0, 0, 1]), 2).double()
    torch.testing.assert_close(found, torch.stack([expected[:2].norm(), expected[2]]), rtol=1e-5, atol=0)


def test_zero_infinity_and_what_is_no_number_stay_what_they_are():
    t = torch.tensor([[0.0, 0.0], [1.0, math.inf], [math.nan, 1.0]])
    for norms in (scaled_norm(t), tensor_norms(list(t)), layer_norms(scaled_norm(t), torch.arange(3), 3)):
        assert norms[:2].tolist() == [0, math.inf]
        assert norms[2].isnan()


@pytest.mark.parametrize("scale", [1e-25, 1e21])
def test_metrics_show_it_alone_and_in_a_stack(registry_of, make_lane, scale):
    """Training itself is that of plain norms: the weights after the steps that came before are the same bits."""
    plugins = registry_of("tiny", model=TINY)
    job = [
        "dataset=moons",
        "model=tiny",
        f"model.scale={scale}",
        "trainer.lr=1e-30",
        "trainer=sgd",
        "trainer.clip_norm=1",
    ]
    exact = make_lane(*job, "precision=64", plugins=plugins).advance(4)
    lanes = [make_lane(*job, f"seed={seed}", plugins=plugins) for seed in (0, 1)]
    alone = make_lane(*job, plugins=plugins)
    rows = alone.advance(4)
    stacked = Stack(lanes, lambda: False).advance(4)[lanes[0]]
    assert all(norm not in (0, math.inf) for norm in rows.norms)
    for found in (rows, stacked):
        assert found.norms == pytest.approx(exact.norms, rel=1e-4)
        assert found.sparse[1]["grad_norm/head"] == pytest.approx(exact.sparse[1]["grad_norm/head"], rel=1e-4)


def test_the_first_layer_of_a_deep_net_has_a_small_norm_and_no_zero(make_lane):
    job = ["dataset=moons", "model=mlp", "model.hidden_size=32", "model.num_layers=50", "model.init=normal"]
    job += ["model.activation=sigmoid"]
    norms = [make_lane(*job, f"precision={p}").advance(1).sparse[1]["grad_norm/hidden.0"] for p in (32, 64)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert 1e-34 < norms[0] < 1e-31


def test_every_layer_of_flat_weights_has_one():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    weights = FlatWeights(module)
    grads = weights.gradient(1e-30 * module(torch.ones(4, 3)).sum())
    expected = [torch.cat([g.double().flatten() for g in grads[k : k + 2]]).norm() for k in (0, 2)]
    torch.testing.assert_close(weights.layer_norms(grads).double(), torch.stack(expected), rtol=1e-6, atol=0)
