"""What of a cohort is stacked: lanes that fail, diverge, stop early or cannot be stacked leave the others alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from contract.compose import jobs_of
from contract.stopping import StopAfter

from nnexp.base.signals import StopRequest
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan
from nnexp.fit.cohort_fit import CohortFit
from nnexp.fit.lightning_module import CohortModule
from nnexp.fit.progress import ProgressBar
from nnexp.fit.stack_or_solo import PathSelector
from nnexp.rundir.metrics_csv import read_rows
from nnexp.rundir.run import Run
from nnexp.stacking.stack import Stack

pytestmark = pytest.mark.slow


HEAD = '''
"""A model of our own."""
import sys
import torch
from torch import nn
from typing import Annotated
from nnexp import DataSpec, PerLane, model

@model
class Own(nn.Module):
    """Two layers.

    Args:
        data: what the dataset says.
        value: a number.
    """
    def __init__(self, data: DataSpec, *, value: Annotated[float, PerLane] = 0.0):
        super().__init__()
        self.inner, self.head = nn.Linear(2, 8), nn.Linear(8, 2)
        self.setup(value)

    def setup(self, value):
        self.value = value

    def forward(self, x, lengths=None):
        return self.head(self.middle(self.inner(x)))
'''
FAULTY = """
    def middle(self, h):
        if self.value == 1:
            raise RuntimeError("broken in forward")
        if self.value == 3:
            sys.exit(0)
        return h.tanh() * (float("nan") if self.value == 2 else 1)
"""
SHORT = ["dataset=moons", "model=own", "trainer.max_steps=60", "trainer.eval_every=25"]


def files(run: Run) -> tuple[bytes, bytes]:
    return (run.path / "metrics.csv").read_bytes(), (run.path / "model.pt").read_bytes()


@pytest.fixture
def sweep(registry_of, tmp_path: Path) -> Callable[..., list[Run]]:
    """Trains the points of a sweep of a model whose other methods are given, and of other plugins of its name."""

    def run(
        methods: str, *overrides: str, runs: str = "runs", stop: StopRequest | None = None, **sources: str
    ) -> list[Run]:
        plugins = registry_of("own", model=HEAD + methods, **sources)
        command = [*SHORT, *overrides, f"runs='{tmp_path / runs}'"]
        jobs = jobs_of(command, plugins, multirun=True)
        return [item.run for item in run_plan(plan_cohorts(jobs, plugins), plugins, stop or StopRequest(), quiet=True)]

    return run


def paths(runs: list[Run]) -> list[str]:
    return [run.read()["path"] for run in runs]


@pytest.mark.slow
def test_of_twelve_lanes_the_faulty_ones_end_and_the_others_are_as_without_them(sweep) -> None:
    runs = sweep(FAULTY, "seed=0,1,2,3,4,5", "model.value=0,1,2", "trainer.max_steps=60")
    by_value = [runs[value::3] for value in range(3)]
    assert [{run.status for run in each} for each in by_value] == [{"finished"}, {"failed"}, {"diverged"}]
    assert "broken in forward" in by_value[1][0].read()["error"]["message"]
    undisturbed = sweep(FAULTY, "seed=0,1,2,3,4,5", runs="undisturbed")
    assert paths(undisturbed) == paths(by_value[0]) == ["stacked"] * 6
    assert list(map(files, undisturbed)) == list(map(files, by_value[0]))


def test_a_lane_that_exits_in_forward_ends_alone(sweep) -> None:
    assert [run.status for run in sweep(FAULTY, "model.value=0,3,0.5")] == ["finished", "failed", "finished"]


PLAIN = """
    def middle(self, h):
        return h.tanh()
"""
SQUARES = """
    def middle(self, h):
        return h * h
