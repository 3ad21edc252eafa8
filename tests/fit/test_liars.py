"""Plugins that lie: each is right, refused, or noted where the user looks; none is silently wrong.

They keep state, hand over tensors of other shapes and types, change rates, draw random numbers, or write into what they
are given.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contract.compose import jobs_of

from nnexp.base.signals import StopRequest
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan
from nnexp.rundir.metrics_csv import read_rows

pytestmark = pytest.mark.slow


MODEL = '''"""Lies. Our own."""
import os
import time
import torch
from torch import nn
from nnexp import DataSpec, model
CALLS = {"n": 0}

@model
class Liar(nn.Module):
    """One hidden layer.

    Args:
        data: what the dataset says.
    """
    def __init__(self, data: DataSpec):
        super().__init__()
        self.first, self.head, self.calls = nn.Linear(2, 8), nn.Linear(8, data.outputs), 0
        self.make()

    def make(self):
        pass

    def forward(self, x, lengths=None):
        return self.head(self.middle(self.first(x)))
'''
TRAINER = '''"""Lies. Our own."""
from dataclasses import dataclass
import torch
from nnexp import Trainer, trainer

@trainer
@dataclass(kw_only=True)
class Liar(Trainer):
    """SGD."""
'''
DATASET = '''"""Lies. Our own."""
import torch
from nnexp import DataSpec, dataset

@dataset
class Liar:
    """Moons of another kind."""
    def __init__(self, generator):
        x = torch.randn(64, 2, generator=generator)
        self.spec = DataSpec(kind="vector", shape=(2,), outputs=2)
        self.train = self.val = self.test = (x, (x[:, 0] > 0).long())
        self._change(generator)
'''
SGD = """
    def optimizer(self, params):
        return torch.optim.SGD(params, lr=self.lr)
"""
PURE = """
    def init(self, weights):
        return {"sum": torch.zeros_like(weights)}

    def update(self, weights, grads, state, step, *, lr, weight_decay):
