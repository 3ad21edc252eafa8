"""python -m nnexp plugins: what can be chosen, and the keys of each."""

import os
import subprocess
import sys

import pytest

from nnexp.commands import plugins
from nnexp.commands.cli import command_line
from nnexp.config.job_keys import plugin_keys
from nnexp.registry.contracts import KINDS

MODEL = "from nnexp import model\n\n\n@model\nclass Mine:\n    def __init__(self, data, *, size: int = 3): ...\n"


@pytest.fixture
def show(capsys):
    """Exit code, output and errors of the command in this process."""

    def run(*names):
        code = command_line(["plugins", *names])
        return code, *capsys.readouterr()

    return run


def test_each_plugin_has_one_line_with_what_it_is(show, registry):
    code, out, err = show()
    assert (code, err) == (0, "")
    lines = [line for line in out.splitlines() if "=" in line.split(maxsplit=1)[0]]
    found = [registry.get(kind, name) for kind in KINDS for name in registry.names(kind)]
    assert [line.split(maxsplit=1)[0] for line in lines] == [plugins.choice_of(p) for p in found]
    assert all(line.endswith(p.summary) for line, p in zip(lines, found, strict=True))


@pytest.mark.parametrize("name", ["lstm", "model=lstm"])
def test_a_name_shows_every_key_with_default_what_is_allowed_and_help(show, registry, name):
    code, out, err = show(name)
    plugin = registry.get("model", "lstm")
    assert (code, err) == (0, "")
    assert str(plugin.path) in out
    assert plugin.source_doc.splitlines()[0] in out
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("model.")}
    assert list(lines) == [f"model.{key}" for key in [*plugin.parameters, "seed"]]
    for key, parameter in plugin_keys(plugin).items():
        default = "null" if parameter.default is None else str(parameter.default)
        assert lines[f"model.{key}"].split()[1] == default
        assert parameter.allowed in lines[f"model.{key}"]
        assert lines[f"model.{key}"].endswith(parameter.help)


def test_several_names_are_shown_one_after_the_other(show):
    code, out, _ = show("sgd", "moons")
    assert code == 0
    assert out.index("trainer=sgd") < out.index("dataset=moons")


@pytest.mark.parametrize(
    ("name", "nearest"), [("lstmm", "lstm"), ("model=lstmm", "lstm"), ("modle=lstm", "lstm"), ("model=sgdd", "sgd")]
)
def test_an_unknown_name_is_answered_with_the_nearest(show, name, nearest):
    code, out, err = show("moons", name)
    assert (code, out) == (2, "")
    assert err.startswith(f"nnexp: {name}: there is no such plugin. Did you mean '{nearest}'? Available: ")
    assert err.count("\n") == 1


def test_a_file_that_cannot_be_used_is_listed_with_the_reason_and_hides_no_other(show, write_plugin, monkeypatch):
    broken = write_plugin("mine", "x = (\n", kind="dataset")
    write_plugin("mine", MODEL)
    monkeypatch.setenv("NNEXP_PLUGINS", str(broken.parent.parent))
    code, out, _ = show()
    assert code == 0
    assert f"dataset=mine: cannot be used: {broken}:1: '(' was never closed" in out
    assert "model=mine" in out
    assert show("dataset=mine") == (2, "", f"nnexp: {broken}:1: '(' was never closed\n")
    for name in ("mine", "model=mine"):
        code, out, err = show(name)
        assert (code, err) == (0, "")
        assert "model.size" in out


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_a_flag_shows_the_usage(show, capsys, flag):
    with pytest.raises(SystemExit, match="0"):
        show(flag)
    assert "usage: nnexp plugins [-h] [NAME ...]" in capsys.readouterr().out


def test_an_unknown_flag_is_refused_in_one_line(show):
    assert show("--all") == (2, "", "nnexp: unrecognized arguments: --all. --help lists the arguments.\n")


def test_the_command_runs_no_plugin_and_imports_no_torch(write_plugin, tmp_path):
    path = write_plugin("mine", f"raise SystemExit('run')\n{MODEL}")
    code = "import sys; from nnexp.commands import command_line; "
    code += "print(command_line(['plugins', *sys.argv[1:]]), 'torch' in sys.modules)"
    environment = os.environ | {"NNEXP_PLUGINS": str(path.parent.parent), "PYTHONWARNINGS": "error"}
    for names in ([], ["mine", "lstm"]):
        command = [sys.executable, "-c", code, *names]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert "model=mine" in done.stdout
        assert done.stdout.endswith("\n0 False\n")


ESCAPES = '''"""\\x1b]0;pwn\\x07 From nowhere."""
from nnexp import model

@model
class A:
    """\\x1b[31mRed."""
    def __init__(self, data): ...
'''


def test_no_control_character_of_a_plugin_or_of_a_command_reaches_the_terminal(tmp_path, monkeypatch, capsys):
    plugin = tmp_path / "plugins/model/esc.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(ESCAPES)
    monkeypatch.chdir(tmp_path)
    for command in (["plugins", "esc"], ["plugins"], ["--help", "model=esc"], ["plugins", "\x1b[31m"], ["x\x1b[31m"]):
        command_line(command)
    output = "".join(capsys.readouterr())
    assert "\\x1b]0;pwn\\x07 From nowhere." in output
    assert not {"\x1b", "\x07"} & set(output)
