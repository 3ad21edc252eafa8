"""Random numbers of a stack: uniform, independent of each other, and each lane's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional as F

from nnexp.stacking.lane_random import LaneRandom, first_keys, step_keys, uniform

CPU = torch.device("cpu")


def drawn(seeds: list[int], step: int, draw) -> Tensor:
    def one(key: Tensor) -> Tensor:
        with LaneRandom(key):
            return draw()

    return vmap(one)(step_keys(first_keys(seeds, CPU), step))


def test_uniform_numbers_are_spread_evenly_and_tell_nothing_of_each_other() -> None:
    key = step_keys(first_keys([1], CPU), 1)[0]
    numbers = uniform(key, (200, 500), torch.float32)
    assert 0 <= numbers.min() < 1e-3 < 0.999 < numbers.max() < 1
    counts = torch.histc(numbers, bins=50, min=0, max=1)
    assert (counts - 2000).square().sum() / 2000 < 90  # chi squared with 49 degrees of freedom: p < 0.001 above 85
    following = step_keys(first_keys([1], CPU), 2)[0]
    for other in (numbers.roll(1), numbers.roll(500), uniform(following, (200, 500), torch.float32)):
        assert torch.corrcoef(torch.stack([numbers.flatten(), other.flatten()]))[0, 1].abs() < 0.015


@pytest.mark.parametrize("step", [1, 2, 3, 10**6, 2**40])
def test_a_lane_draws_the_same_whatever_lanes_there_are(step: int) -> None:
    x = torch.ones(3, 7)

    def draw() -> Tensor:
        return F.dropout(x, 0.5) + torch.rand_like(x) + torch.randn_like(x)

    together = drawn([5, 6, 7], step, draw)
    assert torch.equal(together[[2]], drawn([7], step, draw))
    assert not torch.equal(together[0], together[1])
    assert not torch.equal(together, drawn([5, 6, 7], step + 1, draw))


def test_dropout_keeps_the_mean_and_drops_the_share_that_it_should() -> None:
    x = torch.full((100, 40, 5), 2.0)
    kept = drawn([1, 2], 1, lambda: nn.Dropout(0.25)(x))
    assert (kept == 0).float().mean() == pytest.approx(0.25, abs=0.01)
    assert kept.unique().tolist() == pytest.approx([0.0, 2 / 0.75])
    channels = drawn([1], 1, lambda: nn.Dropout1d(0.25)(x))
    assert ((channels == 0).all(-1) | (channels != 0).all(-1)).all()
    assert drawn([1], 1, lambda: F.dropout(x, 1.0)).eq(0).all()
    assert torch.equal(drawn([1], 1, lambda: F.dropout(x, 0.5, training=False))[0], x)


def test_normal_numbers_have_the_moments_of_the_normal_distribution() -> None:
    numbers = drawn([3], 1, lambda: torch.randn_like(torch.empty(100_000)))
    assert numbers.mean().abs() < 0.02
    assert numbers.std() == pytest.approx(1, abs=0.01)
    assert numbers.pow(4).mean() == pytest.approx(3, abs=0.15)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_draws_of_every_type_are_finite_and_below_1(dtype) -> None:
    x = torch.empty(300_000, dtype=dtype)
    uniform_numbers = drawn([1], 1, lambda: torch.rand_like(x))
    assert uniform_numbers.dtype == dtype
    assert (uniform_numbers.min() >= 0) & (uniform_numbers.max() < 1)
    assert uniform_numbers.double().mean() == pytest.approx(0.5, abs=0.005)
    numbers = drawn([1], 1, lambda: torch.randn_like(x))
    assert numbers.isfinite().all()
    assert numbers.double().std() == pytest.approx(1, abs=0.01)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(RuntimeError, match="random operation"):
        drawn([1], 1, lambda: torch.rand(3))