"""


@pytest.mark.slow
def test_a_lane_that_diverges_late_ends_with_the_weights_from_before_and_leaves_the_others(sweep) -> None:
    """Its rate makes the weights overflow after some updates; alone, it ends at the same step in the same way."""
    job = ["trainer=sgd", "trainer.momentum=0.5"]
    runs = sweep(SQUARES, *job, "trainer.lr=0.01,5,0.02")
    assert [run.status for run in runs] == ["finished", "diverged", "finished"]
    others = sweep(SQUARES, *job, "trainer.lr=0.01,0.02", runs="b")
    assert list(map(files, (runs[0], runs[2]))) == list(map(files, others))
    (alone,) = sweep(SQUARES, *job, "trainer.lr=5", runs="alone")
    assert paths([alone, runs[1]]) == ["solo", "stacked"]
    assert alone.read()["error"] == runs[1].read()["error"]
    assert 0 < alone.read()["steps"] == runs[1].read()["steps"] < 60
    weights = torch.load(runs[1].path / "model.pt")["weights"]
    assert all(value.isfinite().all() for value in weights.values())
    torch.testing.assert_close(weights, torch.load(alone.path / "model.pt")["weights"])


@pytest.mark.slow
def test_lanes_stop_early_each_at_its_own_step(sweep) -> None:
    patient = ["trainer.patience=1", "trainer.eval_every=5", "trainer.max_steps=300", "trainer.lr=0.3"]
    runs = sweep(PLAIN, *patient, "seed=range(6)")
    steps = [run.read()["steps"] for run in runs]
    assert len(set(steps)) > 2
    assert all(run.read()["stopped_early"] for run in runs if run.read()["steps"] < 300)
    for seed in (1, 4):
        pair = sweep(PLAIN, *patient, f"seed={seed},9", runs=f"pair{seed}")
        assert files(pair[0]) == files(runs[seed])


READS = """
    def middle(self, h):
        return h.tanh() * (1 + self.value)
"""


@pytest.mark.slow
def test_values_that_forward_reads_make_stacks_of_their_own(sweep) -> None:
    runs = sweep(READS, "model.value=0,0.5", "seed=0,1")
    assert paths(runs) == ["stacked"] * 4
    assert list(map(files, runs[:2])) == list(map(files, sweep(READS, "seed=0,1", runs="b")))


def test_a_lane_whose_value_no_other_has_is_trained_alone_and_says_why(sweep) -> None:
    runs = sweep(READS, "model.value=0,0.5")
    assert paths(runs) == ["solo"] * 2
    assert "reads 'value', which is not a buffer: no other lane has the same values" in runs[0].read()["notes"][0]
    assert files(runs[1]) == files(sweep(READS, "model.value=0.5", runs="alone")[0])


KEEPS = """
    def setup(self, value):
        self.value = value
        self.register_buffer("gain", torch.tensor(1 + value))

    def middle(self, h):
        return h.tanh() * self.gain
"""


@pytest.mark.slow
def test_a_value_kept_as_a_buffer_is_stacked_and_one_that_forward_does_not_read_is_no_matter(sweep) -> None:
    runs = sweep(KEEPS, "model.value=0,0.5,3")
    assert paths(runs) == ["stacked"] * 3
    alone = sweep(KEEPS, "model.value=3", runs="alone")[0].read()["metrics"]
    assert runs[2].read()["metrics"] == pytest.approx(alone, rel=1e-4)


DRAWS = """
    def middle(self, h):
        return h.tanh() + torch.rand(h.shape) * self.training
"""
BRANCHES = """
    def middle(self, h):
        return h.tanh() if h.sum() > 0 else h
"""
HIDES = """
    hidden = {}

    def setup(self, value):
        self.hidden[id(self)] = value

    def middle(self, h):
        return h.tanh() * (1 + self.hidden[id(self)])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("methods", "reason"),
    [
        (DRAWS, "in a stack: RuntimeError: vmap: called random operation"),
        (BRANCHES, "in a stack: RuntimeError: vmap: It looks like you're attempting"),
        (HIDES, "the stack computes another loss than the plain module"),
    ],
)
def test_what_cannot_be_stacked_is_trained_one_by_one_as_if_alone(sweep, methods: str, reason: str) -> None:
    point = ["model.value=0,0.25"] if methods is HIDES else ["seed=0,1"]
    runs = sweep(methods, *point)
    assert [run.status for run in runs] == ["finished"] * 2
    assert paths(runs)[1] == "solo"
    assert reason in runs[1].read()["notes"][0]
    (alone,) = sweep(methods, point[0].replace("0,", ""), runs="alone")
    assert files(alone) == files(runs[1])


