"""Batches of all lanes are those of each lane."""

from __future__ import annotations

import pytest
import torch

from nnexp.data.batches import Batches
from nnexp.data.data_spec import DataSpec
from nnexp.data.metrics import evaluation_parts
from nnexp.data.stacked_batches import StackedBatches

VECTOR = DataSpec(kind="vector", shape=(3,))


def split(seed: int, rows: int = 50) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 3, generator=generator), torch.arange(rows) % 2


SHARED = split(0)


@pytest.mark.parametrize("batch_size", [7, "full"])
@pytest.mark.parametrize(
    "splits", [[SHARED] * 3, [split(1), split(2), split(3)], [SHARED, split(1), SHARED, split(2), SHARED]]
)
def test_each_lane_has_its_own_batches_whoever_shares_its_data(splits, batch_size) -> None:
    batches = [Batches(each, batch_size, seed) for seed, each in enumerate(splits)]
    taken = list(StackedBatches(batches).take(5, 40))
    assert len(taken) == 40
    for k, each in enumerate(batches):
        for mine, theirs in zip(taken, each.take(5, 40), strict=True):
            assert all(torch.equal(t[k], other) for t, other in zip(mine, theirs, strict=True))


def test_blocks_are_cut_where_batches_are_large(monkeypatch) -> None:
    monkeypatch.setattr("nnexp.data.stacked_batches.BLOCK_BYTES", 1)
    batches = [Batches(SHARED, 7, seed) for seed in (0, 1)]
    feed = StackedBatches(batches)
    assert feed.block == 1
    for mine, theirs in zip(feed.take(1, 20), batches[1].take(1, 20), strict=True):
        assert torch.equal(mine[0][1], theirs[0])


def test_an_evaluation_reads_the_rows_that_a_lane_alone_reads_in_parts_that_no_lane_changes() -> None:
    splits = [split(seed, rows=3000) for seed in range(3)]
    feed = StackedBatches([Batches(each, 7, 0) for each in splits])
    parts = list(feed.evaluation(splits, VECTOR, max_rows=1000))
    assert [part[0].shape[1] for part in parts] == [512, 488]  # a sum of other parts rounds differently
    for k, each in enumerate(splits):
        rows = torch.cat([part[0] for part in evaluation_parts(each, VECTOR, 10_000, 1000)])
        assert torch.equal(torch.cat([part[0][k] for part in parts]), rows)