"""


def middle(body: str) -> str:
    return f"\n    def middle(self, h):\n        {body}\n"


MODELS = {
    "a counter in the module": (middle("CALLS['n'] += 1; return h.tanh() * (1 + CALLS['n'])"), "answers differently"),
    "an attribute that counts": (middle("self.calls += 1; return h.tanh() + self.calls"), "training changes 'calls'"),
    "the clock": (middle("return h.tanh() * (1 + time.perf_counter() % 1)"), "answers differently"),
    "the system's random numbers": (middle("return h.tanh() + os.urandom(1)[0]"), "answers differently"),
    "a generator of its own": (
        "\n    def make(self):\n        self.own = torch.Generator().manual_seed(1)\n"
        + middle("return h.tanh() + torch.rand((), generator=self.own)"),
        "training changes 'own'",
    ),
    "a list of layers": (
        "\n    def make(self):\n        self.layers = [nn.Linear(8, 8)]\n" + middle("return self.layers[0](h).tanh()"),
        "weights outside parameters(): layers[0]",
    ),
    "another shape": (middle("return h.tanh()[:1]"), "the model returned a tensor of shape (1, 2)"),
    "complex weights": (
        "\n    def make(self):\n        self.w = nn.Parameter(torch.ones(8, dtype=torch.cfloat))\n"
        + middle("return (h * self.w).abs()"),
        "parameter 'w' is of torch.complex64",
    ),
    "weights in half": (
        "\n    def make(self):\n        self.first = self.first.half()\n" + middle("return h.float()"),
        "parameter 'first.weight' is of torch.float16",
    ),
}
TRAINERS = {
    "a loss of its own": (SGD + "\n    def loss(self, output, y): ...\n", "nnexp does not use 'loss' of a trainer"),
    "update without init": (
        SGD
        + "\n    def update(self, weights, grads, state, step, *, lr, weight_decay):\n        return weights, state\n",
        "defines `update`: it takes both",
    ),
    "weights of another shape": (
        PURE + "        return (weights - lr * grads).mean(), state\n",
        "update returned weights",
    ),
    "an update in place": (PURE + "        return weights.sub_(lr * grads), state\n", "changes its argument weights"),
    "a state in place": (
        PURE + "        state['sum'].add_(grads)\n        return weights - lr * state['sum'], state\n",
        "changes its argument state['sum']",
    ),
    "a schedule in a hook": (
        SGD.replace("return", "own =")
        + "        plan = torch.optim.lr_scheduler.StepLR(own, 1, 0.5)\n"
        + "        own.register_step_post_hook(lambda *_: plan.step())\n        return own\n",
        "changes the learning rate at update 1",
    ),
    "an optimiser of copies": (
        SGD.replace("(params,", "([torch.nn.Parameter(p.detach().clone()) for p in params],"),
        "does not hold exactly the parameters",
    ),
    "a rate that is none": (SGD + "\n    def lr_factor(self, step): return None\n", "lr_factor(1) returned None"),
}
DATASETS = {
    "bytes": ("\n    def _change(self, _): self.test = (self.test[0].byte(), self.test[1])\n", "x is of torch.uint8"),
    "a number that is none": ("\n    def _change(self, _): self.val[0][7, 1] = torch.nan\n", "x[7] contains nan"),
    "labels in a column": (
        "\n    def _change(self, _): self.val = (self.val[0], self.val[1][:, None])\n",
        "y has shape (64, 1)",
    ),
    "weights of rows as lengths": (
        "\n    def _change(self, _): self.train = (*self.train, torch.rand(64))\n",
        "lengths is of torch.float32",
    ),
}
DATASETS["a split made anew"] = (
    DATASET.replace("self.val = self.test =", "self.val =")
    + "\n    def _change(self, _): pass\n\n"
    + "    @property\n    def test(self): return tuple(t.clone() for t in self.val)\n",
    "it is made anew each time that it is read",
)


@pytest.fixture
def told_of(registry_of, tmp_path: Path) -> Callable[..., list[str]]:
    """Trains jobs, and returns of each run its status, error and notes, or the error that refuses the command."""

    def run(points: str, **sources: str) -> list[str]:
        plugins = registry_of("liar", **sources)
        if plugins.broken:
            return [broken.reason for broken in plugins.broken.values()]
        chosen = [f"{kind}=liar" for kind in sources]
        command = ["dataset=moons", "model=mlp", "trainer=sgd", *chosen, "trainer.max_steps=30", points]
        jobs = jobs_of([*command, f"runs='{tmp_path}'"], plugins, multirun=True)
        done = run_plan(plan_cohorts(jobs, plugins), plugins, StopRequest(), quiet=True)
        facts: list[dict[str, Any]] = [json.loads((item.run.path / "run.json").read_text()) for item in done]
        return [" ".join([str(each["error"] and each["error"]["message"]), *each.get("notes", [])]) for each in facts]

    return run


def named(liars: dict[str, tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("source", "said"), liars.values(), ids=liars)


@pytest.mark.parametrize("points", ["seed=0", "seed=0,1"], ids=["one", "two"])
@named(MODELS)
def test_a_model_that_lies_is_found_out_alone_and_in_a_sweep(told_of, source, said, points) -> None:
    assert all(said in text for text in told_of(points, model=MODEL + source))


@pytest.mark.parametrize("points", ["seed=0", "seed=0,1"], ids=["one", "two"])
@named(TRAINERS)
def test_a_trainer_that_lies_is_found_out_alone_and_in_a_sweep(told_of, source, said, points) -> None:
    told = told_of(points, trainer=TRAINER + source)
    assert [said in text for text in told] == [True] * len(told), told


@named(DATASETS)
def test_a_dataset_that_lies_is_refused(told_of, source, said) -> None:
    (text,) = told_of("seed=0", dataset=source if source.startswith(DATASET[:20]) else DATASET + source)
    assert said in text


def test_what_is_right_is_told_nothing(told_of) -> None:
    honest = {"model": MODEL + middle("return h.tanh()"), "trainer": TRAINER + SGD}
    assert (
        told_of("seed=0,1", **honest)
        == ["None trained solo, not in a stack: trainer 'liar' has no `init` and `update`"] * 2
    )


def test_a_rate_of_0_moves_nothing_and_is_shown(registry_of, tmp_path) -> None:
    plugins = registry_of("liar", trainer=TRAINER + SGD + "\n    def lr_factor(self, step): return 0.0\n")
    jobs = jobs_of(
        ["dataset=moons", "model=mlp", "trainer=liar", "trainer.max_steps=30", f"runs='{tmp_path}'"], plugins
    )
    (item,) = run_plan(plan_cohorts(jobs, plugins), plugins, StopRequest(), quiet=True)
    rows = dict(read_rows(item.run.path / "metrics.csv"))
    assert rows[30]["lr"] == 0
    assert rows[30]["val/loss"] == rows[0]["val/loss"]
