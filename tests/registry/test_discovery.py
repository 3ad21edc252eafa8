"""Discovery: which files are plugins, what becomes of those that are not, and that reading runs none of them."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nnexp
from nnexp import Trainer
from nnexp.base.errors import ConfigError
from nnexp.registry.contracts import CONSTRUCTOR_ARGUMENTS
from nnexp.registry.discovery import Registry, discover, plugin_folders

BUILT_IN = Registry(plugin_folders()[:1])
MODEL = '"""From nowhere."""\nfrom nnexp import model\n\n\n@model\nclass Mine:\n    """A model.\n\n    Args:\n'
MODEL += '        size: how large\n            it is.\n    """\n\n    def __init__(self, data, *, size: int = 3): ...\n'
TRAINER = """
from dataclasses import dataclass
from nnexp import Trainer, trainer

@trainer
@dataclass(kw_only=True)
class Mine(Trainer):
    '''A trainer.

    Args:
        momentum: how long a step is remembered.
        lr: of my own.
    '''
    momentum: float = 0.9
    lr: float = 0.5
"""


def test_a_file_is_found_and_described_by_its_folder_and_stem(write_plugin):
    path = write_plugin("mine", MODEL)
    for ignored in ("_private", ".hidden"):
        write_plugin(ignored, MODEL)
    (path.parent / "notes.txt").write_text("no plugin")
    registry = Registry([path.parent.parent])
    assert list(registry.plugins) == [("model", "mine")]
    assert registry.broken == {}
    plugin = registry.get("model", "mine")
    assert (plugin.path, plugin.class_name, plugin.summary) == (path, "Mine", "A model.")
    assert (plugin.source_doc, plugin.defaults) == ("From nowhere.", {"size": 3})
    assert plugin.parameters["size"].help == "how large it is."


def model(parameters="data", head="", decorator="@model"):
    return f"from nnexp import model\n{head}\n{decorator}\nclass A:\n    def __init__(self, {parameters}): ...\n"


BROKEN = [
    ("syntax error", "x = 1\ndef f(:\n", ":2: invalid syntax"),
    ("not utf-8", b"x = '\xff\xfe'\n", "utf-8"),
    ("null bytes", b"x = 1\0\n", "null bytes"),
    ("too deep", f"x = {'-' * 5000}1\n", "nested too deeply"),
    ("no class", "x = 1\n", ":1: a plugin is one class marked @model (from nnexp import model); found none."),
    ("two classes", model() + "@model\nclass B: ...\n", ":1: a plugin is one class marked @model"),
    ("wrong folder", model(decorator="@trainer"), ":4: @trainer in a folder of model plugins. Move"),
    ("no data", model("*, x: int = 1"), ":4: a model needs __init__(self, data, *, ...)"),
    ("positional value", model("data, x: int = 1"), ":4: a model needs __init__(self, data, *, ...)"),
    ("reserved name", model("data, *, seed: int = 1"), ":4: 'seed' is set by nnexp for every model"),
    ("kwargs", model("data, **kwargs"), ":5: *args and **kwargs hide misspelt keys"),
    ("no default", model("data, *, x: int"), ":5: parameter 'x' needs a type and a default"),
    ("half a type", model("data, *, x: 'int |' = 1"), ":5: 'x' has type"),
    ("open choice", model("data, *, x: Literal[N] = 1"), ":5: "),
    ("odd range", model("data, *, x: Annotated[int, Range(least=1)] = 1"), ":5: "),
    ("type of itself", model("data, *, x: X = 1", head="X = X | None"), ":4: "),
    ("too deep for the memory", f"x = {'-' * 20_000}1\n", "nested too deeply"),
    ("strange help", '@model\nclass A:\n    """A.\n\n    Args:\n  x\n    """\n    def __init__(self): ...\n', ":2: "),
    ("many digits", model(f"data, *, x: int = 0x{'f' * 5000}"), ":5: the default of 'x' has more digits"),
    ("many digits in a choice", model(f"data, *, x: Literal[0x{'f' * 5000}] = 1"), ":5: a choice of 'x' has more"),
    ("many digits in a range", model(f"data, *, x: Annotated[int, Range(max=0x{'f' * 5000})] = 1"), ":5: 'x': "),
    ("many digits in a type", model(f"data, *, x: 0x{'f' * 5000} = 1"), ":5: 'x' has type an expression that is too"),
    ("long type", model(f"data, *, x: {' | '.join(['int'] * 1500)} = 1"), "or is nested too deeply"),
    ("base of itself", "@model\nclass A(B): ...\nclass B(A): ...\n", ":2: "),
]


