"""Any kind of data as a sequence or a vector, and states of valid positions, on tensors small enough to read."""

import pytest
import torch
from contract.inputs import SPECS, inputs

from nnexp.data.data_spec import DataSpec
from nnexp.data.views import as_sequence, as_vector, last_valid, mean_valid, valid_positions


@pytest.mark.parametrize("kind", SPECS)
def test_views_have_the_shapes_that_the_spec_promises(kind):
    data = SPECS[kind]
    x = inputs(data)
    assert as_sequence(x, data).shape == (2, data.max_length, data.channels)
    assert as_vector(x, data).shape == (2, data.features)


@pytest.mark.parametrize(
    ("kind", "max_length", "channels"), [("vector", 5, 1), ("sequence", 4, 3), ("tokens", 6, 7), ("image", 4, 15)]
)
def test_the_spec_counts_positions_and_numbers_per_position(kind, max_length, channels):
    data = SPECS[kind]
    assert (data.max_length, data.channels, data.features) == (max_length, channels, max_length * channels)


@pytest.mark.parametrize("kind", SPECS)
def test_both_views_hold_every_number_of_an_input_once(kind):
    data = SPECS[kind]
    x = inputs(data)
    numbers = [as_sequence(x, data)[1], as_vector(x, data)[1]]
    assert torch.equal(*(n.flatten().sort().values for n in numbers))


@pytest.mark.parametrize("kind", ["vector", "sequence", "image"])
def test_the_views_of_real_numbers_are_those_numbers(kind):
    data = SPECS[kind]
    x = torch.arange(2.0 * data.features).view(2, *data.shape)
    assert as_sequence(x, data).flatten().sort().values.tolist() == list(range(2 * data.features))
    assert as_vector(x, data).tolist() == x.reshape(2, -1).tolist()


def test_a_vector_is_a_sequence_of_one_number_each():
    assert as_sequence(torch.tensor([[1.0, 2.0]]), DataSpec(kind="vector", shape=(2,))).tolist() == [[[1.0], [2.0]]]


def test_a_sequence_is_itself():
    x = inputs(SPECS["sequence"])
    assert as_sequence(x, SPECS["sequence"]) is x


def test_tokens_are_one_hot_and_laid_side_by_side():
    data = DataSpec(kind="tokens", shape=(2,), vocab=3)
    x = torch.tensor([[2, 0]])
    assert as_sequence(x, data).tolist() == [[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]]
    assert as_vector(x, data).tolist() == [[0.0, 0.0, 1.0, 1.0, 0.0, 0.0]]


def test_an_image_is_read_row_by_row_with_all_channels_of_the_row():
    image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]])
    rows = as_sequence(image, DataSpec(kind="image", shape=(2, 2, 2)))
    assert rows.tolist() == [[[1.0, 2.0, 5.0, 6.0], [3.0, 4.0, 7.0, 8.0]]]


def test_the_last_state_is_that_of_the_last_position_without_lengths():
    states = torch.arange(12.0).view(2, 3, 2)
    assert last_valid(states, None).tolist() == [[4.0, 5.0], [10.0, 11.0]]


def test_the_last_valid_state_is_at_each_rows_own_length():
    states = torch.arange(12.0).view(2, 3, 2)
    assert last_valid(states, torch.tensor([1, 3])).tolist() == [[0.0, 1.0], [10.0, 11.0]]
    assert last_valid(states, torch.tensor([3, 2])).tolist() == [[4.0, 5.0], [8.0, 9.0]]


def test_the_gradient_reaches_the_valid_position_alone():
    states = torch.zeros(1, 3, 2, requires_grad=True)
    last_valid(states, torch.tensor([2])).sum().backward()
    assert states.grad.tolist() == [[[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]]


def test_the_mean_of_states_is_over_all_positions_without_lengths():
    states = torch.arange(12.0).view(2, 3, 2)
    assert mean_valid(states, None).tolist() == [[2.0, 3.0], [8.0, 9.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_mean_of_states_leaves_padding_out(dtype):
    states = torch.arange(12.0, dtype=dtype).view(2, 3, 2)
    mean = mean_valid(states, torch.tensor([1, 2]))
    assert mean.tolist() == [[0.0, 1.0], [7.0, 8.0]]
    assert mean.dtype == dtype


def test_positions_before_the_length_are_valid():
    expected = [[True, False, False], [True, True, True], [False, False, False]]
    assert valid_positions(torch.tensor([1, 3, 0]), 3).tolist() == expected


@pytest.mark.parametrize("lanes", [(), (2,)], ids=["one", "lanes"])
def test_lengths_of_any_leading_shape_have_their_positions_last(lanes):
    assert (
        valid_positions(torch.ones(*lanes, 4, dtype=torch.long), 5).sum(-1).tolist() == torch.ones(*lanes, 4).tolist()
    )
