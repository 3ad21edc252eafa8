"""Exclusive or: labels from the signs, balance over the four corners, noise."""

import pytest
import torch
from contract import splits
from contract.registry import plugin

from nnexp.data.seeding import seeded_generator

Xor = plugin("dataset", "xor")
SPLITS = ("train", "val", "test")


def _made(seed: int = 0, **values):
    return Xor(seeded_generator(seed, "data"), **values)


@pytest.mark.parametrize("split", SPLITS)
def test_without_noise_rows_are_corners_and_the_label_says_whether_signs_differ(split):
    x, y = getattr(_made(noise=0.0), split)
    assert {tuple(row) for row in x.tolist()} == {(-1, -1), (-1, 1), (1, -1), (1, 1)}
    assert y.tolist() == [int(a * b < 0) for a, b in x.tolist()]


@pytest.mark.parametrize("num_train", [4, 400, 401, 403])
def test_corners_are_balanced_to_the_last_row(num_train):
    corners = [tuple(row) for row in _made(noise=0.0, num_train=num_train).train[0].tolist()]
    counts = [corners.count(corner) for corner in set(corners)]
    assert len(counts) == 4
    assert max(counts) - min(counts) <= 1


def test_noise_has_its_standard_deviation_and_moves_no_label():
    quiet, loud = _made(noise=0.0), _made(noise=0.3)
    for split in SPLITS:
        assert torch.equal(getattr(quiet, split)[1], getattr(loud, split)[1])
    moved = loud.test[0] - quiet.test[0]
    assert moved.std().item() == pytest.approx(0.3, rel=0.1)
    assert moved.mean().item() == pytest.approx(0, abs=0.03)


def test_rows_come_in_random_order():
    y = _made().test[1]
    assert (y[1:] != y[:-1]).sum().item() == pytest.approx(1000, abs=112)  # five standard deviations


def test_the_number_of_training_rows_changes_neither_of_the_other_splits():
    splits.training_rows_leave_the_others(_made)


def test_a_seed_gives_the_same_rows_again_and_another_seed_gives_others():
    assert torch.equal(_made(3).train[0], _made(3).train[0])
    assert not torch.equal(_made(3).train[1], _made(4).train[1])
