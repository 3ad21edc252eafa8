"""Sums of sines: the target continues what is seen, has a variance of 1, and holds no noise."""

import math

import pytest
import torch
from contract import splits
from contract.registry import plugin

from nnexp.data.seeding import seeded_generator

Sine = plugin("dataset", "sine")
SPLITS = ("train", "val", "test")


def _made(seed: int = 0, **values):
    return Sine(seeded_generator(seed, "data"), **values)


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_one_wave_without_noise_goes_on_by_its_own_recurrence(horizon):
    """A sine of frequency w has s(t + 1) = 2 cos(w) s(t) - s(t - 1): w is found from what is seen."""
    for split in SPLITS:
        x, y = getattr(_made(num_waves=1, noise=0.0, horizon=horizon, length=40), split)
        seen = x.squeeze(-1).double()
        now, around = seen[:, 1:-1], seen[:, 2:] + seen[:, :-2]
        twice_cos = (now * around).sum(1) / now.square().sum(1)
        before, last = seen[:, -2], seen[:, -1]
        for _ in range(horizon):
            before, last = last, twice_cos * last - before
        torch.testing.assert_close(last.float(), y.squeeze(1), rtol=1e-2, atol=1e-2)


def test_periods_are_from_8_to_32_positions():
    x = _made(num_waves=1, noise=0.0, length=40).test[0].squeeze(-1).double()
    now, around = x[:, 1:-1], x[:, 2:] + x[:, :-2]
    period = 2 * math.pi / ((now * around).sum(1) / now.square().sum(1) / 2).acos()
    assert 7.99 < period.min().item() < 8.5
    assert 31 < period.max().item() < 32.1


@pytest.mark.parametrize("num_waves", [1, 2, 5])
def test_the_variance_of_seen_and_target_is_1(num_waves):
    x, y = _made(num_waves=num_waves, noise=0.0, num_train=20_000).train
    assert y.var().item() == pytest.approx(1, abs=0.08)
    assert x.var().item() == pytest.approx(1, abs=0.08)
    assert y.mean().item() == pytest.approx(0, abs=0.04)


def test_noise_is_on_what_is_seen_and_not_on_the_target():
    small, large = _made(noise=0.0), _made(noise=0.4)
    assert torch.equal(small.test[1], large.test[1])
    assert (large.test[0] - small.test[0]).std().item() == pytest.approx(0.4, rel=0.03)


def test_the_horizon_moves_the_target_and_not_what_is_seen():
    near, far = _made(horizon=1, noise=0.0), _made(horizon=4, noise=0.0)
    assert torch.equal(near.test[0], far.test[0])
    assert not torch.equal(near.test[1], far.test[1])


def test_the_number_of_training_rows_changes_neither_of_the_other_splits():
    splits.training_rows_leave_the_others(_made)


def test_a_seed_gives_the_same_rows_again_and_another_seed_gives_others():
    assert torch.equal(_made(3).train[0], _made(3).train[0])
    assert not torch.equal(_made(3).train[0], _made(4).train[0])
