"""Padding in every view, windows over the past and patches of an image, on tensors small enough to read."""

import pytest
import torch
from contract.inputs import SPECS, inputs
from torch.nn.functional import fold

from nnexp.data.data_spec import DataSpec
from nnexp.data.views import as_image, as_patches, as_sequence, as_vector, as_windows, patch_counts

LENGTHS = torch.tensor([2, 3])
VIEWS = {
    "sequence": as_sequence,
    "vector": as_vector,
    "windows": lambda x, data, lengths=None: as_windows(x, data, 2, lengths),
    "patches": lambda x, data, lengths=None: as_patches(x, data, 2, lengths),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["vector", "sequence", "image"])
def test_padding_reads_as_zeros_whatever_stands_there(kind, view):
    data = SPECS[kind]
    x = inputs(data)
    zeros, wild = x.clone(), x.clone()
    for row, length in enumerate(LENGTHS.tolist()):
        after = (row, slice(None), slice(length, None)) if kind == "image" else (row, slice(length, None))
        zeros[after], wild[after] = 0.0, torch.nan
    assert torch.equal(VIEWS[view](wild, data, LENGTHS), VIEWS[view](zeros, data))
    assert not torch.equal(VIEWS[view](x, data, LENGTHS), VIEWS[view](x, data))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", SPECS)
def test_whole_lengths_change_nothing(kind, view):
    data = SPECS[kind]
    x = inputs(data)
    assert torch.equal(VIEWS[view](x, data, torch.full((2,), data.max_length)), VIEWS[view](x, data))


def test_padding_among_tokens_is_no_token_at_all():
    data = DataSpec(kind="tokens", shape=(3,), vocab=2)
    sequence = as_sequence(torch.tensor([[1, 0, 1]]), data, torch.tensor([2]))
    assert sequence.tolist() == [[[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]]


def test_an_image_without_lengths_is_itself():
    x = inputs(SPECS["image"])
    assert as_image(x, SPECS["image"]) is x


def test_a_window_holds_a_position_and_those_before_it_oldest_first():
    data = DataSpec(kind="sequence", shape=(3, 2))
    x = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
    windows = as_windows(x, data, 2).unflatten(-1, (2, 2))  # channels, then places of the window
    assert windows[0, :, :, 1].tolist() == x[0].tolist()
    assert windows[0, :, :, 0].tolist() == [[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("kind", SPECS)
def test_every_position_has_a_window(kind, size):
    data = SPECS[kind]
    assert as_windows(inputs(data), data, size).shape == (2, data.max_length, size * data.channels)


def test_a_window_of_one_position_is_the_sequence():
    x = inputs(SPECS["tokens"])
    assert torch.equal(as_windows(x, SPECS["tokens"], 1), as_sequence(x, SPECS["tokens"]))


@pytest.mark.parametrize("size", [2, 4, 9])
def test_a_window_depends_on_no_later_position(size):
    x = torch.randn(1, 4, 3, requires_grad=True)
    for position in range(4):
        (grad,) = torch.autograd.grad(as_windows(x, SPECS["sequence"], size)[0, position].sum(), x)
        assert grad[0].any(1).tolist() == [position - size < place <= position for place in range(4)]


def test_the_first_patch_is_top_left_and_the_second_right_of_it():
    data = DataSpec(kind="image", shape=(1, 4, 6))
    patches = as_patches(torch.arange(24.0).view(1, 1, 4, 6), data, 2)
    assert patches[0, 0].tolist() == [0.0, 1.0, 6.0, 7.0]
    assert patches[0, 1].tolist() == [2.0, 3.0, 8.0, 9.0]
    assert patches[0, 3].tolist() == [12.0, 13.0, 18.0, 19.0]


def test_a_patch_holds_one_channel_after_the_other():
    data = DataSpec(kind="image", shape=(2, 2, 2))
    assert as_patches(torch.arange(8.0).view(1, 2, 2, 2), data, 2).tolist() == [[list(range(8))]]


@pytest.mark.parametrize("shape", [(1, 12, 12), (3, 6, 9)])
def test_an_image_can_be_put_together_again_from_its_patches(shape):
    x = torch.randn(2, *shape)
    patches = as_patches(x, DataSpec(kind="image", shape=shape), 3)
    assert torch.equal(fold(patches.transpose(1, 2), shape[1:], 3, stride=3), x)


def test_an_image_that_does_not_divide_gets_zeros_to_the_right_and_below():
    data = DataSpec(kind="image", shape=(1, 3, 3))
    patches = as_patches(torch.arange(1.0, 10.0).view(1, 1, 3, 3), data, 2)
    assert patches.tolist() == [[[1, 2, 4, 5], [3, 0, 6, 0], [7, 8, 0, 0], [9, 0, 0, 0]]]


@pytest.mark.parametrize("kind", [kind for kind in SPECS if kind != "image"])
def test_data_that_are_no_image_have_their_positions_for_patches(kind):
    x = inputs(SPECS[kind])
    assert torch.equal(as_patches(x, SPECS[kind], 3), as_sequence(x, SPECS[kind]))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("kind", SPECS)
def test_patches_are_counted_before_there_are_any(kind, size):
    data = SPECS[kind]
    assert as_patches(inputs(data), data, size).shape == (2, *patch_counts(data, size))
