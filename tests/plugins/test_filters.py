"""filters: pictures against weights that were put there, in whatever order a model reads."""

import json
from functools import partial

import pytest
import torch
from contract.registry import plugin
from torch import nn

from nnexp import DataSpec
from nnexp.plotting.rendering import render
from nnexp.registry.observation import to_plain


class PatchesOfColours(nn.Module):
    """Reads patches of 2 x 3 pixels, the three colours of each pixel side by side, from bottom to top."""

    def __init__(self):
        super().__init__()
        self.read, self.head = nn.Linear(2 * 3 * 3, 20), nn.Linear(20, 2)

    def forward(self, x, lengths=None):
        patches = x.unflatten(2, (-1, 2)).unflatten(4, (-1, 3))  # (B, C, rows, 2, columns, 3)
        tokens = patches.flip(3).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        return self.head(self.read(tokens).relu().mean(1))


IMAGE = DataSpec(kind="image", shape=(1, 12, 12), outputs=4)
SEQUENCE = DataSpec(kind="sequence", shape=(16, 2))
PER_STEP = DataSpec(kind="sequence", shape=(16, 2), per_step=True)
TOKENS = DataSpec(kind="tokens", shape=(16,), vocab=5)
VECTOR = DataSpec(kind="vector", shape=(2,))


@pytest.fixture
def made(view_on):
    return partial(view_on, 3)


@pytest.fixture
def look():
    return plugin("probe", "filters")()


def _shown(seen):
    return torch.tensor(json.loads(json.dumps(to_plain(seen.pictures["first_layer"].numbers)))["filters"])


def _close(shown, weights):
    torch.testing.assert_close(shown, weights.detach(), rtol=0, atol=5.1e-4 * weights.abs().max().item())


def test_a_convolutions_are_its_weights(made, look):
    view = made(IMAGE, "cnn")
    _close(_shown(look(view)), view.module.layers[0].weight)


def test_of_a_convolution_in_one_dimension_channels_stand_above_each_other(made, look):
    view = made(SEQUENCE, "cnn")
    _close(_shown(look(view)), view.module.layers[0].weight.unsqueeze(1))


def test_a_convolution_of_tokens_has_a_channel_for_each_token(made, look):
    view = made(TOKENS, "cnn")
    _close(_shown(look(view)), view.module.layers[0].weight.unsqueeze(1))


def test_a_layer_that_reads_a_whole_image_has_pictures_of_its_size(made, look):
    view = made(IMAGE, "mlp")
    _close(_shown(look(view)), view.module.hidden[0].weight.view(16, 1, 12, 12))


def test_a_layer_that_reads_patches_has_pictures_of_theirs(made, look):
    view = made(IMAGE, "vit")
    _close(_shown(look(view)), view.module.embed.weight.view(32, 1, 4, 4)[:16])


def test_a_layer_that_reads_a_whole_sequence_has_a_row_for_each_channel(made, look):
    view = made(SEQUENCE, "linear")
    _close(_shown(look(view)), view.module.head.weight.view(2, 1, 16, 2).mT)


def test_of_windows_one_that_is_whole_is_shown(made, look):
    view = made(PER_STEP, "linear", context=11)
    _close(_shown(look(view)), view.module.head.weight.view(2, 1, 2, 11))


def test_in_whatever_order_an_unknown_model_reads(made, look):
    view = made(DataSpec(kind="image", shape=(3, 8, 9)), PatchesOfColours())
    weights = view.module.read.weight.view(20, 2, 3, 3).flip(1).permute(0, 3, 1, 2)  # filters, colours, rows, columns
    _close(_shown(look(view)), weights[:16])


def test_weights_of_zero_still_have_their_size_and_stay_zero(made, look):
    view = made(IMAGE, "mlp", init_scale=0.0)
    assert torch.equal(_shown(look(view)), torch.zeros(16, 1, 12, 12))


def test_the_model_is_left_with_its_weights(made, look):
    view = made(IMAGE, "vit")
    before = view.module.embed.weight.clone()
    look(view)
    assert torch.equal(view.module.embed.weight, before)


def test_the_title_says_what_is_left_out(made, look):
    view = made(DataSpec(kind="image", shape=(4, 12, 12)), "cnn", channels=(40,))
    cut = "first 16 of 40 filters, first 3 of 4 channels"
    assert look(view).pictures["first_layer"].title == f"Filters of layers.0, {cut}"


def test_large_images_are_shown_in_means_of_pixels(made, look):
    view = made(DataSpec(kind="image", shape=(1, 64, 64), outputs=4), "linear")
    with torch.no_grad():
        view.module.head.weight.copy_(torch.arange(64.0).repeat(4, 64))  # each pixel's column
    _close(_shown(look(view)), torch.arange(0.5, 64, 2).expand(4, 1, 32, 32))


def test_it_says_nothing_where_the_first_layer_reads_no_positions(made, look):
    cases = [(VECTOR, "mlp"), (VECTOR, "cnn"), (SEQUENCE, "lstm"), (SEQUENCE, "vit"), (TOKENS, "mlp"), (IMAGE, "gru")]
    assert [case for case in cases if look(made(*case)) is not None] == []


def test_it_is_drawn_of_a_real_run(view_of, look):
    picture = look(view_of("dataset=edges", "model=cnn")).pictures["first_layer"]
    assert render(picture, json.loads(json.dumps(to_plain(picture.numbers))), "step 0")["png"]
