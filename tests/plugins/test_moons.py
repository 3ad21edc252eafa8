"""Two moons: on the half circles without noise, balanced, and each split its own draw."""

import math

import pytest
import torch
from contract.registry import plugin

from nnexp.data.seeding import seeded_generator

Moons = plugin("dataset", "moons")
SPLITS = ("train", "val", "test")


def _made(seed: int = 0, **values):
    return Moons(seeded_generator(seed, "data"), **values)


@pytest.mark.parametrize("split", SPLITS)
def test_rows_without_noise_lie_on_their_half_circle(split):
    x, y = getattr(_made(noise=0.0), split)
    upper, lower = x[y == 0].double(), x[y == 1].double()
    assert (upper.norm(dim=1) - 1).abs().max() < 1e-6
    assert upper[:, 1].min() > -1e-6
    centre = torch.tensor([1.0, 0.5], dtype=torch.float64)
    assert ((lower - centre).norm(dim=1) - 1).abs().max() < 1e-6
    assert lower[:, 1].max() < 0.5 + 1e-6


def test_angles_are_uniform_on_both_half_circles():
    x, y = _made(noise=0.0, num_train=20000).train
    upper, lower = x[y == 0], x[y == 1]
    for angle in (torch.atan2(upper[:, 1], upper[:, 0]), torch.atan2(0.5 - lower[:, 1], 1 - lower[:, 0])):
        share = angle.clamp(0, math.pi).histc(10, 0, math.pi) / len(angle)
        assert (share - 0.1).abs().max() < 0.015  # five standard errors


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_the_noise_has_the_standard_deviation_asked_for_on_each_coordinate(noise):
    clean, noisy = _made(noise=0.0, num_test=20000), _made(noise=noise, num_test=20000)
    assert torch.equal(clean.test[1], noisy.test[1])
    difference = noisy.test[0] - clean.test[0]
    assert difference.std(dim=0).tolist() == pytest.approx([noise, noise], rel=0.03)
    assert difference.mean(dim=0).abs().max() < 0.04 * noise


@pytest.mark.parametrize("num_rows", [2, 3, 400, 401])
@pytest.mark.parametrize("split", SPLITS)
def test_classes_are_balanced_to_the_last_row(split, num_rows):
    x, y = getattr(_made(**{f"num_{split}": num_rows}), split)
    assert len(x) == len(y) == num_rows
    assert y.sum().item() == num_rows // 2


def test_classes_come_in_random_order():
    y = _made().train[1]
    changes = (y[1:] != y[:-1]).sum().item()
    assert changes == pytest.approx(200, abs=50)  # five standard deviations


def test_the_number_of_training_rows_changes_neither_of_the_other_splits():
    few, many = _made(num_train=10), _made(num_train=1000)
    for split in ("val", "test"):
        assert all(torch.equal(a, b) for a, b in zip(getattr(few, split), getattr(many, split), strict=True))
    assert (len(few.train[0]), len(many.train[0])) == (10, 1000)


def test_no_row_is_in_two_splits():
    made = _made()
    rows = torch.cat([getattr(made, split)[0] for split in SPLITS])
    assert len(rows.unique(dim=0)) == 400 + 1000 + 2000


def test_a_straight_line_separates_most_rows_and_not_all():
    x, y = _made(num_test=4000).test
    inputs = torch.cat([x, torch.ones(len(x), 1)], dim=1).double()
    line = torch.linalg.lstsq(inputs, 2.0 * y.double() - 1).solution
    share = ((inputs @ line > 0) == y.bool()).double().mean().item()
    assert 0.85 < share < 0.90
