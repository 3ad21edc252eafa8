"""What the benchmark says is what it measured; no figure is asserted here."""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnexp.base.errors import NnexpError
from nnexp.commands.bench.cases import CASES
from nnexp.commands.bench.environment import no_caches
from nnexp.commands.bench.jobs import make_jobs
from nnexp.commands.bench.picture import make_figure
from nnexp.commands.bench.point import seconds_per_update
from nnexp.commands.bench.reference_loops import run_bare_loop
from nnexp.commands.bench.report import Measurement, spread, table
from nnexp.commands.bench.start import MAIN_JOB, seconds
from nnexp.commands.bench.timed_training import train
from nnexp.commands.cli import command_line

pytestmark = pytest.mark.slow


MLP = CASES["moons mlp"].overrides


def measurement(**changes) -> Measurement:
    facts = {"part": "b", "case": "moons mlp", "what": "bare / ours", "unit": "x", "values": [2.0, 9.0, 4.0]}
    return Measurement(**{**facts, **changes})


def rows_of(arguments: list[str], folder: Path) -> list[dict[str, str]]:
    """What a small benchmark writes to its file."""
    file = folder / "figures.csv"
    small = ["--jobs", "2", "--loop-jobs", "1", "--loop-steps", "20", "--lightning-steps", "5", "--rounds", "1"]
    assert command_line(["bench", *small, "--cases", "moons mlp", *arguments, "--csv", str(file)]) == 0
    with file.open() as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_jobs_that_differ_in_seed_alone(name: str, registry, tmp_path: Path) -> None:
    one, two = make_jobs(CASES[name].overrides, registry, str(tmp_path), 10, range(3, 5))
    assert f"{one.dataset.name} {one.model.name}" == name
    different = {key for key, value in one.flat().items() if value != two.flat()[key]}
    assert different == {"seed", "model.seed", "trainer.seed"}
    assert (one.trainer.values["max_steps"], one.trainer.values["batch_size"], two.options.seed) == (10, 32, 4)


@pytest.mark.slow
def test_planning_is_measured_against_hydra(tmp_path: Path) -> None:
    rows = rows_of(["--part", "plan", "--plan-jobs", "80", "--plan-composed", "2"], tmp_path)
    assert [row["what"] for row in rows[:3]] == ["ours, all new", "ours, all finished", "Hydra"]
    assert [row["unit"] for row in rows] == ["s"] * 3 + ["x"] * 2
    assert rows[0]["at"] == "80"
    assert rows[0]["scaled"] == "Hydra, from 2 jobs"


def test_the_bar_of_an_lstm_depends_on_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNEXP_COMPILER", "none")
    assert (CASES["pattern lstm"].bar, CASES["pattern gru"].bar) == (1.5, 5.0)
    monkeypatch.setenv("NNEXP_COMPILER", sys.executable)
    assert CASES["pattern lstm"].bar == 4.0


def test_our_way_trains_all_jobs_and_reads_from_the_runs_how(registry, tmp_path: Path) -> None:
    jobs = make_jobs(MLP, registry, str(tmp_path / "runs"), 30, range(3))
    began = time.perf_counter()
    trained = train(jobs, registry)
    assert 0 < trained.seconds < time.perf_counter() - began
    assert len(list(tmp_path.glob("runs/*/*/model.pt"))) == 3
    assert trained.paths == {"stacked"}
    assert trained.parameters == 2 * 16 + 16 + 16 * 2 + 2


def test_jobs_one_by_one_are_cohorts_of_one(registry, tmp_path: Path) -> None:
    trained = train(make_jobs((*MLP, "stack=false"), registry, str(tmp_path), 30, range(3)), registry)
    assert trained.paths == {"solo"}
    assert [max(times) for times in trained.chunk_times] == [30, 30, 30]


def test_a_run_that_does_not_finish_is_no_figure(registry, tmp_path: Path) -> None:
    jobs = make_jobs((*MLP, "model.activation=relu", "trainer.lr=1e30"), registry, str(tmp_path), 10, range(1))
    with pytest.raises(NnexpError, match="diverged"):
        train(jobs, registry)


