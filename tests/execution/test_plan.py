"""Jobs -> cohorts."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.compose import jobs_of

from nnexp.base.errors import ConfigError
from nnexp.execution.plan import plan_cohorts
from nnexp.rundir.planned_run import create_missing_runs


def test_planning_writes_nothing_and_keeps_the_order(registry, tmp_path: Path) -> None:
    jobs = jobs_of([f"runs='{tmp_path / 'runs'}'", "seed=3,1,2,1"], registry, multirun=True)
    (cohort,) = plan_cohorts(jobs, registry)
    assert [planned.job.options.seed for planned in cohort] == [3, 1, 2]
    assert not any(planned.is_done for planned in cohort)
    assert not (tmp_path / "runs").exists()


def test_the_runs_of_a_cohort_are_made_at_once_and_those_that_are_there_are_kept(registry, tmp_path: Path) -> None:
    jobs = jobs_of([f"runs='{tmp_path / 'runs'}'", "seed=0,1,2"], registry, multirun=True)
    (cohort,) = plan_cohorts(jobs, registry)
    there = cohort[1].run
    create_missing_runs(cohort)
    assert cohort[1].found is there
    assert [planned.run.read()["fingerprint"] for planned in cohort] == [planned.fingerprint for planned in cohort]
    assert len({planned.run.path for planned in cohort}) == 3


def test_a_finished_run_is_found_again_wherever_it_lies(registry, train, tmp_path: Path) -> None:
    run = train("dataset=moons", "trainer.max_steps=2")
    moved = run.path.rename(tmp_path / "runs" / "default" / f"other-name-{run.path.name[-8:]}")
    jobs = jobs_of(["dataset=moons", "trainer.max_steps=2", f"runs='{tmp_path / 'runs'}'"], registry)
    ((planned,),) = plan_cohorts(jobs, registry)
    assert planned.is_done
    assert planned.run.path == moved


def test_where_no_run_can_be_made_nothing_is_trained_and_nothing_is_left(
    registry, make_job, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("link").symlink_to("nowhere")
    Path("half").mkdir()
    Path("half", "default").touch()
    before = sorted(tmp_path.rglob("*"))
    for runs in ("file", "file/x", "link", "link/x", "half", "a/" * 2000 + "b"):
        with pytest.raises(ConfigError, match=r"not a usable folder: .*Name a folder that you can write to") as caught:
            plan_cohorts([make_job(f"runs={runs}")], registry)
        assert str(caught.value).startswith(f"runs='{runs[:100]}")
        assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_cannot_be_written_is_refused_unless_all_in_it_is_finished(
    registry, train, tmp_path: Path, monkeypatch
) -> None:
    train("dataset=moons", "trainer.max_steps=2")

    def refuse(**where: Path) -> None:
        raise PermissionError(13, "Permission denied", str(where))

    monkeypatch.setattr("nnexp.rundir.writable.tempfile.TemporaryFile", refuse)
    command = ["dataset=moons", f"runs='{tmp_path / 'runs'}'"]
    assert plan_cohorts(jobs_of([*command, "trainer.max_steps=2"], registry), registry)[0][0].is_done
    with pytest.raises(ConfigError, match="not a usable folder: Permission denied"):
        plan_cohorts(jobs_of([*command, "trainer.max_steps=3"], registry), registry)


def grouped(registry, tmp_path: Path, *overrides: str) -> list[list[int]]:
    jobs = jobs_of([f"runs='{tmp_path / 'runs'}'", *overrides], registry, multirun=True)
    return [[planned.number for planned in cohort] for cohort in plan_cohorts(jobs, registry)]


@pytest.mark.parametrize(
    "same",
    [
        ["seed=0,1"],
        ["dataset.seed=0,1"],
        ["model.seed=0,1"],
        ["trainer.seed=0,1"],
        ["model=lstm", "model.forget_bias=0,3"],
        ["model=lstm", "model.forget_bias=null,3"],
        ["model.init_scale=0.5,2"],
        ["dataset=moons", "model=mlp", "dataset.noise=0.1,0.2"],
        ["trainer.lr=0.1,0.01"],
        ["trainer.weight_decay=0,0.1"],
        ["trainer.clip_norm=null,1"],
    ],
    ids=str,
)
def test_jobs_that_differ_in_numbers_are_one_cohort(registry, tmp_path: Path, same: list[str]) -> None:
    assert grouped(registry, tmp_path, *same) == [[0, 1]]


@pytest.mark.parametrize(
    "apart",
    [
        ["model=rnn,lstm"],
        ["model.hidden_size=8,16"],
        ["trainer=adam,sgd"],
        ["trainer.batch_size=16,32"],
        ["trainer.eval_every=10,20"],
        ["trainer.patience=1,2"],
        ["dataset.length=16,20"],
        ["precision=32,64"],
        ["seed=0,1", "stack=false"],
    ],
    ids=str,
)
def test_jobs_that_differ_in_shapes_or_code_are_not(registry, tmp_path: Path, apart: list[str]) -> None:
    assert grouped(registry, tmp_path, *apart) == [[0], [1]]


def test_cohorts_keep_the_order_of_their_first_jobs_and_have_a_largest_size(
    registry, tmp_path: Path, monkeypatch
) -> None:
    assert grouped(registry, tmp_path, "seed=0,1,2", "model.hidden_size=4,8") == [[0, 2, 4], [1, 3, 5]]
    monkeypatch.setattr("nnexp.execution.cohorts.MAX_LANES", 2)
    assert grouped(registry, tmp_path, "seed=0,1,2", "model.hidden_size=4,8") == [[0, 4], [1, 5], [2], [3]]


def test_a_cut_cohort_is_cut_evenly_and_a_lane_that_is_left_over_is_one_of_a_cohort(
    registry, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("nnexp.execution.cohorts.MAX_LANES", 4)
    jobs = jobs_of([f"runs='{tmp_path}'", "seed=range(9)"], registry, multirun=True)
    cohorts = plan_cohorts(jobs, registry)
    assert [len(cohort) for cohort in cohorts] == [3, 3, 3]
    assert all(item.in_cohort for cohort in cohorts for item in cohort)
    assert not plan_cohorts(jobs[:1], registry)[0][0].in_cohort


def test_a_value_that_a_trainer_marks_itself_is_not_given_by_lane(registry_of, tmp_path: Path) -> None:
    text = """\"\"\"Own.\"\"\"
from dataclasses import dataclass
from typing import Annotated
from nnexp import PerLane, Trainer, trainer

@trainer
@dataclass(kw_only=True)
class Own(Trainer):
    \"\"\"Own.

    Args:
        push: a number.
    \"\"\"
    push: Annotated[float, PerLane] = 0.0
"""
    plugins = registry_of("own", trainer=text)
    assert grouped(plugins, tmp_path, "trainer=own", "trainer.push=0,1") == [[0], [1]]
    assert grouped(plugins, tmp_path, "trainer=own", "trainer.lr=0.1,1") == [[0, 1]]
