"""The command as a user types it: exit codes, one line for an error, nothing written, torch not imported."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml
from contract.commands import run_all

import nnexp

MODEL = '''"""Mine."""
from nnexp import model


@model
class Mine:
    """A model of my own."""

    def __init__(self, data, *, size: int = 3): ...
'''
WRONG = [
    (["model.forget_bais=3"], "Did you mean 'model.forget_bias'?"),
    (["+model.forget_bais=3"], "Did you mean 'model.forget_bias'?"),
    (["++modle.x=1"], "Did you mean 'model'?"),
    (["model=lstmm"], "Did you mean 'lstm'?"),
    (["model.hidden_size=big"], "expected int >= 1, got 'big'"),
    (["model.hidden_size=-4"], "expected int >= 1, got -4"),
    (["model=mlp", "model.forget_bias=3"], "add model="),
    (["hidden_size=8"], "Did you mean 'model.hidden_size'?"),
    (["lr=0.1"], "Did you mean 'trainer.lr'?"),
    (["seed=1,2"], "add -m"),
    (["hydra.run.dir=x"], "runs="),
    (["~model"], "cannot be deleted"),
    (["experiment=foo"], "nonlinearity"),
    (["--cfg", "job", "lr=0.1"], "Did you mean 'trainer.lr'?"),
    (["-m", "seed=1,2", "model=lstmm"], "Did you mean 'lstm'?"),
    (["--config-dir", "nowhere"], "--config-dir nowhere: there is no such folder"),
    (["--config-name", "confg"], "confg"),
    (["--info", "defaults"], "--help"),
    (["-sc", "install=bash"], "--help"),
    (["-c"], "--cfg/-c: expected one argument"),
    (["list"], "Did you mean 'plugins'?"),
    (["ls"], "Did you mean 'plugins'?"),
    (["plugin", "lstm"], "Did you mean 'plugins'?"),
    (["train", "model=lstm"], "the command without a verb trains"),
    (["model=lstm", "plugins"], "a verb comes first"),
    (["--help", "model=lstmm"], "Did you mean 'lstm'?"),
    (["--help", "lstm"], "such as model=lstm"),
    (["runs=''"], "runs='': not a usable folder: the path is empty"),
    ([f"runs={'x' * 300}"], "a file name has at most 255 bytes"),
    ([f"runs=a/{'x' * 300}/b"], "a file name has at most 255 bytes"),
    (["runs='a\0b'"], "not a usable folder"),
    ([f"runs={sys.executable}"], "not a usable folder: "),
    ([f"runs={sys.executable}/x"], "not a usable folder: "),
]
GOOD = {
    "help": ["--help"],
    "job": ["--cfg", "job", "model=mine", "model.size=4", "seed=2"],
    "jobs": ["-m", "-c", "job", "model=lstm,mlp", "seed=1,2"],
    "help of a plugin": ["--help", "model=lstm"],
    "version": ["--version"],
    "between": ["seed=2", "--cfg", "job", "trainer.lr=0.5"],
}


def run(*arguments, cwd, env):
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """One with a folder of plugins of the user's own."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "model").mkdir()
    (folder / "model" / "mine.py").write_text(MODEL)
    return os.environ | {"NNEXP_PLUGINS": str(folder), "PYTHONWARNINGS": "error"}


@pytest.fixture(scope="module")
def results(tmp_path_factory, made_once, environment):
    """What each command gave, in a process that had imported nothing for it."""
    commands = [*(command for command, _ in WRONG), *GOOD.values()]

    def fill(folder):
        done = run_all(commands, tmp_path_factory.mktemp("place"), environment)
        (folder / "done.json").write_text(json.dumps(done))

    done = json.loads((made_once("commands", fill) / "done.json").read_text())
    return {json.dumps(command): result for command, result in zip(commands, done, strict=True)}


@pytest.mark.parametrize(("command", "part"), WRONG, ids=[" ".join(command) for command, _ in WRONG])
def test_a_wrong_command_is_one_line_before_torch_and_before_anything_is_written(results, command, part):
    code, out, err, torch, files = results[json.dumps(command)]
    assert (code, out, torch, files) == (2, "", False, [])
    assert err.startswith("nnexp: ")
    assert err.count("\n") == 1
    assert part in err


def test_the_installed_command_is_the_module(tmp_path, environment):
    program = Path(sysconfig.get_path("scripts")) / "nnexp"
    done = subprocess.run([program, "--version"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"nnexp {nnexp.__version__}\n"), done.stderr
    done = subprocess.run([program, "plugin"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Did you mean 'plugins'?" in done.stderr


def test_a_module_run_by_its_name_gives_the_exit_code_to_the_shell(tmp_path, environment):
    done = run("-m", "nnexp", "model.forget_bais=3", cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("nnexp: model.forget_bais: ")
    assert list(tmp_path.iterdir()) == []


def good(results, name):
    code, out, err, torch, files = results[json.dumps(GOOD[name])]
    assert (code, err, torch, files) == (0, "", False, [])
    return out


def test_help_shows_the_usage_what_can_be_chosen_and_the_keys_of_every_job(results):
    out = good(results, "help")
    assert "nnexp -m" in out
    assert "  bench " in out
    choices = {line.split("=")[0].strip(): line.split("=")[1].split("|") for line in out.splitlines() if "|" in line}
    assert {"lstm", "mine", "mlp"} <= set(choices["model"])
    assert {"adam", "sgd"} <= set(choices["trainer"])
    lines = {line.split("=")[0].strip(): line for line in out.splitlines()}
    assert "device=cpu" in lines["device"]
    assert "where to train" in lines["device"]
    assert "one of cpu, cuda, mps, auto" in lines["device"]


def test_help_of_a_plugin_has_its_keys_as_the_verb_has(results):
    assert "model.forget_bias" in good(results, "help of a plugin")


def test_the_version_is_that_of_the_package(results):
    assert good(results, "version") == f"nnexp {nnexp.__version__}\n"


def test_cfg_job_prints_the_job_as_a_config_that_can_be_read(results):
    job = yaml.safe_load(good(results, "job"))
    assert job["model"] == {"name": "mine", "size": 4, "seed": 2}
    assert job["seed"] == 2
    assert isinstance(job["dataset"]["pattern"], list)


def test_flags_and_overrides_may_be_mixed(results):
    job = yaml.safe_load(good(results, "between"))
    assert (job["seed"], job["trainer"]["lr"]) == (2, 0.5)


def test_cfg_job_prints_every_point_of_a_sweep(results):
    jobs = list(yaml.safe_load_all(good(results, "jobs")))
    points = [(job["model"]["name"], job["seed"]) for job in jobs]
    assert points == [("lstm", 1), ("lstm", 2), ("mlp", 1), ("mlp", 2)]


@pytest.mark.slow
def test_a_folder_of_configs_of_ones_own_is_searched(write_config, tmp_path, environment):
    folder = write_config("experiment", "own", "# @package _global_\nmodel: {hidden_size: 5}\n")
    command = ["-m", "nnexp", "--config-dir", Path(folder).name, "--cfg", "job", "experiment=own"]
    done = run(*command, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    job = yaml.safe_load(done.stdout)
    assert job["model"]["hidden_size"] == 5
