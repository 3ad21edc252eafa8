"""A lane of a stack is the run trained alone, whatever else is in the stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle, product
from typing import Any

import pytest
import torch
from contract.combinations import cover, slow_but
from contract.registry import EVERY_KIND, REGISTRY

from nnexp.data.dataset_cache import DatasetCache
from nnexp.nn.kernels.op import without_compiled_kernels
from nnexp.stacking.stack import Stack
from nnexp.training.divergence import Diverged
from nnexp.training.lane import Lane

pytestmark = pytest.mark.slow


PAIRS = [(dataset, model) for dataset in EVERY_KIND for model in REGISTRY.names("model")]
OF_VALUES = [("sine", "mlp"), ("gaussian", "lstm")]
# With larger rates training of some pairs is chaotic: a change of one last digit grows tenfold every few steps.
CALM = ["trainer.lr=0.002", "trainer.max_steps=200"]
FEW = cover(PAIRS, 1)
WITH_FEW = [pair for pair in PAIRS if pair in FEW or pair[0] in ("pattern", "edges")]


def small(dataset: str, model: str) -> list[str]:
    """A pair with short sequences, so that every pair can be tried."""
    overrides = [f"dataset={dataset}", f"model={model}", *CALM]
    if "length" in REGISTRY.get("dataset", dataset).parameters:
        overrides.append("dataset.length=12")
    if "hidden_size" in REGISTRY.get("model", model).parameters:
        overrides.append("model.hidden_size=8")
    if model == "vit":
        overrides.append("model.num_layers=1")
    return overrides


DATASETS = DatasetCache()


@pytest.fixture
def make_lane(make_job) -> Callable[..., Lane]:
    """A lane whose data are made once for all tests."""
    return lambda *overrides: Lane(make_job(*overrides), REGISTRY, torch.device("cpu"), lambda: False, DATASETS)


@pytest.fixture
def make_stack(make_lane) -> Callable[..., Stack]:
    """A stack of lanes of the given seeds."""

    def make(overrides: Sequence[str], seeds: Sequence[int]) -> Stack:
        return Stack([make_lane(*overrides, f"seed={seed}") for seed in seeds], lambda: False)

    return make


def relative(one: list[float], other: list[float]) -> torch.Tensor:
    mine, theirs = torch.tensor(one, dtype=torch.float64), torch.tensor(other, dtype=torch.float64)
    return (mine - theirs).abs() / theirs.abs()


@pytest.mark.parametrize(("dataset", "model"), slow_but(FEW, [*PAIRS, *OF_VALUES]))
def test_in_float64_weights_batches_and_losses_are_those_of_the_run_alone(
    make_stack, make_lane, dataset: str, model: str
) -> None:
    overrides = [*small(dataset, model), "precision=64"]
    stack = make_stack(overrides, [0, 1])
    alone = [make_lane(*overrides, f"seed={seed}") for seed in (0, 1)]
    for k, lane in enumerate(alone):
        assert torch.equal(stack.weights[k], lane.weights.vector)
        for mine, theirs in zip(stack.feed.take(1, 40), lane.batches.take(1, 40), strict=True):
            assert all(torch.equal(t[k], other) for t, other in zip(mine, theirs, strict=True))
    outcomes = stack.advance(100)
    for mine, lane in zip(stack.lanes, alone, strict=True):
        assert relative(outcomes[mine].losses, lane.advance(100).losses).max() < 1e-10
        assert stack.evaluate("val")[mine] == pytest.approx(lane.evaluate("val"), rel=1e-9)


def numbers(stack: Stack, lane: Lane) -> tuple[object, ...]:
    """All that a lane has after ten steps, to the last bit."""
    rows = stack.advance(10)[lane]
    state = lane.state()
    tensors = [*state["weights"].values(), *state["optimizer"].values()]
    return rows.losses, rows.norms, rows.sparse, [t.tolist() for t in tensors], stack.evaluate("val")[lane]


@pytest.mark.parametrize(("dataset", "model"), slow_but(FEW, WITH_FEW))
def test_in_float32_a_lane_is_the_same_in_every_stack_and_near_the_run_alone(
    make_stack, make_lane, dataset: str, model: str
) -> None:
    stack = make_stack(small(dataset, model), [0, 1, 2])
    found = numbers(stack, stack.lanes[2])
    other = make_stack(small(dataset, model), [4, 2, 3, 5, 6])
    assert numbers(other, other.lanes[1]) == found
    outcomes = stack.advance(50)
    errors = []
    for seed, lane in enumerate(stack.lanes):
        alone = make_lane(*small(dataset, model), f"seed={seed}").advance(50)
        errors.append(relative(outcomes[lane].losses, alone.losses[10:]).max())
        assert outcomes[lane].sparse[50] == pytest.approx(alone.sparse[50], rel=1e-2)
    assert sorted(errors)[1] < 1e-4


ODD = [
    ["model=linear"],
    ["model=mlp", "model.hidden_size=7"],
    ["model=mlp", "model.hidden_size=7", "model.activation=sigmoid"],
    ["model=mlp", "model.hidden_size=7", "model.activation=gelu"],
    ["model=cnn", "model.channels=[3,5]"],
    ["model=vit", "model.hidden_size=6", "model.num_heads=3", "model.num_layers=1"],
    ["model=lstm", "model.hidden_size=3"],
    ["model=gru", "model.hidden_size=3"],
]


@pytest.mark.slow
@pytest.mark.parametrize("model", ODD, ids=lambda overrides: "-".join(overrides))
@pytest.mark.parametrize(("dataset", "precision"), [("edges", 32), ("gaussian", 64)])
def test_where_arrays_end_within_a_vector_a_lane_is_the_same_at_every_place(make_stack, model, dataset, precision):
    overrides = [*CALM, f"dataset={dataset}", *model, "trainer.batch_size=5", f"precision={precision}"]
    overrides += ["dataset.length=7"] if dataset == "gaussian" else []
    found = []
    for seeds, place in (([7, 3, 1], 0), ([5, 6, 1, 2, 7], 4)):
        stack = make_stack(overrides, seeds)
        found.append(numbers(stack, stack.lanes[place]))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "cnn", "lstm"])
def test_of_many_lanes_each_is_the_same_to_the_last_bit(make_stack, model: str) -> None:
    overrides = [*small("edges", model), "trainer.batch_size=5"]
    many, few = make_stack(overrides, range(40)), make_stack(overrides, [39, 0])
    many_rows, few_rows = many.advance(3), few.advance(3)
    for place, other in ((39, 0), (0, 1)):
        assert many_rows[many.lanes[place]] == few_rows[few.lanes[other]]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rnn", "lstm", "gru"])
def test_torch_and_compiled_kernels_agree(make_stack, model: str) -> None:
    overrides = [*small("pattern", model), "precision=64"]
    compiled = make_stack(overrides, [0, 1])
    with without_compiled_kernels():
        plain = make_stack(overrides, [0, 1])
        assert not plain.is_compiled
        rows = plain.advance(100)[plain.lanes[1]].losses
    assert relative(compiled.advance(100)[compiled.lanes[1]].losses, rows).max() < 1e-10


OF_TRAINERS = [
    ["trainer.lr=0.01", "trainer.lr=0.1"],
    ["trainer.weight_decay=0", "trainer.weight_decay=0.3"],
    ["trainer.clip_norm=null", "trainer.clip_norm=0.01"],
]
OF_OTHERS = [
    ["model.init_scale=0.1", "model.init_scale=2"],
    ["model.forget_bias=null", "model.forget_bias=4"],
    ["dataset.seed=0", "dataset.seed=1"],
    ["model.seed=5", "trainer.seed=5"],
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("varied", "trainer"),
    [*product(OF_TRAINERS, REGISTRY.names("trainer")), *zip(OF_OTHERS, cycle(REGISTRY.names("trainer")), strict=False)],
    ids=str,
)
def test_each_lane_has_its_own_values(make_lane, varied: list[str], trainer: str) -> None:
    shared = ["model=lstm", "model.hidden_size=8", "precision=64", f"trainer={trainer}", "trainer.max_steps=100"]
    shared += ["trainer.schedule=cosine", "trainer.warmup_steps=5"]
    jobs = [[*shared, value] for value in varied]
    stack = Stack([make_lane(*job) for job in jobs], lambda: False)
    outcomes = stack.advance(40)
    losses = []
    for job, lane in zip(jobs, stack.lanes, strict=True):
        alone = make_lane(*job).advance(40)
        assert relative(outcomes[lane].losses, alone.losses).max() < 1e-10
        assert outcomes[lane].sparse[40]["lr"] == alone.sparse[40]["lr"]
        losses.append(alone.losses)
    assert losses[0] != losses[1]


@pytest.mark.parametrize("dataset", ["moons", "edges"])
def test_full_batches_are_the_whole_split(make_stack, make_lane, dataset: str) -> None:
    overrides = [f"dataset={dataset}", "model=linear", "trainer.batch_size=full", "precision=64", *CALM]
    stack = make_stack(overrides, [0, 1])
    losses = stack.advance(9)[stack.lanes[1]].losses
    assert relative(losses, make_lane(*overrides, "seed=1").advance(9).losses).max() < 1e-10


def test_in_bf16_a_lane_is_near_the_run_alone(make_stack, make_lane) -> None:
    overrides = ["dataset=moons", "model=mlp", "precision=bf16", *CALM]
    stack = make_stack(overrides, [0, 1])
    losses = stack.advance(30)[stack.lanes[0]].losses
    assert relative(losses, make_lane(*overrides).advance(30).losses).max() < 0.05


def test_a_lanes_weights_load_into_the_plain_module(make_stack, make_lane) -> None:
    stack = make_stack(["dataset=moons", "model=mlp", *CALM], [0, 1])
    stack.advance(10)
    fresh = make_lane("dataset=moons", "model=mlp", *CALM)
    fresh.restore(stack.lanes[1].state())
    assert fresh.step == 10
    assert fresh.evaluate("val") == stack.lanes[1].evaluate("val")


def test_lanes_that_diverge_in_a_later_chunk_have_the_weights_from_before_that_update(make_lane) -> None:
    """A decay of which each update makes the weights some hundred times larger, and of another sign."""
    shared = ["dataset=moons", "model=mlp", "trainer=sgd", "trainer.lr=1", "trainer.max_steps=60"]
    jobs = [[*shared, f"trainer.weight_decay={decay}"] for decay in (0, 1000, 0.01, 300)]
    stack = Stack([make_lane(*job) for job in jobs], lambda: False)
    stack.advance(4)
    outcomes = stack.advance(50)
    assert [isinstance(outcomes[lane], Diverged) for lane in stack.lanes] == [False, True, False, True]
    for job, lane in zip(jobs, stack.lanes, strict=True):
        alone, outcome = make_lane(*job), outcomes[lane]
        alone.advance(4)
        if isinstance(outcome, Diverged):
            with pytest.raises(Diverged) as told:
                alone.advance(50)
            assert len(outcome.rows) == len(told.value.rows) < 46
        else:
            alone.advance(50)
        assert lane.step == alone.step
        torch.testing.assert_close(lane.state()["weights"], alone.state()["weights"], rtol=1e-3, atol=1e-3)


def test_half_of_the_lanes_released_make_a_smaller_stack_and_change_nothing(make_stack) -> None:
    overrides = ["dataset=moons", "model=mlp", *CALM]
    whole, cut = make_stack(overrides, range(6)), make_stack(overrides, range(6))
    whole.advance(10)
    cut.advance(10)
    for lane in cut.lanes[:3]:
        assert cut.compacted() is cut
        cut.release(lane)
    smaller = cut.compacted()
    assert [lane.job.options.seed for lane in smaller.lanes] == [3, 4, 5]
    assert smaller.advance(20)[smaller.lanes[0]] == whole.advance(20)[whole.lanes[3]]
    for lane in smaller.lanes:
        smaller.release(lane)
    assert smaller.compacted() is smaller


def test_training_pauses_at_any_step_and_goes_on_the_same(make_lane) -> None:
    overrides = ["dataset=moons", "model=mlp", *CALM]
    left = [7]

    def stopped() -> bool:
        left[0] -= 1
        return left[0] < 0

    lanes = [make_lane(*overrides, f"seed={seed}") for seed in (0, 1)]
    stack = Stack(lanes, stopped)
    first: Any = stack.advance(20)[lanes[0]]
    assert (len(first), stack.step, lanes[0].step) == (7, 7, 7)
    left[0] = 100
    rest = stack.advance(20)[lanes[0]]
    whole = Stack([make_lane(*overrides, f"seed={seed}") for seed in (0, 1)], lambda: False)
    assert [*first.losses, *rest.losses] == whole.advance(20)[whole.lanes[0]].losses
