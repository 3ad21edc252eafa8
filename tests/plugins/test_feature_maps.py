"""feature_maps: maps against convolutions by hand, and layers of a model that nobody knows."""

import json
from functools import partial

import pytest
import torch
from contract.registry import plugin
from torch import nn
from torch.nn import functional as F

from nnexp import DataSpec
from nnexp.plotting.rendering import render
from nnexp.registry.observation import to_plain


class Own(nn.Module):
    """A convolution that is none of torch's modules."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.filters = nn.Parameter(torch.randn(outputs, inputs, 3, 3))

    def forward(self, x):
        return F.conv2d(x, self.filters)


class Unknown(nn.Module):
    """Five of them one in another, with a vector for each position that is no filter."""

    def __init__(self):
        super().__init__()
        self.first = Own(1, 2)
        self.rest = nn.Sequential(*(nn.Sequential(nn.Tanh(), Own(2, 2)) for _ in range(4)))
        self.head = nn.Linear(2, 4)

    def forward(self, x, lengths=None):
        return self.head(self.rest(self.first(x)).mean((2, 3)))


IMAGE = DataSpec(kind="image", shape=(1, 12, 12), outputs=5)
SEQUENCE = DataSpec(kind="sequence", shape=(16, 2))
TOKENS = DataSpec(kind="tokens", shape=(16,), vocab=5, per_step=True, outputs=5)
VECTOR = DataSpec(kind="vector", shape=(2,))


@pytest.fixture
def made(view_on):
    return partial(view_on, 10)


@pytest.fixture
def look():
    return plugin("probe", "feature_maps")()


def _numbers(seen):
    return json.loads(json.dumps(to_plain(seen.pictures["maps"].numbers)))


def _close(layer, expected):
    shown = torch.tensor(layer["maps"])
    torch.testing.assert_close(shown, expected.detach(), rtol=0, atol=5.1e-4 * expected.abs().max().item())


def _of_each_class(view):
    return view.rows("val", 10)[0][[0, 2, 4, 6]]


def test_maps_of_an_image_are_convolutions_of_a_row_of_each_class(made, look):
    view = made(IMAGE, "cnn")
    numbers, x = _numbers(look(view)), _of_each_class(view)
    first, second = view.module.layers
    maps = F.conv2d(x, first.weight, first.bias, padding=1)
    deeper = F.conv2d(F.max_pool2d(maps, 2).relu(), second.weight, second.bias, padding=1)
    assert [layer["name"] for layer in numbers["layers"]] == ["input", "layers.0", "layers.1"]
    for layer, expected in zip(numbers["layers"], (x, maps, deeper[:, :8]), strict=True):
        _close(layer, expected)
    assert numbers["examples"] == ["class 0", "class 1", "class 2", "class 3"]
    assert numbers["layers"][2]["shape"] == [16, 6, 6]


def test_maps_of_a_sequence_are_one_image_each(made, look):
    view = made(SEQUENCE, "cnn")
    first = view.module.layers[0]
    x = view.rows("val", 10)[0][[0, 2]]
    _close(_numbers(look(view))["layers"][1], F.conv1d(x.mT, first.weight, first.bias, padding=1).unsqueeze(1))


def test_of_tokens_the_first_rows_are_shown(made, look):
    view = made(TOKENS, "cnn")
    numbers = _numbers(look(view))
    assert numbers["examples"] == ["row 0", "row 1", "row 2", "row 3"]
    _close(numbers["layers"][0], F.one_hot(view.rows("val", 4)[0], 5).mT.unsqueeze(1).float())


def test_layers_of_an_unknown_model_are_found_the_first_and_the_last_among_them(made, look):
    view = made(IMAGE, Unknown())
    seen = look(view)
    assert [layer["name"] for layer in _numbers(seen)["layers"]] == ["input", "first", "rest.1.1", "rest.3.1"]
    assert seen.pictures["maps"].title == "Feature maps, 3 of 5 layers"
    _close(_numbers(seen)["layers"][1], F.conv2d(_of_each_class(view), view.module.first.filters))


def test_large_maps_are_shown_in_means_of_pixels(made, look):
    view = made(DataSpec(kind="image", shape=(1, 56, 56), outputs=5), "cnn")
    _close(_numbers(look(view))["layers"][0], F.avg_pool2d(_of_each_class(view), 2))


def test_padded_rows_are_given_with_their_lengths(made, look):
    view = made(SEQUENCE, "cnn", torch.full((10,), 5))
    x = view.rows("val", 10)[0][[0, 2]]
    x[:, 5:] = 0
    _close(_numbers(look(view))["layers"][0], x.mT.unsqueeze(1))


def test_it_says_nothing_where_there_is_no_convolution(made, look):
    cases = [(IMAGE, "mlp"), (IMAGE, "vit"), (IMAGE, "gru"), (SEQUENCE, "lstm"), (SEQUENCE, "vit"), (VECTOR, "cnn")]
    assert [case for case in cases if look(made(*case)) is not None] == []


def test_it_is_drawn_of_a_real_run(view_of, look):
    picture = look(view_of("dataset=edges", "model=cnn")).pictures["maps"]
    assert render(picture, json.loads(json.dumps(to_plain(picture.numbers))), "step 0")["png"]
