"""Lanes are grouped by what their forward pass reads besides its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nnexp.stacking.stackable import attributes_of, differing_attributes, group_stackable, watch_attribute_reads


class Part(nn.Module):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value, self.other = value, value
        self.lstm = nn.LSTM(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if self.value else x


def made(value: object):
    return lambda: value


@dataclass(slots=True)
class Slotted:
    value: int


def lane(value: object) -> Any:
    return SimpleNamespace(module=nn.Sequential(Part(value)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, 1.0),
        (None, 0),
        ("a", "b"),
        ([1, [2]], [1, [3]]),
        ({"a": 1}, {"a": 2}),
        (torch.zeros(3), torch.ones(3)),
        (np.zeros(3), np.ones(3)),
        (torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)),
        (lambda: 1, lambda: 2),
        (made(1), made(2)),
        (partial(max, 1), partial(max, 2)),
        (torch.float32, torch.float64),
        (nn.functional.relu, nn.functional.gelu),
        (object(), object()),
        (Slotted(1), Slotted(2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_differ_are_found_and_equal_ones_are_not(one: object, other: object) -> None:
    assert {("0", "value"), ("0", "other")} == differing_attributes([lane(one), lane(other)])
    assert differing_attributes([lane(one), lane(one)]) == set()


@pytest.mark.parametrize(
    "make", [lambda: made([1]), lambda: partial(max, 1), lambda: {"a": (1, np.ones(2))}, lambda: Slotted(1)]
)
def test_equal_values_that_are_not_the_same_object_are_equal(make) -> None:
    assert differing_attributes([lane(make()), lane(make())]) == set()


def test_weights_are_no_difference() -> None:
    assert all(name != "_flat_weights" or value for (_, name), value in attributes_of(lane(1).module).items())
    torch.manual_seed(0)
    assert differing_attributes([lane(1), lane(1)]) == set()


def test_what_forward_reads_is_noted_and_the_class_is_as_before() -> None:
    module: Any = lane(1).module
    read: set[tuple[str, str]] = set()
    with watch_attribute_reads(module, {("0", "value"), ("0", "other")}, read):
        module(torch.zeros(1))
    assert read == {("0", "value")}
    assert type(module[0]) is Part


def test_lanes_are_grouped_by_shapes_by_what_is_read_and_by_what_is_known(make_lane) -> None:
    small = ["dataset=moons", "trainer.max_steps=1"]
    lanes = [
        make_lane(*small, "model=mlp", "model.hidden_size=4", "seed=1"),
        make_lane(*small, "model=mlp", "model.hidden_size=4", "seed=2"),
        make_lane(*small, "model=mlp", "model.hidden_size=5"),
        make_lane(*small, "model=linear"),
        make_lane(*small, "model=mlp", "model.hidden_size=4", "dataset.num_val=10"),
    ]
    known = dict.fromkeys(lanes, 0)
    assert group_stackable(lanes, set(), known) == [lanes[:2], lanes[2:3], lanes[3:4], lanes[4:]]
    assert group_stackable(lanes[:2], set(), {lanes[0]: 0, lanes[1]: 1}) == [lanes[:1], lanes[1:2]]
    lanes[1].module.context = 3
    assert group_stackable(lanes[:2], set(), known) == [lanes[:2]]
    assert group_stackable(lanes[:2], {("", "context")}, known) == [lanes[:1], lanes[1:2]]