NORMALISES = """
    def setup(self, value):
        self.norm = nn.BatchNorm1d(8)

    def middle(self, h):
        return self.norm(h).tanh()
"""


@pytest.mark.slow
def test_running_means_are_each_lanes_own(sweep) -> None:
    runs = sweep(NORMALISES, "trainer=sgd", "seed=0,1,2")
    assert paths(runs) == ["stacked"] * 3
    kept = torch.load(runs[2].path / "model.pt")["weights"]
    assert kept["norm.num_batches_tracked"] == 60
    (alone,) = sweep(NORMALISES, "trainer=sgd", "seed=2", runs="alone")
    torch.testing.assert_close(kept, torch.load(alone.path / "model.pt")["weights"], rtol=1e-3, atol=1e-4)
    assert files(sweep(NORMALISES, "trainer=sgd", "seed=2,0", runs="pair")[0]) == files(runs[2])


@pytest.mark.slow
def test_what_is_left_of_a_sweep_is_trained_as_with_all_of_it(sweep) -> None:
    whole = sweep(PLAIN, "seed=0,1,2", runs="whole")
    sweep(PLAIN, "seed=0,1")
    runs = sweep(PLAIN, "seed=0,1,2")
    assert paths(runs) == ["stacked"] * 3
    assert list(map(files, runs)) == list(map(files, whole))


SCALAR = """
    def setup(self, value):
        self.gain = nn.Parameter(torch.tensor(1.0 + value))

    def middle(self, h):
        return h.tanh() * self.gain
"""
ASSIGNS = """
    def setup(self, value):
        self.register_buffer("seen", torch.zeros(8))

    def middle(self, h):
        if self.training:
            self.seen = 0.9 * self.seen + 0.1 * h.mean(0).detach()
        return h.tanh() + self.seen
"""
CONVOLVES = """
    def setup(self, value):
        self.conv, self.norm = nn.Conv1d(1, 3, 3, padding=1, dilation=1), nn.BatchNorm1d(3)

    def middle(self, h):
        return h + self.norm(self.conv(h.unsqueeze(1))).relu().sum(1)
"""
SHARES = """
    def middle(self, h):
        both = 1.2 * h
        one, other = torch.unsafe_chunk(both, 2, -1)  # views that do not say so
        late = both.tanh()
        return torch.cat([one * other, one + other], -1) + late
"""
RESHAPES = """
    def setup(self, value):
        self.square = nn.Parameter(torch.eye(8) + 0.1 * torch.ones(8, 8).triu())

    def middle(self, h):
        turned = 1.0 * self.square
        kept = turned.view(8, 8)
        turned.t_()
        return h.tanh() @ kept + 0.1 * h @ turned
"""
COUNTS_ALWAYS = """
    def setup(self, value):
        self.register_buffer("seen", torch.zeros(()))

    def middle(self, h):
        self.seen.add_(0.01)  # in evaluation too, from which training must not see it
        return h.tanh() * (1 + self.seen) if self.training else h.tanh()
"""
COMPLEX = """
    def middle(self, h):
        z = torch.complex(*h.unflatten(-1, (2, 4)).unbind(-2))
        z = z * (z + 1)
        return torch.cat([z.abs(), torch.view_as_real(z).flatten(-2)[..., :4]], -1).tanh()
"""


