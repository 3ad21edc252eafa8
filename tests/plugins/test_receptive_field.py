"""receptive_field: what is measured against the formula, against what is known of models, and of some never seen."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from contract.registry import plugin
from torch import nn
from torch.nn import functional as F

from nnexp import DataSpec
from nnexp.data.seeding import seeded_generator
from nnexp.plotting.rendering import render
from nnexp.probing.field_formula import receptive_field_formulas
from nnexp.probing.field_rules import Field
from nnexp.probing.input_changes import change_masks
from nnexp.probing.measured_field import MeasuredFields
from nnexp.probing.runner import ProbeLanes
from nnexp.probing.view import View
from nnexp.registry.discovery import Registry
from nnexp.registry.observation import Observation, to_plain
from nnexp.training.lane import Lane

pytestmark = pytest.mark.slow


POOLED = [3, 6, 10, 16, 24, 36, 52, 76, 108, 156, 220, 316]


@pytest.fixture
def look(registry: Registry, view_of: Callable[..., View]) -> Callable[..., Any]:
    """What the probe saw of a job, and the numbers of its pictures as they are written."""

    def see(*overrides: str, plugins: Registry = registry) -> Any:
        return _seen(registry, view_of(*overrides, plugins=plugins))

    return see


def _seen(registry: Registry, view: View) -> Any:
    seen = registry.get("probe", "receptive_field").load()()(view)
    return seen and (seen, {name: to_plain(picture.numbers) for name, picture in seen.pictures.items()})


def _sizes(seen: Observation, kind: str) -> dict[str, float]:
    return {name.rpartition("/")[0]: v for name, v in seen.scalars.items() if name.endswith(f"/{kind}")}


def _in_order(seen: Observation, kind: str, layer: str = "layers.") -> list[float]:
    return [size for name, size in _sizes(seen, kind).items() if name.startswith(layer)]


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        (["channels=[4]"], [3]),
        (["channels=[4,4]", "pooling=1"], [3, 5]),
        (["channels=[4,4,4]", "pooling=1"], [3, 5, 7]),
        (["channels=[4,4]", "pooling=2"], [3, 8]),
        (["channels=[4,4]", "pooling=1", "stride=2"], [3, 7]),
        (["channels=[4,4]", "pooling=1", "dilation=2"], [5, 9]),
        (["channels=[4,4,4]", "pooling=1", "residual=true"], [3, 5, 7]),
        (["channels=[4,4]", "pooling=2", "residual=true"], [3, 8]),
        (["channels=[3,3]", "kernel_size=2", "pooling=3"], [2, 7]),
    ],
    ids=str,
)
def test_what_is_measured_is_the_formula(values, fields, look):
    seen, _ = look("dataset=edges", "dataset.size=13", "model=cnn", *(f"model.{value}" for value in values))
    assert _in_order(seen, "measured") == _in_order(seen, "formula") == fields
    for name, effective in _sizes(seen, "effective").items():
        assert 1 <= effective <= _sizes(seen, "measured")[name] + 1e-9


def test_conv_pool_conv_sees_64_pixels_and_the_output_sees_all(look):
    seen, numbers = look("dataset=edges", "model=cnn")
    assert sum(sum(row) for row in numbers["map"]["moved"]) == 64
    assert _sizes(seen, "measured")["output"] == 12
    assert "output" not in _sizes(seen, "formula")
    assert numbers["depth"]["layers"] == ["layers.0", "layers.1", "output"]
    felt = [[value > 0 for value in row] for row in numbers["map"]["effective"]]
    assert felt == [[bool(value) for value in row] for row in numbers["map"]["moved"]]


def test_of_a_filter_that_looks_at_its_centre_alone_the_formula_does_not_tell(make_lane, registry):
    lane = make_lane("dataset=edges", "model=cnn", "model.channels=[4]")
    with torch.no_grad():
        lane.module.layers[0].weight *= torch.eye(9)[4].view(3, 3)
    own = ProbeLanes(lambda job: Lane(job, registry, torch.device("cpu"), lambda: False)).copy_from(lane)
    seen, _ = _seen(registry, View(own.fresh(), seeded_generator(0, "probe"), own.exact))
    assert (_in_order(seen, "measured"), _in_order(seen, "formula")) == ([1.0], [3.0])
    assert _in_order(seen, "effective") == [pytest.approx(1)]


STRANGE = '''"""Layers in a row, with a sum around two of them, and numbers of a pixel last. Our own."""
from torch import nn
from nnexp import DataSpec, model


class Last(nn.Module):
    """A convolution of images (B, H, W, C)."""

    def __init__(self, size):
        super().__init__()
        self.inner = nn.Conv2d(size, size, (3, 5), padding=(1, 2))

    def forward(self, x):
        return self.inner(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) + x


class Columns(nn.Module):
    """Positions first, then rows, then numbers."""

    def forward(self, x):
        return x.flatten(2).permute(2, 0, 1).tanh()


@model
class Strange(nn.Module):
    """A network.

    Args:
        data: what the dataset says of its tensors.
    """

    def __init__(self, data: DataSpec):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2))
        self.last, self.columns = Last(6), Columns()
        self.wide = nn.Conv2d(6, 3, 3, padding=2, dilation=2)
        self.head = nn.Linear(3 * 64, data.outputs)

    def forward(self, x, lengths=None):
        x = self.stem(x)
        x = self.wide(self.last(x.movedim(1, -1)).movedim(-1, 1))
        return self.head(self.columns(x).transpose(0, 1).flatten(1))
'''


def test_an_architecture_that_nobody_has_seen_is_measured(look, registry_of):
    plugins = registry_of("strange", model=STRANGE)
    _, numbers = look("dataset=edges", "dataset.size=16", "model=strange", plugins=plugins)
    sizes = numbers["depth"]["sizes along each axis"]
    assert {name: sizes["measured"][name] for name in ("stem.0", "stem.1", "stem.2", "stem.3", "last.inner")} == {
        "stem.0": [3, 3],
        "stem.1": [3, 3],
        "stem.2": [3, 3],
        "stem.3": [4, 4],
        "last.inner": [8, 12],
    }
    assert sizes["measured"]["last"] == [8, 12]
    assert sizes["formula"]["last"] == [8, 12]
    assert sizes["formula"]["wide"] == [16, 20]
    assert sizes["measured"]["wide"] == [15, 16]  # no place is far enough from the border
    assert sizes["formula"]["columns"] == [None, None]
    assert sizes["measured"]["columns"] == [15, 16]
    assert "stem" not in numbers["depth"]["layers"]  # it gives what its last layer gives


@pytest.mark.parametrize("model", ["rnn", "lstm", "gru"])
def test_a_recurrent_layer_sees_all_steps_up_to_its_own(model, look):
    seen, numbers = look("dataset=chartext", f"model={model}")
    head = numbers["time"]["layers"]["head"]
    assert (head["most steps behind"], head["most steps ahead"]) == (39, 0)
    assert head["lags"] == list(range(39, -1, -1))
    assert all(head["moved"])
    assert _sizes(seen, "measured") == {"core": 40, "head": 40}
    assert _sizes(seen, "formula") == {}


EMBEDDED = '''"""Looks tokens up, and reads them with time first. Our own."""
from torch import nn
from nnexp import DataSpec, model


@model
class Embedded(nn.Module):
    """A network.

    Args:
        data: what the dataset says of its tensors.
    """

    def __init__(self, data: DataSpec):
        super().__init__()
        self.look, self.core, self.head = nn.Embedding(data.vocab, 4), nn.GRU(4, 8), nn.Linear(8, data.outputs)

    def forward(self, x, lengths=None):
        return self.head(self.core(self.look(x.long()).transpose(0, 1))[0]).transpose(0, 1)
'''


def test_time_may_come_first_and_tokens_may_be_looked_up(look, registry_of):
    plugins = registry_of("embedded", model=EMBEDDED)
    seen, numbers = look("dataset=chartext", "model=embedded", plugins=plugins)
    assert _sizes(seen, "measured") == {"look": 1, "core": 40, "head": 40, "output": 40}
    assert _sizes(seen, "formula") == {"look": 1}
    assert _sizes(seen, "effective") == {}  # no gradient of a token can be asked
    assert numbers["time"]["layers"]["output"]["most steps ahead"] == 0


def test_in_both_directions_it_sees_what_is_to_come(look):
    seen, numbers = look("dataset=pattern", "dataset.min_length=13", "model=gru", "model.bidirectional=true")
    core = numbers["time"]["layers"]["core"]
    assert (core["most steps behind"], core["most steps ahead"]) == (15, 15)
    assert _sizes(seen, "measured") == {"core": 16, "output": 16}


def test_a_causal_convolution_sees_four_steps_behind_and_none_ahead(look):
    seen, numbers = look("dataset=chartext", "model=cnn")
    head = numbers["time"]["layers"]["head"]
    assert (head["most steps behind"], head["most steps ahead"]) == (4, 0)
    assert [lag for lag, moved in zip(head["lags"], head["moved"], strict=True) if moved] == [4, 3, 2, 1, 0]
    felt = [lag for lag, log in zip(head["lags"], head["log10 effective"], strict=True) if log is not None]
    assert felt == [4, 3, 2, 1, 0]
    assert _sizes(seen, "measured") == _sizes(seen, "formula") == {"layers.0": 3, "layers.1": 5, "head": 5}


def test_attention_sees_everything_and_what_comes_before_it_a_patch(look):
    seen, _ = look("dataset=edges", "model=vit", "model.num_layers=1", "model.patch_size=3")
    sizes = _sizes(seen, "measured")
    assert (sizes["embed"], sizes["blocks.0.qkv"], sizes["blocks.0.out"], sizes["norm"]) == (3, 3, 12, 12)


def test_of_vectors_and_without_positions_there_is_nothing_to_see(look):
    assert look("dataset=moons", "model=cnn") is None
    assert look("dataset=edges", "model=mlp") is None


def test_positions_are_drawn_from_the_views_generator_alone(look, undrawn):
    with undrawn():
        first, again = (look("dataset=pattern", "model=cnn")[0].scalars for _ in range(2))
    assert first == again


def test_a_dozen_layers_see_25_pixels_and_with_pooling_most_of_an_image():
    plain_field, pooled, found = Field(-1), Field(-1), []
    for number in range(12):
        plain_field, pooled = plain_field.through(3), pooled.through(3)
        assert plain_field.size == 3 + 2 * number
        pooled = pooled.through(2, 2) if number % 2 else pooled
        found.append(pooled.size)
    assert found == POOLED


def test_the_closed_form_of_a_network_follows_it():
    layers = [[nn.Conv2d(1, 1, 3, padding=1), nn.MaxPool2d(2) if n % 2 else nn.Identity()] for n in range(12)]
    network = nn.Sequential(*(layer for pair in layers for layer in pair))
    sizes = [
        size for call, (size, _) in receptive_field_formulas(network, torch.zeros(1, 1, 64, 64), (2, 3)) if call.name
    ]
    assert sizes[1::2] == POOLED


def _shifted(x, by):
    return F.pad(x, (by, -by))


def _conv(x, **options):
    return F.conv1d(x, torch.ones(1, 1, options.pop("size", 3)), **options)


@pytest.mark.parametrize(
    ("function", "size"),
    [
        (lambda x: _conv(_shifted(x, 3), padding=1) + _conv(x, padding=1) + _conv(_shifted(x, -3), padding=1), 9),
        (lambda x: _conv(x) + x[..., 2:], 3),
        (lambda x: _conv(x) + x[..., :-2], 3),
        (lambda x: _conv(x, padding=1) + _conv(x, size=5, padding=2), 5),
        (lambda x: _conv(x, size=3, dilation=4, padding="same") + _shifted(x, 6), 11),
        (lambda x: _conv(x, stride=2, padding=1)[..., 1:] + x[..., 0:-2:2], 4),
        (lambda x: F.avg_pool1d(x, 3, 1, 1) + _shifted(x, -4), 6),
        (lambda x: _conv(_conv(x, stride=2, padding=1)[..., 2:] + x[..., 4::2]), 7),
        (lambda x: F.avg_pool1d(_shifted(x, 2), 2) + F.max_pool1d(x, 2), 4),
    ],
)
def test_branches_that_are_shifted_see_from_the_first_to_the_last_of_their_positions(function, size):
    module = nn.Identity()
    module.__dict__["forward"] = function
    x = torch.rand(1, 1, 40, requires_grad=True)
    (_, sizes), *_ = [each for each in receptive_field_formulas(module, x, (2,)) if each[0].module is module]
    output = function(x)
    (gradient,) = torch.autograd.grad(output[0, 0, output.shape[-1] // 2], x)
    places = gradient[0, 0].nonzero().flatten()
    assert sizes == [size]
    assert size - 1 <= places[-1] - places[0] + 1 <= size  # max pooling may hide one position from the gradient


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.AvgPool1d(3, 2), 3),
        (nn.LPPool1d(2, 2), None),
        (nn.LayerNorm(12), None),
        (nn.GroupNorm(1, 4), None),
        (nn.Linear(12, 12), None),
        (nn.BatchNorm1d(4).eval(), 1),
        (nn.AdaptiveAvgPool1d(4), 3),
        (nn.AdaptiveAvgPool1d(5), None),
        (nn.Softmax(-1), None),
        (nn.GELU(), 1),
        (nn.Flatten(), None),
    ],
    ids=str,
)
def test_the_closed_form_is_defined_where_positions_stay_apart(layer, expected):
    assert receptive_field_formulas(layer, torch.randn(2, 4, 12), [2])[-1][1] == [expected]


def test_a_layer_that_steps_over_inputs_by_slicing_has_their_jump():
    class Sliced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(4, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(torch.cat([x, 2 * x], 1)[:, 2:6, ::2].transpose(1, 2).contiguous().transpose(1, 2).relu_())

    assert receptive_field_formulas(Sliced(), torch.randn(2, 4, 12), [2])[-1][1] == [5]


def test_long_sequences_are_changed_in_blocks_and_the_middle_is_exact(look):
    seen, _ = look(
        "dataset=gaussian", "dataset.length=700", "dataset.num_train=40", "model=cnn", "model.channels=[2,2]"
    )
    assert _in_order(seen, "measured") == _in_order(seen, "formula") == [3, 8]
    assert _sizes(seen, "measured")["output"] == 700
    masks, first, last = change_masks((700,))
    assert masks.sum(0).eq(1).all()
    assert (masks.sum(1) == last[0] - first[0] + 1).all()


def test_large_images_are_changed_by_rows_and_columns(look):
    seen, numbers = look("dataset=edges", "dataset.size=40", "dataset.num_train=40", "model=cnn", "model.pooling=3")
    assert _in_order(seen, "measured") == _in_order(seen, "formula") == [3, 11]
    assert sum(sum(row) for row in numbers["map"]["moved"]) == 121


def test_the_place_that_is_shown_has_the_largest_field_next_to_the_middle(view_of):
    with view_of("dataset=edges", "model=cnn").exact() as exact:
        measured = MeasuredFields(exact)
    assert measured.layers["layers.0"].centre_position == [5, 5]
    assert measured.layers["layers.1"].centre_position in ([2, 2], [2, 3], [3, 2], [3, 3])


def test_every_picture_is_drawn_from_what_is_written(look):
    for job in (("dataset=edges", "model=cnn"), ("dataset=pattern", "model=lstm")):
        seen, numbers = look(*job)
        assert len(seen.pictures) == 2
        for name, picture in seen.pictures.items():
            assert render(picture, numbers[name], "step 10")["png"].startswith(b"\x89PNG")


def test_where_rows_of_an_image_are_steps_a_row_is_seen_as_a_whole():
    data = DataSpec(kind="image", shape=(1, 9, 12), outputs=2, per_step=True)
    found = receptive_field_formulas(plugin("model", "cnn")(data), torch.randn(2, 1, 9, 12), (2, 3))
    assert {call.name: sizes for call, sizes in found}["layers.1"] == [5, None]
