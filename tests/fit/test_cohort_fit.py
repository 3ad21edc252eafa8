"""One cohort through Lightning: schedule, resume, failure, and a process left as it was."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from contract.combinations import slow_but
from contract.compose import jobs_of
from contract.stopping import StopAfter

from nnexp.base.signals import StopRequest
from nnexp.execution.plan import plan_cohorts
from nnexp.fit import lightning_module as training
from nnexp.fit.cohort_fit import CohortFit
from nnexp.fit.progress import ProgressBar
from nnexp.fit.run_writer import RunWriter
from nnexp.rundir.checkpoint import LAST, load_checkpoint
from nnexp.rundir.metrics_csv import read_rows
from nnexp.rundir.run import Run

SHORT = ("dataset=moons", "model=mlp", "trainer.max_steps=230", "trainer.eval_every=50", "checkpoint_every=70")

FAULTY = '''
"""A model that fails on demand. Our own."""
import sys, torch
from torch import nn
from nnexp import DataSpec, model
from typing import Literal

@model
class Faulty(nn.Module):
    """Fails at the chosen place.

    Args:
        data: what the dataset says.
        fault: where.
        at: forward pass in training at which it fails.
    """
    def __init__(
        self,
        data: DataSpec,
        *,
        fault: Literal["none", "init", "forward", "exit", "ctrl_c", "infinite"] = "none",
        at: int = 30,
    ):
        super().__init__()
        if fault == "init":
            raise RuntimeError("no such thing")
        self.layer, self.fault, self.at = nn.Linear(2, 2), fault, at
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x, lengths=None):
        self.seen += int(self.training)
        if self.seen == self.at and self.training:
            if self.fault == "forward":
                raise RuntimeError("broken in forward")
            if self.fault == "exit":
                sys.exit(0)
            if self.fault == "ctrl_c":
                raise KeyboardInterrupt
        y = self.layer(x)
        return y * float("nan") if self.fault == "infinite" and self.seen >= self.at else y
'''


def files(run: Run) -> tuple[bytes, bytes]:
    return (run.path / "metrics.csv").read_bytes(), (run.path / "model.pt").read_bytes()


@pytest.fixture
def fit_with(registry, tmp_path: Path) -> Callable[..., Run]:
    """Trains one job by `fit` itself, with a given chunk length and signal state."""

    def run(*overrides: str, runs: str = "runs", chunk: int | None = None, stop: StopRequest | None = None) -> Run:
        (cohort,) = plan_cohorts(jobs_of([*overrides, f"runs='{tmp_path / runs}'"], registry), registry)
        cohort[0].run.lock()
        try:
            fit = CohortFit(
                registry=registry, stop=stop or StopRequest(), progress=ProgressBar("", 0, quiet=True), chunk=chunk
            )
            fit.train(cohort)
        finally:
            cohort[0].run.unlock()
        return cohort[0].run

    return run


def test_rows_say_what_was_measured_when(fit_with) -> None:
    run = fit_with(*SHORT)
    rows = dict(read_rows(run.path / "metrics.csv"))
    assert sorted(rows) == list(range(231))
    assert set(rows[0]) == {"val/loss", "val/accuracy"}
    assert [step for step, row in rows.items() if "val/loss" in row] == [0, 50, 100, 150, 200, 230]
    assert [step for step, row in rows.items() if "test/loss" in row] == [230]
    assert all({"train/loss", "grad_norm"} <= set(rows[step]) for step in range(1, 231))
    assert 0 < len([row for row in rows.values() if "grad_norm/head" in row]) <= 202
    norms = rows[1]["grad_norm/head"], rows[1]["grad_norm/hidden.0"]
    assert np.hypot(*norms) == pytest.approx(rows[1]["grad_norm"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_the_length_of_a_chunk_changes_no_byte(fit_with, chunk: int) -> None:
    assert files(fit_with(*SHORT, runs="a", chunk=chunk)) == files(fit_with(*SHORT, runs="b"))


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "times", "steps"), [(0, 0, [50, 100, 150]), (0, 1e9, [50]), (1e9, 0, [])])
def test_where_no_number_is_given_checkpoints_come_by_time_and_no_oftener_than_they_cost(
    fit_with, monkeypatch: pytest.MonkeyPatch, seconds: float, times: float, steps: list[int]
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", seconds)
    monkeypatch.setattr(training, "CHECKPOINT_COST_FACTOR", times)
    saved = []
    monkeypatch.setattr(RunWriter, "checkpoint", lambda writer: saved.append(writer.lane.step))
    run = fit_with(*SHORT[:2], "trainer.max_steps=160", chunk=50)
    assert run.status == "finished"
    assert saved == steps


@pytest.mark.parametrize(
    ("questions", "model"),
    slow_but(
        [(71, "model=mlp")],
        [*product([0, 1, 71, 99, 230], ["model=mlp"]), *product([71, 230], ["model=lstm"])],
    ),
)
def test_an_interrupted_run_ends_as_if_nothing_had_happened(fit_with, model: str, questions: int) -> None:
    job = (*SHORT, model, "trainer.batch_size=33")
    stopped = fit_with(*job, runs="a", stop=StopAfter(questions))
    assert stopped.status == "interrupted"
    assert not (stopped.path / "model.pt").exists()
    at = stopped.read()["steps"]
    assert at <= questions
    resumed = fit_with(*job, runs="a")
    assert resumed.read()["resumed_from"] == [at]
    assert len(list(resumed.path.glob("events*"))) == 1
    assert files(resumed) == files(fit_with(*job, runs="b"))


@pytest.mark.slow
def test_a_damaged_checkpoint_gives_way_to_the_one_before(fit_with) -> None:
    run = fit_with(*SHORT, runs="a", stop=StopAfter(200))
    (run.path / "last.ckpt").write_bytes(b"")
    assert fit_with(*SHORT, runs="a").read()["resumed_from"] == [140]
    assert files(run) == files(fit_with(*SHORT, runs="b"))


@pytest.mark.slow
def test_without_a_whole_checkpoint_training_begins_again(fit_with) -> None:
    run = fit_with(*SHORT, runs="a", stop=StopAfter(200))
    for name in ("last.ckpt", "previous.ckpt"):
        (run.path / name).write_bytes(b"")
    assert fit_with(*SHORT, runs="a").read()["resumed_from"] == [0]
    assert files(run) == files(fit_with(*SHORT, runs="b"))


@pytest.mark.slow
def test_a_metrics_file_shorter_than_its_checkpoint_begins_again(fit_with) -> None:
    run = fit_with(*SHORT, runs="a", stop=StopAfter(200))
    (run.path / "metrics.csv").write_text("step,train/loss\n")
    fit_with(*SHORT, runs="a")
    assert files(run) == files(fit_with(*SHORT, runs="b"))


def test_no_steps_evaluate_the_untrained_model(fit_with) -> None:
    run = fit_with(*SHORT, "trainer.max_steps=0")
    assert [step for step, _ in read_rows(run.path / "metrics.csv")] == [0]
    facts = run.read()
    assert (facts["status"], facts["steps"]) == ("finished", 0)
    assert set(facts["metrics"]) == {f"{s}/{m}" for s in ("train", "val", "test") for m in ("loss", "accuracy")}


def test_model_pt_loads_alone_into_the_plain_module(fit_with, registry, make_lane) -> None:
    run = fit_with(*SHORT)
    lane = make_lane(*SHORT)
    lane.module.load_state_dict(load_checkpoint(run.path / "model.pt")["weights"])
    for split in ("train", "val", "test"):
        for name, value in lane.evaluate(split).items():
            assert run.read()["metrics"][name] == value


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        ("init", "failed", "no such thing"),
        ("forward", "failed", "broken in forward"),
        ("exit", "failed", "0"),
        ("ctrl_c", "failed", ""),
        (
            "infinite",
            "diverged",
            "step 30: the loss is not finite. The first output that is not finite is",
        ),
        ("none", "finished", None),
    ],
)
def test_a_fault_costs_its_own_run_and_is_named(train, registry_of, fault, status, message) -> None:
    plugins = registry_of("faulty", model=FAULTY)
    run = train("dataset=moons", "model=faulty", f"model.fault={fault}", "trainer.max_steps=60", plugins=plugins)
    facts = run.read()
    assert facts["status"] == status
    assert facts["error"] is None if message is None else message in facts["error"]["message"]
    if fault == "infinite":
        assert [step for step, _ in read_rows(run.path / "metrics.csv")] == list(range(31))
        assert (run.path / "model.pt").exists()


@pytest.mark.slow
def test_a_failed_run_given_again_is_trained_again(registry_of, train) -> None:
    plugins = registry_of("faulty", model=FAULTY)
    job = ["dataset=moons", "model=faulty", "model.fault=forward", "trainer.max_steps=60", "checkpoint_every=10"]
    for resumed_from in ([], [20], [20, 20]):
        run = train(*job, plugins=plugins)
        assert run.read()["resumed_from"] == resumed_from
        assert run.status == "failed"


def test_nothing_global_is_left_changed(train, undrawn) -> None:
    loggers = [logging.getLogger(name) for name in ("", "pytorch_lightning", "lightning.pytorch")]
    before = [(logger.level, list(logger.handlers)) for logger in loggers], dict(os.environ), torch.get_num_threads()
    with undrawn():
        for seed in range(3):
            train("dataset=moons", "trainer.max_steps=3", f"seed={seed}", "precision=64")
    after = [(logger.level, list(logger.handlers)) for logger in loggers], dict(os.environ), torch.get_num_threads()
    assert after == before
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.slow
def test_a_job_alone_equals_the_same_job_after_others(train) -> None:
    alone = files(train(*SHORT, "seed=2", runs="a"))
    for seed in range(3):
        run = train(*SHORT, f"seed={seed}", runs="b")
    assert files(run) == alone


def test_precision_64_is_recorded_in_full(train) -> None:
    run = train(*SHORT, "precision=64")
    assert load_checkpoint(run.path / "model.pt")["weights"]["head.weight"].dtype == torch.float64
    rows = read_rows(run.path / "metrics.csv")
    assert any(value != float(np.float32(value)) for _, row in rows for value in row.values())


@pytest.mark.cuda
def test_a_run_on_cuda_ends_near_the_same_run_on_the_cpu(train) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    on_cpu = train(*SHORT, runs="a").read()["metrics"]
    on_gpu = train(*SHORT, "device=cuda", runs="b").read()["metrics"]
    assert on_gpu == pytest.approx(on_cpu, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["garbage", "one digit", "short"])
def test_a_changed_metrics_file_is_noticed_on_resume(fit_with, damage: str) -> None:
    run = fit_with(*SHORT, runs="a", stop=StopAfter(200))
    path = run.path / "metrics.csv"
    content = path.read_bytes()
    changed = {"garbage": b"\xff" * len(content), "one digit": content.replace(b"1", b"2", 1), "short": content[:100]}
    path.write_bytes(changed[damage])
    assert fit_with(*SHORT, runs="a").read()["resumed_from"] == [0]
    assert files(run) == files(fit_with(*SHORT, runs="b"))


@pytest.mark.slow
def test_a_metrics_file_cut_behind_the_older_checkpoint_goes_on_from_that_one(fit_with) -> None:
    run = fit_with(*SHORT, runs="a", stop=StopAfter(200))
    path = run.path / "metrics.csv"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:160]))
    assert fit_with(*SHORT, runs="a").read()["resumed_from"] == [140]
    assert files(run) == files(fit_with(*SHORT, runs="b"))


TORCH_ONLY = '''
"""An optimiser of torch's, with a rate of numpy's. Our own."""
from dataclasses import dataclass
import numpy as np
import torch
from nnexp import Trainer, trainer

@trainer
@dataclass(kw_only=True)
class Plain(Trainer):
    """What torch gives.

    Args:
        rate: the learning rate's kind, a number of numpy's or an object that no checkpoint can hold.
    """
    rate: str = "numpy"

    def optimizer(self, params):
        optimizer = torch.optim.RMSprop(params, lr=np.float64(self.lr), momentum=0.5)
        if self.rate == "object":
            optimizer.param_groups[0]["extra"] = object()
        return optimizer
'''


@pytest.mark.slow
def test_a_trainer_with_torchs_optimiser_alone_resumes_bit_for_bit(registry_of, train) -> None:
    plugins = registry_of("plain", trainer=TORCH_ONLY)
    job = ("dataset=moons", "model=mlp", "trainer=plain", "trainer.max_steps=230", "checkpoint_every=70")
    stopped = train(*job, plugins=plugins, stop=StopAfter(150))
    at = stopped.read()["steps"]
    assert train(*job, plugins=plugins).read()["resumed_from"] == [at]
    assert files(stopped) == files(train(*job, plugins=plugins, runs="b"))


def test_a_state_that_no_checkpoint_can_hold_fails_at_once_with_the_reason(registry_of, train) -> None:
    plugins = registry_of("plain", trainer=TORCH_ONLY)
    run = train("dataset=moons", "trainer=plain", "trainer.rate=object", plugins=plugins)
    assert run.status == "failed"
    assert "holds tensors and plain numbers, not object" in run.read()["error"]["message"]


@pytest.mark.slow
def test_patience_ends_training_early_and_a_resume_remembers_it(fit_with) -> None:
    job = ("dataset=moons", "model=mlp", "trainer.max_steps=2000", "trainer.eval_every=10", "trainer.patience=3")
    run = fit_with(*job, runs="a")
    losses = {step: row["val/loss"] for step, row in read_rows(run.path / "metrics.csv") if "val/loss" in row}
    facts = run.read()
    best = min(losses, key=lambda step: losses[step])
    assert (facts["status"], facts["stopped_early"]) == ("finished", True)
    assert facts["steps"] == max(losses) == best + 30 < 2000
    assert "test/loss" in read_rows(run.path / "metrics.csv")[-1][1]
    stopped = fit_with(*job, runs="b", stop=StopAfter(best * 11 // 10 + 25))  # asked once an update and once a chunk
    assert stopped.status == "interrupted"
    kept, waited = load_checkpoint(stopped.path / LAST)["state"]["patience"]
    assert (kept, waited > 0) == (pytest.approx(losses[best]), True)
    assert files(fit_with(*job, runs="b")) == files(run)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "lstm", "cnn", "vit"])
def test_bf16_trains_on_weights_of_32_bits_and_resumes_bit_for_bit(fit_with, model: str) -> None:
    job = ("dataset=moons", f"model={model}", "precision=bf16", "trainer.max_steps=60")
    run = fit_with(*job, runs="a")
    rows = read_rows(run.path / "metrics.csv")
    assert rows[-1][1]["val/loss"] < rows[0][1]["val/loss"]
    assert {t.dtype for t in load_checkpoint(run.path / "model.pt")["weights"].values()} == {torch.float32}
    full = read_rows(fit_with(*job, "precision=32").path / "metrics.csv")
    assert 0 < abs(rows[1][1]["train/loss"] - full[1][1]["train/loss"]) < 0.05
    assert rows[-1][1]["val/loss"] == pytest.approx(full[-1][1]["val/loss"], abs=0.1)
    fit_with(*job, runs="b", stop=StopAfter(30))
    assert files(fit_with(*job, runs="b")) == files(run)


def test_a_learning_rate_schedule_is_in_the_metrics(fit_with) -> None:
    run = fit_with(
        "dataset=moons", "model=mlp", "trainer.max_steps=100", "trainer.warmup_steps=10", "trainer.schedule=cosine"
    )
    rates = {step: row["lr"] for step, row in read_rows(run.path / "metrics.csv") if "lr" in row}
    assert rates[5] == pytest.approx(0.005)
    assert rates[11] == pytest.approx(0.01)
    assert rates[100] < 1e-5


def test_a_run_that_diverges_is_not_finished_early_by_its_patience(train) -> None:
    hasty = ("trainer=sgd", "trainer.lr=1e38", "trainer.eval_every=1", "trainer.patience=1", "trainer.max_steps=10")
    assert train("dataset=moons", "model=mlp", *hasty).status == "diverged"


@pytest.mark.slow
def test_accuracy_is_a_whole_number_of_rows_also_in_bf16(train) -> None:
    run = train("dataset=edges", "model=cnn", "precision=bf16", "trainer.max_steps=40")
    for name, rows in (("train/accuracy", 400), ("val/accuracy", 500), ("test/accuracy", 1000)):
        right = run.read()["metrics"][name] * rows
        assert right == pytest.approx(round(right), abs=1e-3)