def test_a_bare_loop_trains(registry, make_lane) -> None:
    lane = make_lane(*MLP, "trainer.max_steps=300")
    before = lane.evaluate("val")["val/loss"]
    run_bare_loop(lane)
    assert lane.evaluate("val")["val/loss"] < before / 2


def test_a_single_run_is_compared_with_both_loops(tmp_path: Path) -> None:
    picture = tmp_path / "nothing to draw.png"
    found = {row["what"]: row for row in rows_of(["--part", "a", "--steps", "30", "--picture", str(picture)], tmp_path)}
    assert not picture.exists()
    ours, plain = float(found["ours, a step"]["median"]), float(found["bare, a step"]["median"])
    assert float(found["ours / bare"]["median"]) == pytest.approx(ours / plain)
    assert float(found["Lightning / ours"]["median"]) > 0
    assert found["ours / bare"]["path"] == "solo"


@pytest.mark.slow
@pytest.mark.parametrize("has_bar", [True, False])
def test_a_sweep_is_compared_with_loops_scaled_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], has_bar: bool
) -> None:
    if has_bar:
        monkeypatch.setattr("nnexp.commands.bench.cases.JOBS", 2)
    picture = tmp_path / "figures.png"
    found = {row["what"]: row for row in rows_of(["--part", "b", "--steps", "30", "--picture", str(picture)], tmp_path)}
    assert picture.read_bytes().startswith(b"\x89PNG")
    for way in ("one by one", "bare", "Lightning"):
        took, ours = float(found[f"{way}, 30 steps"]["median"]), float(found["ours, 30 steps"]["median"])
        assert float(found[f"{way} / ours"]["median"]) == pytest.approx(took / ours)
    if has_bar:
        assert float(found["Lightning / ours"]["bar"]) == 3 * float(found["bare / ours"]["bar"])
    assert (found["bare / ours"]["passed"] in ("passed", "FAILED")) == has_bar
    assert found["bare / ours"]["threads"] == "1"
    printed = capsys.readouterr().out
    assert "scaled: bare from 1 jobs of 20 steps" in printed
    assert "scaled: Lightning from 1 job of 5 steps" in printed


@pytest.mark.slow
def test_a_whole_command_is_compared_with_loops_and_a_long_one_is_scaled_from_two_shorter_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--cold-steps", "4000", "--cold-most-steps", "40", "--lightning-steps", "0"]
    rows = rows_of(["--part", "cold", *more], tmp_path)
    assert [row["what"] for row in rows] == [f"{what}, 4000 steps" for what in ("ours", "bare", "bare / ours")]
    assert float(rows[1]["median"]) > 0
    assert all(row["path"] for row in rows)
    assert rows[0]["scaled"] == "ours, 4000 steps, from commands of 20 and 40 steps"
    assert "scaled: ours, 4000 steps, from commands of 20 and 40 steps" in capsys.readouterr().out


@pytest.mark.slow
def test_cost_and_memory_are_measured_at_each_size(tmp_path: Path) -> None:
    arguments = ["--part", "c", "--axes", "lanes", "--most-lanes", "2", "--steps", "70"]
    rows = rows_of(arguments, tmp_path)
    cost, memory = (
        [row for row in rows if row["what"] == f"lanes: {what}"] for what in ("a lane and step", "peak memory")
    )
    assert [row["at"] for row in cost] == [row["at"] for row in memory] == ["1", "2"]
    (doubled,) = [row for row in rows if row["what"] == "lanes doubled: time"]
    assert float(doubled["median"]) == pytest.approx(float(cost[1]["median"]) / float(cost[0]["median"]))
    (doubled,) = [row for row in rows if row["what"] == "lanes doubled: memory per lane"]
    assert float(doubled["median"]) == pytest.approx(float(memory[1]["median"]) / float(memory[0]["median"]) / 2)


def test_an_update_is_timed_without_the_first_chunk_and_the_last() -> None:
    assert seconds_per_update({20: 100.0, 60: 104.0, 140: 112.0, 200: 170.0}) == pytest.approx(0.1)
    assert seconds_per_update({20: 100.0, 60: 104.0}) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="more --steps"):
        seconds_per_update({20: 100.0})


