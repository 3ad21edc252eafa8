"""Independent Gaussian numbers, and their scaled sum."""

import pytest
import torch
from contract import splits
from contract.registry import plugin

from nnexp.data.seeding import seeded_generator

Gaussian = plugin("dataset", "gaussian")
SPLITS = ("train", "val", "test")


def _made(seed: int = 0, **values):
    return Gaussian(seeded_generator(seed, "data"), **values)


@pytest.mark.parametrize(("length", "channels"), [(50, 4), (1, 1), (7, 3)])
def test_the_target_is_the_sum_of_all_numbers_over_the_root_of_their_count(length, channels):
    made = _made(length=length, channels=channels)
    for split in SPLITS:
        x, y = getattr(made, split)
        assert x.shape[1:] == (length, channels)
        expected = [[sum(map(sum, row)) / (length * channels) ** 0.5] for row in x.double().tolist()]
        torch.testing.assert_close(y.double(), torch.tensor(expected).double(), rtol=0, atol=1e-5)


def test_numbers_and_targets_have_a_variance_of_1():
    x, y = _made(num_train=10_000, length=20).train
    assert x.std().item() == pytest.approx(1, abs=0.01)
    assert x.mean().item() == pytest.approx(0, abs=0.01)
    assert y.std().item() == pytest.approx(1, abs=0.04)


def test_numbers_at_different_places_are_independent():
    x = _made(num_train=10_000, length=5, channels=2).train[0].flatten(1)
    correlation = torch.corrcoef(x.T) - torch.eye(10)
    assert correlation.abs().max() < 0.05


def test_the_number_of_training_rows_changes_neither_of_the_other_splits():
    splits.training_rows_leave_the_others(_made)


def test_a_seed_gives_the_same_rows_again_and_another_seed_gives_others():
    assert torch.equal(_made(3).train[0], _made(3).train[0])
    assert not torch.equal(_made(3).train[0], _made(4).train[0])
