"""A finished run that is asked for a probe it was trained without: reopened from its weights, and not trained again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from contract.compose import jobs_of
from contract.stopping import StopAfter
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nnexp.base.signals import StopRequest
from nnexp.config.sweep_options import SweepOptions
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan
from nnexp.rundir.run import Run

JOB = ["dataset=moons", "model=mlp", "trainer.max_steps=30"]
COUNTS = '''"""Counts its calls. Our own."""
from dataclasses import dataclass
from nnexp import Probe, probe
from nnexp.registry.observation import Observation

@probe
@dataclass(kw_only=True)
class Counts(Probe):
    """Says that it was asked.

    Args:
        number: what it gives.
        is_there: whether it has anything to say.
        is_broken: raise.
    """

    number: float = 1.0
    is_there: bool = True
    is_broken: bool = False

    def __call__(self, view):
        print("asked at", view.step)
        if self.is_broken:
            raise RuntimeError("broken")
        change = float(view.update.change is not None)
        return Observation({"number": self.number, "change": change}) if self.is_there else None
'''


@pytest.fixture
def counts(registry_of):
    return registry_of("counts", probe=COUNTS)


def asked(run: Run) -> list[str]:
    path = run.path / "log.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if line.startswith("asked")]


def test_a_finished_run_is_looked_into_at_its_last_step_and_is_otherwise_as_it_was(train, counts) -> None:
    run = train(*JOB, plugins=counts)
    names = ("model.pt", "metrics.csv", "config.yaml")
    before, facts = {name: (run.path / name).read_bytes() for name in names}, run.read()
    again = train(*JOB, "probe=[gradient_norm,counts]", plugins=counts)
    assert again.path == run.path
    assert {name: (run.path / name).read_bytes() for name in names} == before
    now = run.read()
    assert asked(run) == ["asked at 30"]
    assert now["probes"]["counts/number"] == 1.0
    assert now["probes"]["counts/change"] == 0.0  # the optimiser's state is not kept
    assert {name: now[name] for name in ("status", "metrics", "steps", "seconds", "ended")} == {
        name: facts[name] for name in ("status", "metrics", "steps", "seconds", "ended")
    }
    assert "update_ratio" not in "".join(now["probes"])
    events = EventAccumulator(str(run.path))
    events.Reload()
    assert len(list(run.path.glob("events*"))) == 1
    assert [image.step for image in events.Images("gradient_norm/layers")] == [30]
    assert events.Scalars("train/loss")[-1].step == 30


@pytest.mark.slow
def test_what_has_looked_does_not_look_again_until_its_code_or_its_values_change(train, counts, change_file) -> None:
    run = train(*JOB, "probe=counts", plugins=counts)
    seen = len(asked(run))
    for overrides, more in (
        ([], 0),
        (["probe.counts.every=3"], 0),
        (["probe.counts.number=2"], 1),
        (["probe.counts.number=2"], 0),
    ):
        train(*JOB, "probe=counts", *overrides, plugins=counts)
        seen += more
        assert len(asked(run)) == seen, overrides
    assert run.read()["probes"]["counts/number"] == 2.0
    change_file(counts.get("probe", "counts").path, COUNTS.replace("asked at", "seen at"))
    train(*JOB, "probe=counts", "probe.counts.number=2", plugins=counts)
    assert asked(run)[-1] == "asked at 30"  # the code that this process has loaded; that it is another was noticed
    assert len(asked(run)) == seen + 1


@pytest.mark.slow
def test_a_probe_that_does_not_fit_is_not_asked_again_and_one_that_raises_is(train, counts) -> None:
    run = train(*JOB, plugins=counts)
    for _ in range(2):
        train(*JOB, "probe=counts", "probe.counts.is_there=false", plugins=counts)
    assert len(asked(run)) == 1
    for _ in range(2):
        train(*JOB, "probe=counts", "probe.counts.is_broken=true", plugins=counts)
    assert len(asked(run)) == 3
    assert run.status == "finished"
    (note,) = run.read()["notes"]
    assert "probe 'counts'" in note
    assert "RuntimeError: broken" in note
    assert "Traceback" in (run.path / "log.txt").read_text()
    train(*JOB, "probe=counts", plugins=counts)
    assert run.read()["notes"] == []


@pytest.mark.slow
def test_what_was_seen_with_other_values_is_forgotten(train, counts) -> None:
    run = train(*JOB, "probe=[counts,gradient_norm]", "probe.counts.every=10", plugins=counts)
    records = sorted(path.name for path in (run.path / "figures").glob("counts-*.json"))
    assert len(records) == 4
    train(*JOB, "probe=[counts,gradient_norm]", "probe.counts.number=2", plugins=counts)
    (record,) = (run.path / "figures").glob("counts-*.json")
    assert json.loads(record.read_text())["values"]["number"] == 2.0
    assert len([*(run.path / "figures").glob("gradient_norm-layers-*.png")]) == 3


def test_a_run_without_its_weights_stays_as_it_is_with_a_note(train, counts) -> None:
    run = train(*JOB, plugins=counts)
    (run.path / "model.pt").write_bytes(b"torn")
    assert train(*JOB, "probe=counts", plugins=counts).status == "finished"
    assert "probes could not be run on the finished run" in run.read()["notes"][0]


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"probe": 1, "step": 30, "fits": true}', b'{"step": "30"}'])
def test_a_record_that_is_damaged_is_left_out_and_costs_nothing_else(train, counts, content: bytes) -> None:
    run = train(*JOB, "probe=counts", plugins=counts)
    (run.path / "figures" / "counts-0000030.json").write_bytes(content)
    train(*JOB, "probe=[counts,gradient_norm]", plugins=counts)
    assert run.read()["notes"] == []
    events = EventAccumulator(str(run.path))
    events.Reload()
    assert [point.step for point in events.Scalars("counts/number")] == [0, 10]
    assert [image.step for image in events.Images("gradient_norm/layers")] == [30]


def test_files_of_somebody_elses_in_figures_are_left_alone(train, counts) -> None:
    run = train(*JOB, plugins=counts)
    folder = run.path / "figures"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    outside = Path(run.path).parent / "outside.json"
    outside.write_text("kept")
    (folder / "counts-0000030.json").symlink_to(outside)
    train(*JOB, "probe=counts", plugins=counts)
    assert outside.read_text() == "kept"
    assert (folder / "notes.txt").read_text() == "mine"
    assert not (folder / "counts-0000030.json").is_symlink()


KILL = "__import__('os').kill(__import__('os').getpid(), 9)"
DEADLY = COUNTS.replace("class Counts", "class Deadly").replace('raise RuntimeError("broken")', KILL)


def test_a_finished_run_stays_finished_where_looking_into_it_ends_the_process(tmp_path: Path, registry_of) -> None:
    plugins = registry_of("deadly", probe=DEADLY)
    sweep = [*JOB, "seed=0,1", f"runs='{tmp_path / 'runs'}'"]

    def launched(*overrides: str) -> list[Run]:
        jobs = jobs_of([*sweep, *overrides], plugins, multirun=True)
        return [
            item.run
            for item in run_plan(
                plan_cohorts(jobs, plugins), plugins, StopRequest(), SweepOptions(workers=1), quiet=True
            )
        ]

    before = [(run.path / "model.pt").read_bytes() for run in launched()]
    after = launched("probe=deadly", "probe.deadly.is_broken=true")
    assert [run.status for run in after] == ["finished", "finished"]
    assert [(run.path / "model.pt").read_bytes() for run in after] == before
    assert all("probes could not be run on the finished run" in run.read()["notes"][0] for run in after)


@pytest.mark.slow
def test_what_an_interrupted_run_was_told_of_its_probes_and_their_last_numbers_are_kept(train, counts) -> None:
    overrides = [*JOB, "probe=[counts,gradient_norm,filters]", "checkpoint_every=5", "probe.gradient_norm.every=7"]
    whole = train(*overrides, "probe.counts.is_broken=true", plugins=counts, runs="whole")
    cut = train(*overrides, "probe.counts.is_broken=true", plugins=counts, stop=StopAfter(24))
    assert cut.status == "interrupted"
    assert cut.read()["steps"] > 10
    train(*overrides, "probe.counts.is_broken=true", plugins=counts)
    assert asked(cut) == ["asked at 0"]
    for name in ("notes", "probes", "looked"):
        assert cut.read()[name] == whole.read()[name]
    figures = [{p.name: p.read_bytes() for p in (run.path / "figures").iterdir()} for run in (whole, cut)]
    assert figures[0] == figures[1]