@pytest.mark.slow
def test_the_peak_of_memory_is_that_of_its_own_process() -> None:
    look = "from nnexp.commands.bench.point import peak_mib; small = peak_mib(); "
    code = look + "held = b'1' * (300 << 20); del held; print(small, peak_mib())"
    large = b"1" * (600 << 20)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    small, peak = map(float, result.stdout.split())
    assert 295 < peak - small < 310
    assert large


@pytest.mark.slow
def test_the_first_step_of_the_main_job_comes_before_its_process_ends() -> None:
    began = time.time()
    assert 0 < seconds(MAIN_JOB) < time.time() - began


def test_a_command_with_no_caches_finds_none_and_leaves_none(tmp_path: Path) -> None:
    environment = no_caches(str(tmp_path))
    assert environment["OMP_NUM_THREADS"] == "1"
    for name in ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TORCH_HOME"):
        assert Path(environment[name]).parent == tmp_path


def test_medians_are_held_against_bars_on_the_right_side() -> None:
    assert measurement().is_passed is None
    assert [measurement(bar=bar).verdict for bar in (4.0, 4.1)] == ["passed", "FAILED"]
    assert [measurement(bar=bar, better="low").verdict for bar in (4.0, 3.9)] == ["passed", "FAILED"]
    assert spread([2.0, 9.0, 4.0]) == "4 (2-9)"
    assert spread([1234.5]) == "1234"


def test_the_table_has_a_line_for_each_measurement_and_each_scale() -> None:
    lines = table(
        [measurement(bar=15.0, scaled="bare from 2 jobs"), measurement(scaled="bare from 2 jobs")]
    ).splitlines()
    assert "FAILED" in lines[1]
    assert ">= 15" in lines[1]
    assert lines[3:] == ["scaled: bare from 2 jobs"]


@pytest.mark.slow
def test_a_peer_that_is_not_there_is_said_and_what_was_measured_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--steps", "30", "--jobs", "2", "--loop-jobs", "1", "--loop-steps", "20", "--lightning-steps", "0"]
    few = [*small, "--rounds", "1", "--cases", "moons mlp", "--part", "a,b", "--peer-python", "/no/such/python"]
    assert command_line(["bench", *few]) == 1
    captured = capsys.readouterr()
    assert "--peer-python /no/such/python: No such file or directory." in captured.err
    assert "ours / bare" in captured.out


@pytest.mark.parametrize("arguments", [["--jobs", "0"], ["--rounds", "-1"], ["--steps", "x"], ["--cold-steps", "5,0"]])
def test_a_count_that_measures_nothing_is_refused(capsys, arguments: list[str]) -> None:
    assert command_line(["bench", *arguments]) == 2
    assert "is not a whole number of at least 1" in capsys.readouterr().err


def test_files_that_cannot_be_written_are_refused_before_anything_is_measured(capsys, tmp_path: Path) -> None:
    for arguments in (["--csv", "no/such/figures.csv"], ["--picture", str(tmp_path / "figures.txt")]):
        assert command_line(["bench", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_the_picture_names_its_axes_with_units_and_shows_every_case() -> None:
    lanes = [
        measurement(part="c", case=case, what="lanes: a lane and step", unit="us", at=at)
        for case in ("moons mlp", "pattern lstm")
        for at in (1, 2)
    ]
    speed, cost = make_figure([measurement(at=64, bar=15.0), measurement(case="edges vit", at=64), *lanes]).axes
    assert [label.get_text() for label in speed.get_yticklabels()] == ["moons mlp", "edges vit"]
    assert speed.get_xlabel() == "times faster to train 64 jobs"
    assert (cost.get_xlabel(), cost.get_ylabel()) == ("lanes in the sweep", "time of a lane and update (µs)")
    assert cost.get_ylim()[1] / cost.get_ylim()[0] >= 9.99
    assert [text.get_text() for text in cost.get_legend().get_texts()] == ["moons mlp", "pattern lstm"]
