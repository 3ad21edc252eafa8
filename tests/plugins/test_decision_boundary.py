"""decision_boundary: probabilities and lines against the equations of linear models, classes and values."""

import json

import pytest
import torch
from contract.registry import plugin
from matplotlib.figure import Figure
from torch import nn

from nnexp import DataSpec
from nnexp.plotting.rendering import render
from nnexp.registry.observation import to_plain


def _numbers(picture):
    return json.loads(json.dumps(to_plain(picture.numbers)))


def _places(numbers, side=100):
    """(side, side) of each feature: the middles of equal cells."""
    left, right, bottom, top = numbers["extent"]
    at = (torch.arange(side, dtype=torch.float64) + 0.5) / side
    y, x = torch.meshgrid(bottom + (top - bottom) * at, left + (right - left) * at, indexing="ij")
    return x, y


def _linear(weight, bias, outputs):
    layer = nn.Linear(2, outputs)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))
    return layer


@pytest.fixture
def view(view_of):
    return view_of("dataset=moons", "model=linear")


@pytest.fixture
def look():
    return plugin("probe", "decision_boundary")()


def test_the_probability_of_class_1_is_that_of_the_equation_everywhere(view, look):
    view.module.head.load_state_dict(_linear([[0.0, 0.0], [2.0, -1.0]], [0.0, 0.5], 2).state_dict())
    numbers = _numbers(look(view).pictures["plane"])
    x, y = _places(numbers)
    expected = torch.sigmoid(2 * x - y + 0.5)
    torch.testing.assert_close(torch.tensor(numbers["probability of class 1"]).double(), expected, rtol=0, atol=1e-4)


def test_the_line_lies_where_the_equation_says(view, look):
    view.module.head.load_state_dict(_linear([[0.0, 0.0], [2.0, -1.0]], [0.0, 0.5], 2).state_dict())
    picture, figure = look(view).pictures["plane"], Figure()
    picture.draw(figure, _numbers(picture))
    (line,) = figure.axes[0].collections
    x, y = torch.tensor(line.get_paths()[0].vertices).T
    assert len(x) > 50
    torch.testing.assert_close(y, 2 * x + 0.5, rtol=0, atol=2e-3)


def test_there_is_no_line_where_one_class_is_everywhere(view, look):
    view.module.head.load_state_dict(_linear([[0.0, 0.0], [0.0, 0.0]], [0.0, 9.0], 2).state_dict())
    picture, figure = look(view).pictures["plane"], Figure()
    picture.draw(figure, _numbers(picture))
    assert not figure.axes[0].collections


def test_the_grid_holds_all_training_points_and_a_margin(view, look):
    numbers = _numbers(look(view).pictures["plane"])
    left, right, bottom, top = numbers["extent"]
    x, y, *_ = view.rows("train", 400)
    assert numbers["points"][0] == pytest.approx(x[:, 0].tolist(), abs=1e-3)
    assert numbers["targets"] == y.tolist()
    span = x.amax(0) - x.amin(0)
    assert [right - left, top - bottom] == pytest.approx((1.3 * span).tolist(), rel=1e-4)
    assert left < x[:, 0].min() < x[:, 0].max() < right


def test_of_three_classes_each_place_has_the_most_probable(view, look):
    view.data = DataSpec(kind="vector", shape=(2,), outputs=3)
    view.module = _linear([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0.0, 0.0, 0.3], 3)
    picture = look(view).pictures["plane"]
    numbers = _numbers(picture)
    x, y = _places(numbers)
    chances = torch.stack([x, y, 0.3 - x - y], dim=-1).softmax(-1)
    is_clear = (chances.sort(-1).values.diff(dim=-1)[..., 1]) > 1e-5
    assert torch.equal(torch.tensor(numbers["class"])[is_clear], chances.argmax(-1)[is_clear])
    shown = torch.tensor(numbers["probability of the class"]).double()
    torch.testing.assert_close(shown, chances.amax(-1), rtol=0, atol=1e-4)
    picture.draw(Figure(), numbers)


@pytest.mark.parametrize("num_features", [1, 2])
def test_of_a_value_the_value_is_shown(view, look, num_features):
    x = torch.rand(30, num_features)
    view.data = DataSpec(kind="vector", shape=(num_features,), target="value", outputs=1)
    view.rows = lambda split, count: (x, 3 * x[:, :1])
    view.module = nn.Linear(num_features, 1)
    with torch.no_grad():
        view.module.weight.zero_()[0, 0] = 3.0
        view.module.bias.fill_(-1.0)
    picture = look(view).pictures["plane"]
    numbers = _numbers(picture)
    left, right = numbers["extent"][:2]
    row = numbers["values"] if num_features == 1 else numbers["values"][17]
    expected = [3 * (left + (right - left) * (place + 0.5) / 100) - 1 for place in range(100)]
    assert row == pytest.approx(expected, abs=1e-3)
    picture.draw(Figure(), numbers)


def test_a_model_of_numbers_that_are_not_finite_is_drawn_white(view, look):
    view.module.head.weight.data.fill_(torch.nan)
    picture = look(view).pictures["plane"]
    assert render(picture, _numbers(picture), "step 0")["png"]


def test_it_says_nothing_of_data_that_are_no_plane(view, look):
    for data in (
        DataSpec(kind="sequence", shape=(2, 1)),
        DataSpec(kind="image", shape=(1, 1, 2)),
        DataSpec(kind="vector", shape=(3,)),
        DataSpec(kind="vector", shape=(2,), per_step=True),
        DataSpec(kind="vector", shape=(2,), target="value", outputs=2),
    ):
        view.data = data
        assert look(view) is None