@pytest.mark.slow
@pytest.mark.parametrize("methods", [SCALAR, ASSIGNS, CONVOLVES, SHARES, RESHAPES, COUNTS_ALWAYS, COMPLEX])
def test_a_module_of_many_ways_is_the_same_in_every_stack_and_near_the_run_alone(sweep, methods: str) -> None:
    job = ["precision=64", "trainer=sgd"]
    runs = sweep(methods, *job, "seed=range(5)")
    assert paths(runs) == ["stacked"] * 5
    assert list(map(files, sweep(methods, *job, "seed=4,3", runs="pair"))) == [files(runs[4]), files(runs[3])]
    (alone,) = sweep(methods, *job, "seed=4", runs="alone")
    assert runs[4].read()["metrics"] == pytest.approx(alone.read()["metrics"], rel=1e-8)


COUNTS = """
    def setup(self, value):
        self.calls = 0

    def middle(self, h):
        self.calls += 1
        return h.tanh() / self.calls
"""
LOOKS_INTO_EVALUATION = """
    def middle(self, h):
        return h.tanh() * (1 if self.training else 1 + self.value)
"""
HOOKED = """
    def setup(self, value):
        self.inner.weight.register_hook(lambda grad: grad.clamp(-1, 1))

    def middle(self, h):
        return h.tanh()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("methods", "point", "reason"),
    [
        (COUNTS, "seed=0,1", "its forward pass changes 'calls'"),
        (HOOKED, "seed=0,1", "there are hooks on its weights"),
        (LOOKS_INTO_EVALUATION, "model.value=0,1", "reads 'value'"),
    ],
)
def test_what_a_stack_would_get_wrong_is_trained_alone_with_the_right_numbers(sweep, methods, point, reason) -> None:
    runs = sweep(methods, point)
    assert paths(runs) == ["solo"] * 2
    assert reason in runs[1].read()["notes"][0]
    (alone,) = sweep(methods, point.replace("0,", ""), runs="alone")
    assert files(alone) == files(runs[1])


TRAINER = '''
"""A trainer of our own."""
import torch
from dataclasses import dataclass
from nnexp import Trainer, trainer

@trainer
@dataclass(kw_only=True)
class Own(Trainer):
    """Steps of our own."""

    def init(self, weights):
        return {}

    def update(self, weights, grads, state, step, *, lr, weight_decay):
        return weights - lr * DIRECTION, state
'''


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "reason"),
    [
        ("grads / grads.norm()", "another update than the plain module"),
        ("(grads + 0.01 * torch.randn_like(grads))", "trainer 'own' draws random numbers"),
        ("(grads * float(lr))", "ValueError: only one element tensors"),
    ],
)
def test_a_trainer_that_is_not_for_many_lanes_trains_them_one_by_one(sweep, direction, reason) -> None:
    trainer = TRAINER.replace("DIRECTION", direction)
    runs = sweep(PLAIN, "trainer=own", "seed=0,1", trainer=trainer)
    assert paths(runs) == ["solo"] * 2
    assert reason in runs[1].read()["notes"][0]
    (alone,) = sweep(PLAIN, "trainer=own", "seed=1", runs="alone", trainer=trainer)
    assert files(alone) == files(runs[1])


OWN_VALUES = TRAINER.replace(
    "    def init",
    """    _calls = 0

    def __post_init__(self):
        self.twice = 2 * self.lr

    def lr_factor(self, step):
        return max(super().lr_factor(step), 0.05 / self.lr)

    def init""",
)
LATE = "(self.twice if step > 20 else 1.0) * grads"
READS_LR = "(grads * (2 if self.lr > 0.5 else 1))"
COUNTED = "(setattr(self, '_calls', self._calls + 1) or grads)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "points", "reason"),
    [
        ("grads", ["trainer.lr=0.1,1.0", "trainer.schedule=cosine"], None),
        (LATE, ["trainer.lr=0.1,0.2"], "its trainer's update reads 'twice'"),
        (LATE, ["seed=0,1"], None),
        (READS_LR, ["trainer.lr=0.1,1.0"], "its trainer's update reads 'lr'"),
        (COUNTED, ["seed=0,1"], "its trainer changes its own '_calls'"),
    ],
    ids=["own schedule", "own value, late", "own value, shared", "rate", "changes itself"],
)
def test_a_lane_is_updated_with_the_values_of_its_own_trainer(sweep, direction, points, reason) -> None:
    trainer = OWN_VALUES.replace("DIRECTION", direction)
    together = sweep(PLAIN, "trainer=own", "precision=64", *points, trainer=trainer)
    alone = sweep(PLAIN, "trainer=own", "precision=64", *points, "stack=false", runs="alone", trainer=trainer)
    assert paths(together) == ["stacked" if reason is None else "solo"] * 2
    assert [any(str(reason) in note for note in run.read()["notes"]) for run in together] == [reason is not None] * 2
    for one, other in zip(together, alone, strict=True):
        mine, theirs = (list(read_rows(run.path / "metrics.csv")) for run in (one, other))
        assert [row.get("lr") for _, row in mine] == [row.get("lr") for _, row in theirs]
        assert mine[60][1]["train/loss"] == pytest.approx(theirs[60][1]["train/loss"], rel=1e-9)


def test_with_stack_false_each_is_as_if_alone(sweep) -> None:
    runs = sweep(PLAIN, "seed=0,1", "stack=false")
    assert paths(runs) == ["solo"] * 2
    assert files(runs[1]) == files(sweep(PLAIN, "seed=1", runs="alone")[0])


DROPS = """
    def middle(self, h):
        return nn.functional.dropout(h.tanh(), 0.25, self.training)
