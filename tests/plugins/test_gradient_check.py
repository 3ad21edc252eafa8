"""The gradient check: it finds a wrong gradient, and accepts right ones, kinks and small numbers included."""

from __future__ import annotations

import math

import pytest
import torch

from nnexp.data.seeding import seeded_generator
from nnexp.plotting.rendering import render
from nnexp.probing.runner import ProbeLanes
from nnexp.probing.view import View
from nnexp.registry.observation import Observation, to_plain
from nnexp.training.lane import Lane

pytestmark = pytest.mark.slow


WRONG = '''"""A tanh whose gradient may be wrong. Our own."""
import torch
from torch import nn
from nnexp import DataSpec, model


class Bent(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.tanh())
        return x.tanh()

    @staticmethod
    def backward(ctx, grad):
        (h,) = ctx.saved_tensors
        return grad * ({FORMULA})


@model
class Wrong(nn.Module):
    """One hidden layer.

    Args:
        data: what the dataset says of its tensors.
    """

    def __init__(self, data: DataSpec):
        super().__init__()
        self.hidden, self.head = nn.Linear(data.features, 5), nn.Linear(5, data.outputs)

    def forward(self, x, lengths=None):
        return self.head(Bent.apply(self.hidden(x)))
'''


@pytest.fixture
def check(registry, view_of):
    def look(*overrides: str, plugins=registry, step: int = 0, **values) -> Observation:
        return registry.get("probe", "gradient_check").load()(**values)(view_of(*overrides, plugins=plugins, step=step))

    return look


@pytest.fixture
def wrong(registry_of):
    return lambda formula: registry_of("wrong", model=WRONG.replace("{FORMULA}", formula))


def test_a_wrong_slope_of_tanh_is_caught(check, wrong) -> None:
    seen = check("dataset=moons", "model=wrong", plugins=wrong("1 - h"))
    assert seen.scalars["largest_error"] > 1e-2
    assert seen.scalars["error/hidden.weight"] > 1e-2
    assert seen.scalars["error/head.weight"] < 1e-6  # the fault is below it
    assert seen.scalars["at_kinks"] == 0
    assert "**wrong**" in seen.texts["verdict"]
    assert "`hidden." in seen.texts["verdict"]


def test_the_error_is_that_of_the_formula(check, wrong) -> None:
    """A gradient that is f times too large has the error (f - 1) / (f + 1)."""
    seen = check("dataset=moons", "model=wrong", plugins=wrong("(1 - h * h) * 3"))
    assert seen.scalars["largest_error"] == pytest.approx(0.5, rel=1e-3)
    seen = check("dataset=moons", "model=wrong", plugins=wrong("(1 - h * h) * 1.001"))
    assert seen.scalars["largest_error"] == pytest.approx(0.0005, rel=1e-2)
    assert "**less well**" in seen.texts["verdict"]


def test_a_fault_in_a_single_weight_is_caught_by_the_random_direction(check, wrong) -> None:
    plugins = wrong("(1 - h * h) * torch.tensor([1, 1, 0.5, 1, 1], dtype=h.dtype)")
    seen = check("dataset=moons", "model=wrong", plugins=plugins, weights_per_tensor=0)
    assert seen.scalars["error/hidden.bias"] > 1e-2


def test_a_right_gradient_agrees_for_every_seed(registry, make_lane) -> None:
    lane, probe = make_lane("dataset=moons", "model=mlp"), registry.get("probe", "gradient_check").load()()
    for seed in range(20):
        torch.manual_seed(seed)
        for layer in (lane.module.hidden[0], lane.module.head):
            layer.reset_parameters()
        own = ProbeLanes(lambda job: Lane(job, registry, torch.device("cpu"), lambda: False)).copy_from(lane)
        seen = probe(View(own.fresh(), seeded_generator(seed, "probe"), own.exact))
        assert 0 < seen.scalars["largest_error"] < 1e-6
        assert "**agrees**" in seen.texts["verdict"]


@pytest.mark.parametrize(
    "overrides",
    [
        ("dataset=pattern", "model=lstm", "model.bidirectional=true", "model.num_layers=2"),
        ("dataset=chartext", "model=gru"),
        ("dataset=edges", "model=cnn"),
        ("dataset=pattern", "model=cnn", "precision=bf16"),
        ("dataset=edges", "model=vit"),
    ],
)
def test_it_agrees_for_models_that_are_right(check, overrides) -> None:
    assert check(*overrides, step=3).scalars["largest_error"] < 1e-6


def test_what_lies_at_a_kink_is_set_apart_and_not_called_wrong(check) -> None:
    """All sums are 0, where relu has its kink: units open for one sign of the step, or for some rows of either."""
    relu = ("model=mlp", "model.activation=relu", "model.init=normal", "model.init_scale=0")
    seen = check("dataset=moons", *relu)
    assert 5 <= seen.scalars["at_kinks"] <= 10  # four weights and a direction, and biases whose slopes do not cancel
    assert "error/hidden.0.weight" not in seen.scalars
    assert seen.scalars["largest_error"] < 1e-6
    assert "lie at kinks of the loss" in seen.texts["verdict"]
    assert "hidden.0.weight (not told)" in seen.pictures["errors"].numbers["errors"]
    assert render(seen.pictures["errors"], to_plain(seen.pictures["errors"].numbers), "step 0")["png"]


