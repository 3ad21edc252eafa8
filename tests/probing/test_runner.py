"""Probes in training: their schedule, their isolation from training, and the handling of results and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from contract.compose import jobs_of
from contract.registry import REGISTRY
from contract.stopping import StopAfter
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nnexp.base.signals import StopRequest
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan
from nnexp.probing.schedule import drawn_steps
from nnexp.rundir.run import Run

pytestmark = pytest.mark.slow


ALL = f"probe=[{','.join(REGISTRY.names('probe'))}]"
RUDE = '''"""One that does all that it should not. Our own."""
from dataclasses import dataclass
import os, random, sys, warnings
import numpy, torch
from nnexp import Probe, Range, probe
from nnexp.registry.observation import Observation, Picture

@probe
@dataclass(kw_only=True)
class Rude(Probe):
    """Disturbs.

    Args:
        fault: what goes wrong at last.
    """

    fault: str = ""

    def __call__(self, view):
        view.update
        x, y = view.rows("train", 400)
        x.zero_(), y.zero_()
        with torch.no_grad():
            for p in view.module.parameters():
                p.zero_()
        view.module.register_forward_hook(lambda *_: 1 / 0)
        view.module.extra = view
        random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
        torch.set_default_dtype(torch.float64), torch.set_grad_enabled(False), torch.set_num_threads(2)
        os.environ["RUDE"] = "1"
        os.chdir("/")
        warnings.simplefilter("error")
        if self.fault == "exit":
            sys.exit(3)
        if self.fault == "raise" and view.step:
            raise ValueError("a fault of its own")
        if self.fault == "draw":
            return Observation(pictures={"one": Picture("One", {"x": [1]}, lambda figure, numbers: numbers["y"])})
        if self.fault == "name":
            return Observation(scalars={"": 1.0})
        if self.fault == "type":
            return 0
        if self.fault == "text":
            return Observation(scalars={"weight": "heavy"}, histograms={"x": 3})
        if self.fault == "none":
            print("called")
            return None
        return Observation({"weight": float(next(view.module.parameters()).sum()), "missing": float("nan")})
'''


def contents(run: Run) -> dict[str, bytes]:
    return {name: (run.path / name).read_bytes() for name in ("metrics.csv", "model.pt")}


@pytest.mark.slow
@pytest.mark.parametrize("pair", [("dataset=moons", "model=mlp"), ("dataset=pattern", "model=gru")], ids="-".join)
def test_a_run_with_all_probes_is_the_run_without_to_the_last_bit(train, pair: tuple[str, str]) -> None:
    overrides = [*pair, "trainer.max_steps=12", "trainer.clip_norm=0.5"]
    plain, probed = train(*overrides), train(*overrides, ALL, runs="probed")
    assert contents(probed) == contents(plain)
    assert probed.read()["notes"] == []
    assert list((probed.path / "figures").glob("*.png"))
    assert not (plain.path / "figures").exists()


def launched(folder: Path, registry, *overrides: str) -> list[Run]:
    jobs = jobs_of([*overrides, f"runs='{folder}'"], registry, multirun=True)
    return [item.run for item in run_plan(plan_cohorts(jobs, registry), registry, StopRequest(), quiet=True)]


@pytest.mark.slow
def test_each_lane_of_a_stack_is_observed_and_trains_the_same(tmp_path: Path, registry) -> None:
    overrides = ["dataset=moons", "model=mlp", "seed=0,1,2", "trainer.max_steps=12"]
    plain = launched(tmp_path / "plain", registry, *overrides)
    probed = launched(tmp_path / "probed", registry, *overrides, "probe=gradient_norm")
    for one, other in zip(plain, probed, strict=True):
        assert one.read()["path"].startswith("stacked")
        assert contents(one) == contents(other)
        rows = dict(line.split(",", 1) for line in (one.path / "metrics.csv").read_text().splitlines()[2:])
        norm = json.loads((other.path / "figures" / "gradient_norm-0000010.json").read_text())["scalars"]
        assert norm["before_clipping/total"] == pytest.approx(float(rows["11"].split(",")[1]), rel=1e-4)


@pytest.fixture
def rude(registry_of):
    return registry_of("rude", probe=RUDE)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "raise", "exit", "draw", "name", "type", "text"])
def test_a_rude_probe_changes_nothing_and_its_errors_stop_only_the_probe(train, rude, fault: str, undrawn) -> None:
    overrides = ["dataset=moons", "model=mlp", "trainer.max_steps=12"]
    plain, here = train(*overrides), Path.cwd()
    with undrawn():
        run = train(
            *overrides, "probe=[rude,gradient_norm]", f"probe.rude.fault='{fault}'", plugins=rude, runs="probed"
        )
    assert contents(run) == contents(plain)
    assert (Path.cwd(), torch.get_default_dtype(), torch.is_grad_enabled()) == (here, torch.float32, True)
    facts = run.read()
    assert facts["status"] == "finished"
    assert (run.path / "figures" / "gradient_norm-0000012.json").exists()
    reasons = {"raise": "step 10: ValueError: a fault", "exit": "step 0: SystemExit: 3", "draw": "KeyError: 'y'"}
    reasons |= {"name": "'' is no name", "type": "not int", "text": "TypeError"}
    assert [reasons[fault] in note and "probe 'rude'" in note for note in facts["notes"]] == ([True] if fault else [])
    assert facts["probes"].get("rude/weight") == (0.0 if fault in ("", "raise") else None)
    if not fault:
        assert facts["probes"]["rude/missing"] is None


def test_a_probe_that_returns_none_is_called_once(train, rude) -> None:
    run = train(
        "dataset=moons", "model=mlp", "trainer.max_steps=12", "probe=rude", "probe.rude.fault=none", plugins=rude
    )
    assert (run.path / "log.txt").read_text() == "called\n"
    assert run.read()["notes"] == []


@pytest.mark.slow
def test_scalars_and_pictures_are_in_the_event_file_at_the_observed_steps(train) -> None:
    run = train(
        "dataset=moons", "model=mlp", "trainer.max_steps=40", "probe=gradient_norm", "probe.gradient_norm.every=2"
    )
    events = EventAccumulator(str(run.path), size_guidance={"images": 0, "tensors": 0, "scalars": 0})
    events.Reload()
    assert [p.step for p in events.Scalars("gradient_norm/before_clipping/total")] == list(range(0, 41, 2))
    images = events.Images("gradient_norm/layers")
    assert [image.step for image in images] == sorted(drawn_steps(2, 40))
    on_disk = {path.read_bytes() for path in (run.path / "figures").glob("*.png")}
    assert {image.encoded_image_string for image in images} == on_disk
    assert len(on_disk) == len(images) <= 10
    assert run.read()["probes"]["gradient_norm/before_clipping/total"] > 0


def test_texts_are_shown_at_the_steps_of_pictures_and_all_are_saved(train) -> None:
    overrides = ["dataset=chartext", "model=linear", "trainer.max_steps=30", "probe=sample", "probe.sample.every=2"]
    run = train(*overrides, "probe.sample.length=3", "dataset.length=8")
    events = EventAccumulator(str(run.path), size_guidance={"tensors": 0})
    events.Reload()
    assert [text.step for text in events.Tensors("sample/drawn")] == sorted(drawn_steps(2, 30))
    assert len([*(run.path / "figures").glob("sample-00*.json")]) == 16


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_figures_and_events_of_one_that_was_not(train) -> None:
    overrides = ["dataset=moons", "model=mlp", "trainer.max_steps=60", "probe=gradient_norm"]
    overrides += ["probe.gradient_norm.every=20", "checkpoint_every=7"]
    whole = train(*overrides, runs="whole")

    cut = train(*overrides, stop=StopAfter(34))
    assert cut.status == "interrupted"
    assert (cut.path / "figures" / "gradient_norm-0000020.json").exists()
    assert train(*overrides).status == "finished"
    figures = [{p.name: p.read_bytes() for p in (run.path / "figures").iterdir()} for run in (whole, cut)]
    assert figures[0] == figures[1]
    steps = []
    for run in (whole, cut):
        events = EventAccumulator(str(run.path), size_guidance={"images": 0})
        events.Reload()
        steps.append([image.step for image in events.Images("gradient_norm/layers")])
    assert steps[0] == steps[1] == [0, 20, 40, 60]


@pytest.mark.slow
def test_a_run_that_stops_early_is_observed_at_its_last_step(train) -> None:
    overrides = ["dataset=moons", "model=mlp", "trainer.lr=1", "trainer.eval_every=5", "trainer.patience=2"]
    run = train(*overrides, "trainer.max_steps=3000", "probe=gradient_norm")
    steps = run.read()["steps"]
    assert run.read()["stopped_early"]
    assert (run.path / "figures" / f"gradient_norm-{steps:07d}.json").exists()


CHECK = """
import sys
from nnexp.commands.cli import command_line as main
for probes in ("[]", "gradient_norm"):
    code = main(["dataset=moons", "model=mlp", "trainer.max_steps=5", "runs=runs", f"probe={probes}"])
    print([code, *(name in sys.modules for name in ("scipy", "matplotlib", "matplotlib.pyplot"))])
"""


@pytest.mark.slow
def test_the_plotting_library_is_imported_where_something_is_drawn_and_its_state_and_scipy_never(tmp_path) -> None:
    result = subprocess.run([sys.executable, "-c", CHECK], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    found = [line for line in result.stdout.splitlines() if line.startswith("[")]
    assert found == ["[0, False, False, False]", "[0, False, True, False]"], result.stderr
