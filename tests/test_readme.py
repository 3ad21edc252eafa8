"""Every command of the README is run, and its plugin is trained. The two that install are run by .ci/run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from pathlib import Path

import pytest
from contract.commands import run_all
from contract.readme import PLUGINS, README, block, blocks

from nnexp.commands.cli import command_line
from nnexp.registry.contracts import CONTRACT

ROOT = Path(__file__).parent.parent

DAILY = [line for code in blocks("test: each line") for line in code.splitlines()]


def test_prose_is_in_paragraphs_of_at_most_60_words() -> None:
    prose = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    prose = re.sub(r"<!--.*?-->|^\|.*$", "", prose, flags=re.MULTILINE)
    long = [text for text in re.split(r"\n\s*\n", prose) if len(text.split()) > 60]
    assert long == []


def test_pictures_and_pages_that_the_readme_links_to_are_there() -> None:
    linked = re.findall(r"\]\(([\w./-]+)\)", README)
    assert len([path for path in linked if path.endswith(".png")]) == 3
    assert [path for path in linked if not (ROOT / path).is_file()] == []


def test_every_command_of_the_readme_stands_under_a_marker() -> None:
    fenced = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    assert len(fenced) == len(re.findall(r"-->\n```sh\n", README)) == len(blocks("test: each line")) + 2


COMMANDS = [line for line in DAILY if line.startswith("python -m nnexp")]


@pytest.fixture(scope="module")
def folder(made_once) -> Path:
    """Where all commands were run, in their order and in one process."""

    def fill(folder: Path) -> None:
        done = run_all([shlex.split(line)[3:] for line in COMMANDS], folder)
        (folder / "done.json").write_text(json.dumps(done))

    return made_once("readme", fill)


def test_each_daily_command_is_one_of_nnexp_or_tensorboard() -> None:
    assert [line for line in DAILY if line not in COMMANDS and not line.startswith("tensorboard")] == []


@pytest.mark.slow
def test_each_daily_command_succeeds_and_says_something(folder: Path) -> None:
    done = json.loads((folder / "done.json").read_text())
    failed = [(line, err) for line, (code, out, err, *_) in zip(COMMANDS, done, strict=True) if code != 0 or not out]
    assert failed == []


@pytest.mark.slow
def test_tensorboard_serves_the_runs(folder: Path) -> None:
    (line,) = [line for line in DAILY if line.startswith("tensorboard")]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = shutil.which("tensorboard", path=sysconfig.get_path("scripts")) or "tensorboard"
    command = [program, *shlex.split(line)[1:], "--port", str(port), "--load_fast", "false"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert '"default' in wait_for(f"http://127.0.0.1:{port}/data/runs", lambda text: "default" in text)
    finally:
        process.terminate()
        process.wait()


@pytest.mark.slow
def test_the_code_for_a_notebook_runs(folder: Path) -> None:
    check = "import json; facts = json.load(open(glob.glob('runs/default/forget_bias=3*')[0] + '/run.json'))\n"
    check += "assert abs(accuracy - facts['metrics']['test/accuracy']) < 1e-6\n"
    code = block("test: this code is run") + check
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def wait_for(url: str, ready) -> str:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url) as answer:
                text = answer.read().decode()
            if ready(text):
                return text
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"{url} did not answer as expected")


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_of_the_readme_is_short(name: str) -> None:
    """Whether it keeps the contracts is tested with those of all plugins, in tests/plugins/test_contract*.py."""
    assert len(PLUGINS[name].splitlines()) <= 25


@pytest.mark.slow
def test_the_plugin_of_the_readme_is_listed_and_trained_beside_a_broken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plugins" / "model").mkdir(parents=True)
    (tmp_path / "plugins" / "model" / "mine.py").write_text(PLUGINS["model/mine.py"])
    (tmp_path / "plugins" / "model" / "broken.py").write_text("def (:\n")
    monkeypatch.chdir(tmp_path)
    assert command_line(["plugins"]) == 0
    listing = capsys.readouterr().out
    assert "model=mine" in listing
    assert "model=broken: cannot be used" in listing
    assert command_line(["dataset=chartext", "model=mine", "model.width=8", "trainer.max_steps=50", "probe=[]"]) == 0
    assert "finished: 50 steps" in capsys.readouterr().out


@pytest.mark.slow
def test_the_probe_of_the_readme_is_one_of_all_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plugins" / "probe").mkdir(parents=True)
    (tmp_path / "plugins" / "probe" / "norm.py").write_text(PLUGINS["probe/norm.py"])
    command = ["dataset=moons", "model=mlp", "trainer.max_steps=5"]
    monkeypatch.chdir(tmp_path)
    assert command_line([*command, "--cfg", "job"]) == 0
    assert "  norm:\n" in capsys.readouterr().out
    assert command_line([*command, "probe=norm"]) == 0
    assert "note" not in capsys.readouterr().out
    assert len([*tmp_path.glob("runs/default/*/figures/norm-weights-*.png")]) == 2


def test_the_table_of_probes_has_all_that_come_with_the_project_and_what_they_say_of_themselves(registry) -> None:
    table = README.partition("<!-- probes -->\n")[2].partition("<!-- end of probes -->")[0]
    own = [registry.get("probe", path.stem) for path in sorted((ROOT / "plugins/probe").glob("*.py"))]
    rows = [f"| `{probe.name}` | {probe.summary} |" for probe in own]
    assert table.splitlines() == ["| probe | what it shows |", "| --- | --- |", *rows]


def test_the_table_of_what_plugins_define_is_the_contract() -> None:
    table = README.partition("<!-- contract -->\n")[2].partition("<!-- end of contract -->")[0]
    rows = [f"| {kind} | `{name}` | {text} |" for kind, names in CONTRACT.items() for name, text in names.items()]
    assert table.splitlines() == ["| kind | name | what it is |", "| --- | --- | --- |", *rows]


def test_the_table_of_pairs_has_a_figure_for_each_and_strikes_out_only_what_the_text_explains() -> None:
    lines = README.partition("<!-- pairs -->\n")[2].partition("<!-- end of pairs -->")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["dataset", "metric", "baseline", "mlp", "cnn", "rnn", "lstm", "gru", "vit"]
    assert {row[0] for row in rows[2:]} == {"moons", "pattern", "edges", "chartext", "chartext python.txt"}
    for dataset, metric, _, *cells in rows[2:]:
        assert all(float(cell.strip("~")) >= 0 for cell in cells)
        assert any("~" in cell for cell in cells) == ((dataset, metric) == ("chartext", "test/loss"))
