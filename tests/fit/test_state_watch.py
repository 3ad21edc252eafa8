"""What no checkpoint holds is said in a run's notes, alone and in a sweep, before it is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from contract.compose import jobs_of

from nnexp import DataSpec
from nnexp.base.signals import StopRequest
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan
from nnexp.training.make_module import convert, hidden_weights, make_module

MODEL = '''"""A model of our own."""
import torch
from torch import nn
from nnexp import DataSpec, model

@model
class Own(nn.Module):
    """One hidden layer.

    Args:
        data: what the dataset says.
    """
    def __init__(self, data: DataSpec):
        super().__init__()
        self.first, self.head, self.calls = nn.Linear(2, 4), nn.Linear(4, 2), 0
        self.cache = None
        SETUP

    def forward(self, x, lengths=None):
        if self.cache is None:
            self.cache = torch.ones(4)
        BODY
        return self.head(self.first(x).relu() * self.cache)
'''
COUNTS = "self.calls += 1"
BREAKS = "self.calls += 1; x = x * (float('nan') if self.calls > 20 else 1)"
LATE = "self.calls += 1; self.late = self.calls > 22"
LISTED = "self.layers, self.free = [nn.Linear(2, 4)], {'w': torch.zeros(3, requires_grad=True)}"


@pytest.fixture
def facts_of(registry_of, tmp_path: Path) -> Callable[..., list[dict]]:
    """Trains jobs of the model with these lines, and returns the run.json of each."""

    def run(setup: str, body: str, *overrides: str) -> list[dict]:
        plugins = registry_of("own", model=MODEL.replace("SETUP", setup).replace("BODY", body))
        command = ["dataset=moons", "model=own", "trainer.max_steps=60", *overrides, f"runs='{tmp_path}'"]
        jobs = jobs_of(command, plugins, multirun=True)
        done = run_plan(plan_cohorts(jobs, plugins), plugins, StopRequest(), quiet=True)
        return [json.loads((item.run.path / "run.json").read_text()) for item in done]

    return run


@pytest.mark.parametrize("points", ["seed=0", "seed=0,1"])
@pytest.mark.parametrize(("body", "name"), [(COUNTS, "calls"), (LATE, "late")])
def test_an_attribute_that_training_changes_is_named_once(facts_of, body, name, points):
    for facts in facts_of("self.late = False", body, points):
        (note,) = [note for note in facts["notes"] if f"training changes '{name}'" in note]
        assert "no checkpoint holds it" in note


def test_what_changes_once_before_training_is_no_state(facts_of):
    assert facts_of("pass", "pass", "seed=0")[0]["notes"] == []


@pytest.mark.parametrize("points", ["seed=0", "seed=0,1"])
def test_weights_that_are_not_registered_are_named_with_the_cure(facts_of, points):
    for facts in facts_of(LISTED, "pass", points):
        (note,) = [note for note in facts["notes"] if "outside parameters()" in note]
        assert note.startswith("weights outside parameters(): layers[0], free['w']; they are neither trained nor saved")


def test_a_divergence_that_is_another_when_trained_again_is_said_and_blames_no_layer(facts_of):
    (facts,) = facts_of("pass", BREAKS, "seed=0")
    assert facts["status"] == "diverged"
    message = facts["error"]["message"]
    assert "Trained again from step 0, it gives other losses: the model keeps state outside its buffers." in message
    assert "The weights that are kept are those of step 0." in message


def test_registered_weights_are_not_hidden():
    module: Any = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.LSTM(2, 3)])
    module.shared = [module[0].weight, torch.zeros(2), None, 3]
    assert hidden_weights(module) == []


class Typed(torch.nn.Module):
    """A weight and a buffer of a type, and a lazy layer."""

    def __init__(self, data, *, dtype=torch.float32, frozen=False):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2, dtype=dtype), requires_grad=not frozen)
        self.register_buffer("kept", torch.ones(2, dtype=torch.bfloat16))
        self.lazy = torch.nn.LazyLinear(3)

    def forward(self, x, lengths=None):
        return self.lazy(x)


DATA = DataSpec(kind="vector", shape=(5,))
SPLIT = (torch.ones(4, 5, dtype=torch.float64), torch.zeros(4).long())


@pytest.mark.parametrize("dtype", [torch.cfloat, torch.bfloat16, torch.half, torch.float64])
def test_weights_of_another_type_are_refused_and_frozen_ones_keep_it(dtype):
    with pytest.raises(Exception, match=rf"parameter 'w' is of {dtype}; nnexp trains real weights of one type"):
        convert(make_module(Typed, DATA, {"dtype": dtype}, SPLIT), torch.float64, torch.device("cpu"))
    frozen = make_module(Typed, DATA, {"dtype": dtype, "frozen": True}, SPLIT)
    convert(frozen, torch.float64, torch.device("cpu"))
    assert (frozen.w.dtype, frozen.kept.dtype, frozen.lazy.weight.dtype) == (dtype, torch.bfloat16, torch.float64)


def test_a_lazy_layer_is_made_by_a_forward_pass_and_refused_where_none_uses_it():
    module = make_module(Typed, DATA, {}, SPLIT)
    assert module.lazy.weight.shape == (3, 5)
    assert module.training
    unused = type("Unused", (Typed,), {"forward": lambda self, x, lengths=None: x})
    with pytest.raises(Exception, match=r"'lazy.weight' is of a lazy layer that the forward pass does not use"):
        convert(make_module(unused, DATA, {}, SPLIT), torch.float32, torch.device("cpu"))