@pytest.mark.parametrize(("source", "reason"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_broken_file_is_reported_and_hides_no_other(write_plugin, source, reason):
    path = write_plugin("broken", source)
    write_plugin("sound", MODEL)
    registry = Registry([path.parent.parent])
    assert registry.names("model") == ["sound"]
    broken = registry.broken["model", "broken"]
    assert broken.reason.startswith(f"{path}:")
    assert reason in broken.reason
    with pytest.raises(ConfigError, match=r"^model=broken cannot be used: ") as caught:
        registry.get("model", "broken")
    assert broken.reason in str(caught.value)


LOSS = TRAINER + "\n    def loss(self, output, y): ...\n"
DATASET = "from nnexp import dataset\n@dataset\nclass A:\n    def __init__(self, generator): ...\n"
PROBE = "from nnexp import Probe, probe\nclass B(Probe):\n    def look(self): ...\n@probe\nclass A(B): ...\n"


@pytest.mark.parametrize(
    ("kind", "source", "reason"),
    [
        ("trainer", LOSS, ":17: nnexp does not use 'loss' of a trainer. A trainer defines optimizer, init, update"),
        (
            "trainer",
            LOSS.replace("loss", "lr_facter"),
            "use 'lr_facter' of a trainer. Did you mean 'lr_factor'?",
        ),
        ("trainer", TRAINER + "\n    a, (b, _c) = 1, (2, 3)\n", ":17: nnexp does not use 'a' of a trainer"),
        ("dataset", DATASET + "    def decode(self): ...\n", ":5: nnexp does not use 'decode' of a dataset."),
        ("dataset", DATASET + "    tain: tuple\n", "does not use 'tain' of a dataset. Did you mean 'train'?"),
        ("probe", PROBE, ":3: nnexp does not use 'look' of a probe. A probe defines __call__ and its parameters"),
    ],
)
def test_a_public_name_that_the_contract_does_not_know_is_refused(write_plugin, kind, source, reason):
    path = write_plugin("mine", source, kind=kind)
    assert reason in Registry([path.parent.parent]).broken[kind, "mine"].reason


def test_helpers_with_an_underscore_and_names_of_the_contract_are_free(write_plugin):
    body = "\n    _a, __b = 1, 2\n    lr_factor = None\n    def _help(self): ...\n    def __repr__(self): ...\n"
    path = write_plugin("mine", TRAINER + body, kind="trainer")
    assert Registry([path.parent.parent]).broken == {}


STRANGE = ["null", "1", "True", "nan", "inf", "\u00e9", "a,b", "a=b", "#", "a b", "a-b", "a\nb"]


@pytest.mark.parametrize("name", STRANGE)
def test_a_name_that_cannot_be_typed_is_reported_in_one_line_and_hides_no_other(write_plugin, name):
    path = write_plugin(name, MODEL)
    write_plugin("sound", MODEL)
    registry = Registry([path.parent.parent])
    assert registry.names("model") == ["sound"]
    broken = registry.broken["model", name]
    assert "is not a valid name" in broken.reason
    assert (broken.name + broken.reason).isascii()
    assert "\n" not in broken.name + broken.reason


def test_links_that_lead_nowhere_are_reported_and_hide_no_other(write_plugin, tmp_path, monkeypatch):
    folder = write_plugin("sound", MODEL).parent
    for name, target in (("itself", "itself.py"), ("nowhere", "nowhere/at_all.py")):
        (folder / f"{name}.py").symlink_to(target)
    monkeypatch.chdir(tmp_path)
    Path("plugins").symlink_to("plugins")
    registry = Registry([Path("plugins"), folder.parent])
    assert registry.names("model") == ["sound"]
    named = [key for key in registry.broken if key[0] == "model"]
    assert sorted(named) == [("model", "at_all"), ("model", "itself")]
    assert all("cannot be read: " in registry.broken[key].reason for key in named)
    assert registry.broken["folder", str(tmp_path / "plugins")].reason == "a broken symbolic link"


def test_a_long_expression_outside_the_signature_breaks_nothing(write_plugin):
    path = write_plugin(
        "mine", MODEL + f"X = {' + '.join(['1'] * 600)}\n\n\n@f({'-'.join(['1'] * 600)})\nclass B: ...\n"
    )
    assert Registry([path.parent.parent]).broken == {}


def test_a_file_that_begins_with_a_byte_order_mark_is_read_as_python_reads_it(write_plugin):
    path = write_plugin("mine", b"\xef\xbb\xbf" + MODEL.encode())
    assert Registry([path.parent.parent]).names("model") == ["mine"]


def test_a_pipe_is_no_plugin_and_hangs_nothing(write_plugin):
    path = write_plugin("mine", MODEL)
    os.mkfifo(path.with_name("pipe.py"))
    registry = Registry([path.parent.parent])
    assert registry.names("model") == ["mine"]
    assert "this is no regular file" in registry.broken["model", "pipe"].reason


def test_two_files_of_one_name_are_an_error_that_names_both(write_plugin):
    paths = [write_plugin("mine", MODEL, folder=folder) for folder in ("first", "second", "third")]
    write_plugin("mine", TRAINER, kind="trainer")
    for order in (paths[:2], paths[1::-1], paths):
        registry = Registry([path.parent.parent for path in order])
        assert registry.names("model") == []
        with pytest.raises(ConfigError, match=r"two files have the name 'mine'.*Rename one") as caught:
            registry.get("model", "mine")
        assert all(str(path) in str(caught.value) for path in order[-2:])
    own = paths[0].parents[2] / "own"
    assert Registry([paths[0].parent.parent, own]).broken == {}, "the same name in another kind is another plugin"


def test_one_folder_named_in_several_ways_is_one(write_plugin, tmp_path, monkeypatch):
    folder = write_plugin("mine", MODEL).parent.parent
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "half" / "model").mkdir(parents=True)
    (tmp_path / "half" / "model" / "mine.py").symlink_to(folder / "model" / "mine.py")
    monkeypatch.chdir(tmp_path)
    ways = [folder, Path("own"), tmp_path / "link", tmp_path / "own" / ".." / "own", tmp_path / "half"]
    registry = Registry(ways)
    assert registry.broken == {}
    assert list(registry.plugins) == [("model", "mine")]


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"^model=lstmm: .*Did you mean 'lstm'. Available: .*lstm"):
        BUILT_IN.get("model", "lstmm")


