"""Cohorts are cut to the memory that is there."""

from __future__ import annotations

import torch

from nnexp.stacking import lane_memory as capacity
from nnexp.stacking.lane_memory import free_bytes, lane_bytes, lanes_that_fit


def test_free_memory_is_a_part_of_what_the_machine_has() -> None:
    assert 2**20 < free_bytes(torch.device("cpu")) < 2**50


def test_a_lane_needs_more_memory_the_larger_its_model_its_batch_and_its_own_data(make_lane) -> None:
    small = make_lane("dataset=moons", "model=mlp")
    before = small.state()["weights"]
    own = lane_bytes(small, own_data=False)
    assert own < lane_bytes(make_lane("dataset=moons", "model=mlp", "model.hidden_size=64"), own_data=False)
    assert own < lane_bytes(make_lane("dataset=moons", "model=mlp", "trainer.batch_size=64"), own_data=False)
    assert lane_bytes(small, own_data=True) - own == sum(
        t.numel() * t.element_size() for split in small.splits.values() for t in split
    )
    assert small.step == 0
    assert all(torch.equal(value, before[name]) for name, value in small.state()["weights"].items())


def test_as_many_lanes_fit_as_half_of_the_memory_holds_and_one_always(make_lane, monkeypatch) -> None:
    lane = make_lane("dataset=moons", "model=mlp")
    need = lane_bytes(lane, own_data=False)
    monkeypatch.setattr(capacity, "free_bytes", lambda device: 20 * need)
    assert lanes_that_fit(lane, own_data=False) == 10
    assert lanes_that_fit(lane, own_data=True) < 10
    assert lanes_that_fit(lane, own_data=False, share=0.5) == 5
    assert lanes_that_fit(lane, own_data=False, share=0.25) == 2
    monkeypatch.setattr(capacity, "free_bytes", lambda device: 0)
    assert lanes_that_fit(lane, own_data=False) == 1