def test_every_class_is_among_the_rows_even_where_they_are_sorted(registry, view_of) -> None:
    rows = registry.get("probe", "gradient_check").load().__call__.__globals__["_rows"]
    view = view_of("dataset=moons", "model=mlp")
    x, y = view.dataset.train
    order = y.argsort()
    view.dataset.train = (x[order], y[order])
    assert torch.bincount(rows(view)[1]).tolist() == [8, 8]
    assert torch.bincount(rows(view_of("dataset=edges", "model=cnn"))[1]).tolist() == [4] * 4


def test_rows_with_many_labels_cover_classes_too_and_padding_does_not_count(registry, view_of) -> None:
    choose = registry.get("probe", "gradient_check").load().__call__.__globals__["_of_all_classes"]
    text = ("dataset=chartext", "dataset.text=abcdabcdabcd", "dataset.held_out=0", "dataset.length=3")
    view = view_of(*text, "model=rnn", "trainer.batch_size=full")
    y = torch.tensor([[0, 0, 0], [0, 1, 0], [2, 2, 3], [0, 0, 0]])
    assert set(choose(y, view, 2).tolist()) == {1, 2}
    assert choose(y, view, 1, torch.tensor([3, 1, 1, 3])).tolist() == [0]


def test_it_is_the_gradient_of_the_loss_and_leaves_the_model_as_it_was(registry, view_of) -> None:
    view = view_of("dataset=moons", "model=mlp", step=5)
    with view.exact() as exact:
        before = exact.weights.vector.clone()
        registry.get("probe", "gradient_check").load()()(view)
        assert torch.equal(exact.weights.vector, before)


def test_the_picture_has_the_worst_of_many_tensors(check) -> None:
    seen = check("dataset=moons", "model=mlp", "model.num_layers=11", "model.hidden_size=3")
    picture = seen.pictures["errors"]
    assert picture.title.endswith("worst 16 of 24 tensors")
    shown = to_plain(picture.numbers)["errors"]
    assert len(shown) == 16
    worst = max(shown, key=lambda name: max(shown[name]))
    assert math.isclose(max(shown[worst]), seen.scalars["largest_error"])


@pytest.mark.parametrize("epsilon", [0.1, 0.01, 1e-5, 1e-7])
def test_a_step_that_is_too_large_is_made_smaller(registry, view_of, epsilon: float) -> None:
    seen = registry.get("probe", "gradient_check").load()(epsilon=epsilon)(view_of("dataset=moons", "model=mlp"))
    assert seen.scalars["at_kinks"] <= 1  # of 18
    assert seen.scalars["largest_error"] < 1e-4
    assert not seen.warning


HEAD = '''"""Right models that look wrong. Our own."""
import torch
from torch import nn
from nnexp import DataSpec, model
from nnexp.data import as_sequence, as_vector

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return 1.5 * grad

@model
class Odd(nn.Module):
    """One of several.

    Args:
        data: what the dataset says.
        fault: makes the backward pass wrong.
    """
    def __init__(self, data: DataSpec, *, fault: bool = False):
        super().__init__()
        self.data, self.fault = data, fault
        self.a, self.head = nn.Linear(data.channels, 16), nn.Linear(16, data.outputs)
        self.make()

    def forward(self, x, lengths=None):
        h = self.middle(as_sequence(x, self.data, lengths))
        return self.head(Scaled.apply(h) if self.fault else h)
'''
SOFTMAX = """
    def make(self):
        self.q, self.k = nn.Linear(self.data.channels, 8), nn.Linear(self.data.channels, 8)

    def middle(self, x):
        w = (self.q(x) @ self.k(x).transpose(1, 2)).softmax(-1, dtype=torch.float32).to(x.dtype)
        return (w @ self.a(x)).mean(1)
"""
ZERO_INIT = """
    def make(self):
        half = lambda: [nn.Linear(16, 16), nn.BatchNorm1d(16)]
        self.blocks = nn.ModuleList(nn.Sequential(*half(), nn.ReLU(), *half()) for _ in range(6))
        for each in self.blocks:
            nn.init.zeros_(each[-1].weight)

    def middle(self, x):
        h = self.a(x).mean(1).relu()
        for each in self.blocks:
            h = (h + each(h)).relu()
        return h
"""
DEEP = """
    def make(self):
        self.layers = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(16, 16), nn.ReLU())])

    def middle(self, x):
        return self.layers(self.a(x).mean(1))
"""
WRITES = """
    def make(self):
        pass

    def middle(self, x):
        return self.a(x.mul_(0.5)).mean(1).tanh()
"""
RANDOM = """
    def make(self):
        pass

    def middle(self, x):
        return self.a(x).mean(1) * torch.rand(())
"""
ODD = {"softmax in 32 bits": SOFTMAX, "zero gain": ZERO_INIT, "deep relu": DEEP, "writes into its input": WRITES}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("methods", ODD.values(), ids=ODD)
def test_right_models_raise_no_alarm_and_a_wrong_backward_pass_in_them_does(check, registry_of, methods, seed) -> None:
    plugins = registry_of("odd", model=HEAD + methods)
    job = ["dataset=pattern", "model=odd", f"seed={seed}"]
    assert not check(*job, plugins=plugins, step=2).warning
    seen = check(*job, "model.fault=true", plugins=plugins, step=2)
    assert "**wrong**" in seen.warning
    assert 0.1 < seen.scalars["largest_error"] < 0.5  # (1.5 - 1) / (1.5 + 1), more or less near kinks


def test_a_model_that_answers_differently_gets_no_verdict(check, registry_of) -> None:
    seen = check("dataset=moons", "model=odd", plugins=registry_of("odd", model=HEAD + RANDOM))
    assert seen.texts["verdict"] == seen.warning
    assert seen.warning.startswith("No verdict: asked twice, the model gives other losses, ")