def test_plugins_come_from_the_project_the_environment_and_the_working_directory(write_plugin, tmp_path, monkeypatch):
    folders = [write_plugin(name, MODEL, folder=name).parent.parent for name in ("alpha", "beta")]
    write_plugin("gamma", MODEL, folder="plugins")
    monkeypatch.setenv("NNEXP_PLUGINS", os.pathsep.join(["", *map(str, folders)]))
    monkeypatch.chdir(tmp_path)
    registry = discover()
    assert registry.broken == {}
    assert {"alpha", "beta", "gamma", *BUILT_IN.names("model")} <= set(registry.names("model"))


def test_plugins_of_an_installed_package_are_found_without_importing_it(tmp_path, monkeypatch):
    site = tmp_path / "site"
    (site / "acme_nets" / "extras" / "model").mkdir(parents=True)
    (site / "acme_nets" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (site / "acme_nets" / "extras" / "model" / "acme.py").write_text(MODEL)
    (site / "acme_nets-1.0.dist-info").mkdir()
    (site / "acme_nets-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-nets\nVersion: 1.0\n")
    points = "[nnexp.plugins]\nacme = acme_nets.extras\ngone = no_such_package.extras\n"
    (site / "acme_nets-1.0.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(site))
    registry = discover()
    assert registry.get("model", "acme").path == site / "acme_nets" / "extras" / "model" / "acme.py"
    assert "acme_nets" not in sys.modules


def test_reading_runs_no_plugin_and_imports_no_torch(write_plugin, tmp_path):
    marker = tmp_path / "was_run"
    path = write_plugin("mine", f"open({str(marker)!r}, 'w').close()\n{MODEL}")
    code = "import sys; from nnexp.registry.discovery import discover; plugin = discover().get('model', 'mine')"
    code += "; print(plugin.defaults, 'torch' in sys.modules); sys.argv[1:] and plugin.load()"
    environment = os.environ | {"NNEXP_PLUGINS": str(path.parent.parent)}

    def output(*arguments):
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert output() == "{'size': 3} False\n"
    assert not marker.exists()
    output("load")
    assert marker.exists(), "loading runs the file, so the marker would have shown that reading does"


def test_a_class_is_loaded_once_and_a_file_that_raises_leaves_no_module(write_plugin):
    path = write_plugin("loaded_once", MODEL)
    write_plugin("raising", MODEL + "raise KeyError('broken')\n")
    registry = Registry([path.parent.parent])
    assert registry.get("model", "loaded_once").load() is registry.get("model", "loaded_once").load()
    assert nnexp.plugin("model", "lstm") is discover().get("model", "lstm").load()
    with pytest.raises(KeyError, match="broken"):
        registry.get("model", "raising").load()
    assert "nnexp_plugins.model.raising" not in sys.modules


def test_a_trainer_inherits_the_fields_of_the_base_with_their_help(write_plugin):
    path = write_plugin("mine", TRAINER, kind="trainer")
    parameters = Registry([path.parent.parent]).get("trainer", "mine").parameters
    inherited = inspect.signature(Trainer).parameters
    assert list(parameters) == [*inherited, "momentum"]
    assert parameters["max_steps"].default == inherited["max_steps"].default
    assert parameters["max_steps"].help == "number of updates; 0 evaluates the untrained model."
    assert parameters["momentum"].help == "how long a step is remembered."
    assert (parameters["lr"].default, parameters["lr"].help) == (0.5, "of my own.")


@pytest.mark.parametrize("plugin", BUILT_IN.plugins.values(), ids=lambda plugin: f"{plugin.kind}={plugin.name}")
def test_the_schema_read_from_source_is_the_signature(plugin):
    signature = inspect.signature(plugin.load()).parameters.values()
    keywords = {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY}
    assert [p.name for p in signature if p.kind is not p.KEYWORD_ONLY] == CONSTRUCTOR_ARGUMENTS[plugin.kind]
    assert list(plugin.defaults.items()) == list(keywords.items())
    assert all(p.help for p in plugin.parameters.values())
