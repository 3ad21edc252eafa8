"""Jobs -> cohorts."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnexp.errors import ConfigError
from nnexp.plan import make_runs, plan
from nnexp.sweeper import compose_jobs


def test_planning_writes_nothing_and_keeps_the_order(registry, tmp_path: Path) -> None:
    jobs = compose_jobs([f"runs='{tmp_path / 'runs'}'", "seed=3,1,2,1"], registry, multirun=True)
    cohorts = plan(jobs, registry)
    assert [planned.job.settings.seed for (planned,) in cohorts] == [3, 1, 2]
    assert not any(planned.is_done for (planned,) in cohorts)
    assert not (tmp_path / "runs").exists()


def test_the_runs_of_a_cohort_are_made_at_once_and_those_that_are_there_are_kept(registry, tmp_path: Path) -> None:
    jobs = compose_jobs([f"runs='{tmp_path / 'runs'}'", "seed=0,1,2"], registry, multirun=True)
    (cohort,) = plan(jobs, registry)
    there = cohort[1].run
    make_runs(cohort)
    assert cohort[1].found is there
    assert [planned.run.read()["fingerprint"] for planned in cohort] == [planned.fingerprint for planned in cohort]
    assert len({planned.run.path for planned in cohort}) == 3


def test_a_finished_run_is_found_again_wherever_it_lies(registry, train, tmp_path: Path) -> None:
    run = train("dataset=moons", "trainer.max_steps=2")
    moved = run.path.rename(tmp_path / "runs" / "default" / f"other-name-{run.path.name[-8:]}")
    jobs = compose_jobs(["dataset=moons", "trainer.max_steps=2", f"runs='{tmp_path / 'runs'}'"], registry)
    ((planned,),) = plan(jobs, registry)
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
        with pytest.raises(
            ConfigError, match=r"runs cannot lie there: .*Name a folder that you can write to"
        ) as caught:
            plan([make_job(f"runs={runs}")], registry)
        assert str(caught.value).startswith(f"runs='{runs[:100]}")
        assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_cannot_be_written_is_refused_unless_all_in_it_is_finished(
    registry, train, tmp_path: Path, monkeypatch
) -> None:
    train("dataset=moons", "trainer.max_steps=2")

    def refuse(**where: Path) -> None:
        raise PermissionError(13, "Permission denied", str(where))

    monkeypatch.setattr("nnexp.place.tempfile.TemporaryFile", refuse)
    command = ["dataset=moons", f"runs='{tmp_path / 'runs'}'"]
    assert plan(compose_jobs([*command, "trainer.max_steps=2"], registry), registry)[0][0].is_done
    with pytest.raises(ConfigError, match="runs cannot lie there: Permission denied"):
        plan(compose_jobs([*command, "trainer.max_steps=3"], registry), registry)
