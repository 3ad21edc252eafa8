"""A lane whose loss or gradient is no longer finite: what it says, and what it keeps."""

import itertools
import math

import pytest
import torch

from nnexp.rundir.metrics_csv import Rows
from nnexp.training.divergence import Diverged

pytestmark = pytest.mark.slow


FRAGILE = '''"""A model that gives numbers that are not finite from some update on. A test of our own."""
import torch
from torch import nn
from typing import Literal

from nnexp import DataSpec, model


class Slope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.inf


class Middle(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, x, breaks):
        if not breaks:
            return x
        return Slope.apply(x) if self.how == "gradient" else x * (torch.nan if self.how == "undefined" else torch.inf)


@model
class Fragile(nn.Module):
    """Breaks in its middle; counts its updates in a buffer, as batch normalisation does."""

    def __init__(
        self, data: DataSpec, *, breaks_at: int = 20, how: Literal["undefined", "infinite", "gradient"] = "undefined"
    ) -> None:
        super().__init__()
        self.breaks_at = breaks_at
        self.first = nn.Linear(data.features, 8)
        self.drop = nn.Dropout(0.2)
        self.middle = Middle(how)
        self.head = nn.Linear(8, data.outputs)
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def forward(self, x, lengths=None):
        if self.training:
            self.updates += 1
        return self.head(self.middle(self.drop(self.first(x)), int(self.updates) >= self.breaks_at))
'''
JOB = ("dataset=moons", "model=fragile", "trainer.max_steps=50")
HOWS = ["undefined", "infinite", "gradient"]


@pytest.fixture(scope="module")
def lane_of(registry_of, make_lane):
    """A lane of the model above."""
    plugins = registry_of("fragile", model=FRAGILE)
    return lambda *overrides, **more: make_lane(*JOB, *overrides, plugins=plugins, **more)


def _diverge(lane, chunk: int) -> tuple[Rows, Diverged]:
    """All rows, and what ended the training, with the rows of its chunk."""
    chunks = []

    def train() -> None:
        while lane.step < 50:
            chunks.append(lane.advance(min(50, lane.step + chunk)))

    with pytest.raises(Diverged) as caught:
        train()
    chunks.append(caught.value.rows)
    losses, norms = (list(itertools.chain(*(getattr(rows, name) for rows in chunks))) for name in ("losses", "norms"))
    return Rows(1, losses, norms, dict(item for rows in chunks for item in rows.sparse.items())), caught.value


def _at(lane, step: int):
    lane.advance(step)
    return lane


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_rows_go_up_to_the_bad_step_and_all_before_it_are_finite(lane_of, how, chunk):
    rows, error = _diverge(lane_of(f"model.how={how}"), chunk)
    assert (len(rows), error.rows.last_step) == (20, 20)
    assert rows.head(19) == lane_of(f"model.how={how}").advance(19)
    finite = [math.isfinite(loss) and math.isfinite(norm) for loss, norm in zip(rows.losses, rows.norms, strict=True)]
    assert finite == [True] * 19 + [False]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("chunk", [1, 7, 50])
@pytest.mark.parametrize("trainer", ["sgd", "adam"])
def test_the_weights_are_those_from_before_the_bad_update(lane_of, how, chunk, trainer):
    lane = lane_of(f"model.how={how}", f"trainer={trainer}")
    _diverge(lane, chunk)
    assert lane.step == 19
    assert torch.equal(lane.weights.vector, _at(lane_of(f"model.how={how}", f"trainer={trainer}"), 19).weights.vector)


@pytest.mark.parametrize("chunk", [1, 50])
def test_the_whole_state_is_the_one_from_before_the_bad_update(lane_of, chunk):
    lane = lane_of()
    _diverge(lane, chunk)
    state, expected = lane.state(), _at(lane_of(), 19).state()
    assert {name: t.tolist() for name, t in state["weights"].items()} == {
        name: t.tolist() for name, t in expected["weights"].items()
    }
    assert torch.equal(state["generators"]["torch"], expected["generators"]["torch"])


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("undefined", "the loss is not finite. The first output that is not finite is that of layer 'middle'."),
        ("infinite", "the loss is not finite. The first output that is not finite is that of layer 'middle'."),
        ("gradient", "the gradient is not finite. The first gradient that is not finite is that of layer 'first'."),
    ],
)
@pytest.mark.parametrize("chunk", [7, 50])
def test_the_message_names_step_layer_and_the_last_finite_norm(lane_of, how, text, chunk):
    _, error = _diverge(lane_of(f"model.how={how}"), chunk)
    last = error.rows.norms[-2]
    assert str(error) == f"step 20: {text} The last finite gradient norm was {last:.3g}."


def test_a_first_step_that_is_bad_leaves_the_initial_weights(lane_of):
    lane = lane_of("model.breaks_at=1")
    before = lane.weights.vector.clone()
    _, error = _diverge(lane, 50)
    assert (error.rows.first, len(error.rows)) == (1, 1)
    assert "step 1: the loss is not finite" in str(error)
    assert torch.equal(lane.weights.vector, before)
    assert lane.step == 0


@pytest.mark.parametrize("model", ["mlp", "lstm"])
@pytest.mark.parametrize("trainer", ["sgd", "adam"])
def test_a_learning_rate_that_is_far_too_large_is_told(make_lane, model, trainer):
    overrides = ("dataset=moons", f"model={model}", f"trainer={trainer}", "trainer.lr=1e39", "trainer.max_steps=50")
    lane = make_lane(*overrides)
    _, error = _diverge(lane, 50)
    step = error.rows.last_step
    assert str(error).startswith(f"step {step}: the loss is not finite. The weights of layer ")
    assert "are no longer finite: its last update was too large" in str(error)
    assert lane.step == step - 1
    assert all(map(math.isfinite, error.rows.losses[:-1]))


@pytest.mark.parametrize("how", HOWS)
def test_global_generators_are_left_as_they_were(lane_of, undrawn, how):
    with undrawn():
        _diverge(lane_of(f"model.how={how}"), 7)


def test_a_stop_that_comes_late_still_leaves_the_weights_from_before_the_bad_update(lane_of):
    asked = itertools.count(1)
    lane = lane_of(should_stop=lambda: next(asked) > 55)
    _diverge(lane, 50)
    assert lane.step == 19
    assert torch.equal(lane.weights.vector, _at(lane_of(), 19).weights.vector)


def test_a_last_update_that_ruins_the_weights_is_divergence_too(make_lane) -> None:
    lane = make_lane("dataset=moons", "trainer=sgd", "trainer.lr=1e39", "trainer.max_steps=1")
    with pytest.raises(Diverged, match="step 1: the update is so large") as caught:
        lane.advance(1)
    assert (caught.value.rows.first, len(caught.value.rows)) == (1, 1)
    assert lane.step == 0
    assert lane.weights.vector.isfinite().all()