"""


@pytest.mark.slow
def test_dropout_is_each_lanes_own_and_equal_in_distribution_to_the_run_alone(sweep) -> None:
    job = ["trainer.max_steps=200", "checkpoint_every=50"]
    runs = sweep(DROPS, *job, "seed=range(12)")
    assert [run.status for run in runs] == ["finished"] * 12
    assert paths(runs) == ["stacked"] * 12
    assert "in distribution only" in runs[0].read()["notes"][0]
    pair = sweep(DROPS, *job, "seed=5,20", runs="pair")
    assert files(pair[0]) == files(runs[5])
    alone = sweep(DROPS, *job, "seed=range(12)", "stack=false", runs="alone")
    losses = [torch.tensor([run.read()["metrics"]["test/loss"] for run in each]) for each in (runs, alone)]
    assert losses[0].sub(losses[1]).abs().max() > 1e-4
    assert abs(losses[0].mean() - losses[1].mean()) < 3 * torch.cat(losses).std() * (2 / 12) ** 0.5


class Explodes(CohortModule):
    """Fails at step 40 where a lane of seed 2 is among the lanes: an error that no lane owns."""

    raised: BaseException
    sizes: ClassVar[list[int]] = []

    def on_train_start(self) -> None:
        super().on_train_start()
        self.sizes.append(len(self.writers))

    def training_step(self, batch, index) -> None:
        seeds = [lane.job.options.seed for lane in self.writers]
        if self.engine.step >= 40 and 2 in seeds:
            self.engine.advance = self._fail  # type: ignore[method-assign, assignment]
        super().training_step(batch, index)

    def _fail(self, _stop: int):
        raise self.raised


@pytest.mark.slow
@pytest.mark.parametrize("error", [RuntimeError("broken"), MemoryError("not enough"), SystemExit(0)], ids=repr)
def test_an_error_that_no_lane_owns_halves_the_cohort_until_its_cause_is_alone(
    registry, tmp_path: Path, error: BaseException
) -> None:
    def trained(runs: str, module_class: type[CohortModule]) -> list[Run]:
        command = ["dataset=moons", "model=mlp", "trainer.max_steps=60", "checkpoint_every=20", "seed=range(6)"]
        (cohort,) = plan_cohorts(jobs_of([*command, f"runs='{tmp_path / runs}'"], registry, multirun=True), registry)
        for planned in cohort:
            planned.run.lock()
        progress = ProgressBar("", 0, quiet=True)
        fit = CohortFit(registry=registry, stop=StopRequest(), progress=progress, module_class=module_class, chunk=10)
        fit.train(cohort)
        for planned in cohort:
            planned.run.unlock()
        return [planned.run for planned in cohort]

    Explodes.raised = error
    Explodes.sizes.clear()
    runs = trained("broken", Explodes)
    assert [run.status for run in runs] == ["finished"] * 2 + ["failed"] + ["finished"] * 3
    assert Explodes.sizes == [6, 3, 1, 2, 1, 1, 3]
    assert runs[0].read()["resumed_from"][0] == 40
    assert paths(runs) == ["stacked"] * 6
    whole = trained("whole", CohortModule)
    assert [files(run) for run in runs if run.status == "finished"] == [
        files(run) for run in whole if run.path.name.rpartition("-")[2] != runs[2].path.name.rpartition("-")[2]
    ]


@pytest.mark.slow
def test_a_cohort_that_is_stopped_goes_on_as_a_stack(sweep) -> None:
    whole = sweep(PLAIN, "seed=0,1,2", "checkpoint_every=7")

    stopped = sweep(PLAIN, "seed=0,1,2", "checkpoint_every=7", runs="b", stop=StopAfter(33))
    assert {run.status for run in stopped} == {"interrupted"}
    alone = sweep(PLAIN, "seed=1", "checkpoint_every=7", runs="b")
    others = sweep(PLAIN, "seed=0,1,2", "checkpoint_every=7", runs="b")
    assert paths([*alone, *others]) == ["stacked"] * 4
    assert all(run.read()["resumed_from"][0] > 0 for run in others)
    assert list(map(files, others)) == list(map(files, whole))


def test_memory_cuts_a_cohort_into_even_stacks(sweep, monkeypatch) -> None:
    made: list[int] = []

    class Noted(Stack):
        def __init__(self, lanes, stopped, **rest) -> None:
            made.append(len(lanes))
            super().__init__(lanes, stopped, **rest)

    whole = sweep(PLAIN, "seed=range(7)")
    monkeypatch.setattr("nnexp.fit.stack_or_solo.Stack", Noted)
    monkeypatch.setattr("nnexp.fit.cohort_fit.lanes_that_fit", lambda *_: 3)
    runs = sweep(PLAIN, "seed=range(7)", runs="cut")
    assert made == [3, 2, 2]
    assert list(map(files, runs)) == list(map(files, whole))
    monkeypatch.setattr("nnexp.fit.cohort_fit.lanes_that_fit", lambda *_: 1)
    runs = sweep(PLAIN, "seed=0,1", runs="one")
    assert paths(runs) == ["solo"] * 2


@pytest.mark.slow
def test_a_stack_for_which_memory_does_not_suffice_is_halved(sweep, monkeypatch) -> None:
    class Large(Stack):
        def __init__(self, lanes, stopped, **rest) -> None:
            if len(lanes) > 2:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")
            super().__init__(lanes, stopped, **rest)

    whole = sweep(PLAIN, "seed=range(4)")
    monkeypatch.setattr("nnexp.fit.stack_or_solo.Stack", Large)
    runs = sweep(PLAIN, "seed=range(4)", runs="small")
    assert paths(runs) == ["stacked"] * 4
    assert list(map(files, runs)) == list(map(files, whole))


def test_rows_of_lanes_are_those_of_their_own_values(sweep) -> None:
    runs = sweep(PLAIN, "trainer.lr=0.1,0.2", "trainer.warmup_steps=4")
    for run, lr in zip(runs, (0.1, 0.2), strict=True):
        rates = [row["lr"] for _, row in read_rows(run.path / "metrics.csv") if "lr" in row]
        assert rates[:5] == pytest.approx([lr / 4, lr / 2, lr * 3 / 4, lr, lr], rel=1e-15)


def test_nothing_is_stacked_of_nothing() -> None:
    assert list(PathSelector([], True, lambda lane: lane, StopRequest(), None).groups()) == []  # type: ignore[arg-type]
