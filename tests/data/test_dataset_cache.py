"""Data are made once for all lanes that have the same."""

from __future__ import annotations

import torch

from nnexp.data.dataset_cache import DatasetCache


def test_lanes_with_the_same_data_share_them_and_others_do_not(make_lane) -> None:
    datasets, small = DatasetCache(), ["dataset=moons", "model=mlp"]
    first = make_lane(*small, datasets=datasets)
    assert make_lane(*small, "seed=1", "model.hidden_size=3", datasets=datasets).splits is first.splits
    for other in ("dataset.seed=1", "dataset.noise=0.3"):
        assert make_lane(*small, other, datasets=datasets).dataset is not first.dataset
    exact = make_lane(*small, "precision=64", datasets=datasets)
    assert exact.dataset is first.dataset
    assert exact.splits["train"][0].dtype == torch.float64
    alone = make_lane(*small)
    assert alone.dataset is not first.dataset
    assert torch.equal(alone.splits["train"][0], first.splits["train"][0])


def test_what_no_job_needs_is_forgotten(make_lane) -> None:
    datasets = DatasetCache()
    first = make_lane("dataset=moons", datasets=datasets)
    make_lane("dataset=xor", datasets=datasets)
    datasets.retain([first.job])
    assert make_lane("dataset=moons", datasets=datasets).dataset is first.dataset
    datasets.retain([])
    assert make_lane("dataset=moons", datasets=datasets).dataset is not first.dataset
