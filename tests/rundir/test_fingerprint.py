"""What makes two jobs the same run, and what does not."""

import ast
import json
import os
import shutil
import subprocess
import sys

import pytest

from nnexp.base.errors import ConfigError, PluginError
from nnexp.registry.plugin_source import PACKAGE, parse
from nnexp.rundir import fingerprint as module
from nnexp.rundir.fingerprint import code_hash, job_fingerprint, normalised

pytestmark = pytest.mark.slow


MODEL = '''"""Mine."""
from nnexp import model


@model
class Mine:
    """A model.

    Args:
        size: how large.
    """

    def __init__(self, data, *, size: int = 3):
        self.scale = 2.0 * size
'''


@pytest.fixture
def digits(registry, make_job):
    """The fingerprint of a job made from overrides."""
    return lambda *overrides: job_fingerprint(make_job(*overrides), registry)


@pytest.mark.parametrize(
    "overrides",
    [
        ["device=auto"],
        ["runs=elsewhere"],
        ["checkpoint_every=7"],
        ["seed=0"],
        ["experiment=null"],
        ["model.seed=0"],
    ],
)
def test_what_changes_no_number_changes_no_fingerprint(digits, overrides):
    assert len(digits()) == 64
    assert digits(*overrides) == digits()


def test_each_value_choice_and_seed_gives_another_fingerprint(digits):
    changes = [
        [],
        ["model.hidden_size=33"],
        ["model.forget_bias=null"],
        ["model.forget_bias=0"],
        ["dataset.pattern=[1,1]"],
        ["trainer.eval_every=99"],
        ["trainer.max_steps=0"],
        ["trainer=sgd"],
        ["trainer=sgd", "trainer.lr=0.01"],
        ["model=mlp"],
        ["dataset=moons"],
        ["precision=64"],
        ["seed=3"],
        ["model.seed=3"],
        ["trainer.seed=3"],
        ["dataset.seed=3"],
    ]
    assert len({digits(*change) for change in changes}) == len(changes)


def test_a_value_given_as_its_default_is_the_same_run(digits, registry):
    for name, size in (("lstm", "hidden_size"), ("mlp", "num_layers")):
        default = registry.get("model", name).defaults[size]
        assert digits(f"model={name}", f"model.{size}={default}") == digits(f"model={name}")


def test_seeds_count_as_they_are_resolved(digits):
    assert digits("model.seed=3", "trainer.seed=3") == digits("seed=3")
    assert digits("model.seed=3", "trainer.seed=3", "seed=9") == digits("seed=3")


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ('"""Mine."""', '"""Of my own, in\nmany words."""\n# And a comment.', True),
        ('    """A model.\n\n    Args:\n        size: how large.\n    """\n', "", True),
        ("        self.scale = 2.0 * size", "\n        self.scale = (\n            2.0 * size  # x\n        )", True),
        ("size: int = 3):", 'size: int = 3):\n        """Make one."""', True),
        ("from nnexp import model", "from nnexp.registry import model", True),
        ("from nnexp import model", "from nnexp import dataset as model", False),
        ("from nnexp import model", "from nnexp import model\nfrom math import pow", False),
        ("2.0 * size", "2.5 * size", False),
        ("2.0 * size", "2.0 * size + 0", False),
        ("self.scale", "self.scales", False),
        ("self.scale = 2.0 * size", "self.scale = 2.0 * size\n        'not the first'", False),
    ],
)
def test_the_code_of_a_plugin_counts_and_its_comments_do_not(registry_with, write_plugin, make_job, old, new, same):
    path = write_plugin("mine", MODEL)
    registry = registry_with(path.parent.parent)
    job = make_job("model=mine", plugins=registry)
    before = job_fingerprint(job, registry)
    assert MODEL.count(old) == 1
    path.write_text(MODEL.replace(old, new))
    assert (job_fingerprint(job, registry) == before) is same


def test_neither_the_place_nor_the_mark_of_a_file_counts(write_plugin):
    path = write_plugin("mine", MODEL)
    marked = write_plugin("marked", b"\xef\xbb\xbf" + MODEL.replace("\n", "\r\n").encode(), folder="elsewhere")
    assert code_hash(path) == code_hash(marked)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("training/lane.py", False),
        ("training/lr_schedule.py", False),
        ("data/seeding.py", False),
        ("nn/kernels/recurrent.cpp", False),
        ("stacking/stack.py", False),
        ("rundir/run.py", True),
        ("commands/train.py", True),
    ],
)
def test_the_modules_that_make_the_numbers_count_and_the_others_do_not(
    registry, make_job, tmp_path, monkeypatch, name, same
):
    before = job_fingerprint(make_job(), registry)
    copy = shutil.copytree(PACKAGE, tmp_path / "nnexp", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(module, "PACKAGE", copy)
    assert job_fingerprint(make_job(), registry) == before
    with open(copy / name, "a") as file:
        file.write("\n#define ADDED 1\n" if name.endswith(".cpp") else "\nADDED = 1\n")
    assert (job_fingerprint(make_job(), registry) == before) is same


def test_the_version_of_torch_counts(digits, monkeypatch):
    before = digits()
    monkeypatch.setattr(module, "version", lambda package: f"another {package}")
    assert digits() != before


@pytest.mark.parametrize(
    "sources",
    [
        ["x = 1", "x = 1.0", "x = '1.0'", "x = '1'", "x = True", "x = 1j", "x = '1j'"],
        ["x = None", "x = ...", "x = 'None'", "x = 'Ellipsis'", "x = b''", "x = \"b''\""],
        ["def f(a, b=1): pass", "def f(a=1, b=1): pass", "def f(a, *, b=1): pass", "def f(*, a=1, b): pass"],
        ["def f(): None", "def f(): pass", "def f(): 'text'", "def f(): ..."],
        ["{**a, b: c}", "{a: c, **b}"],
        ["f(1, [2])", "f([1, 2])", "f([1], 2)", "f(1, 2)", "f([], 1, 2)", "f([1, [2]])", "[f(1), 2]", "[f(1, 2)]"],
        ["if a:\n  b\nc", "if a:\n  b\n  c", "if a:\n  b\nelse:\n  c"],
    ],
)
def test_sources_that_mean_something_else_are_told_apart(sources):
    assert len({json.dumps(normalised(ast.parse(source))) for source in sources}) == len(sources)


def test_any_source_that_python_reads_has_a_hash(write_plugin):
    sources = [f"x = {' + '.join(['1'] * 900)}", f"x = 0x{'f' * 5000}", f"x = 0x{'f' * 4999}e", "x = '\\ud800'"]
    paths = [write_plugin(f"mine{number}", source) for number, source in enumerate(sources)]
    assert len({code_hash(path) for path in paths}) == len(sources)
    with pytest.raises(PluginError, match=r"gone\.py:1: "):
        parse(paths[0].with_name("gone.py"))


@pytest.fixture
def digits_of_text(registry, make_job):
    """The fingerprint of a job that reads a file."""
    return lambda path: job_fingerprint(make_job("dataset=chartext", f"dataset.path='{path}'"), registry)


def test_the_content_of_a_file_counts_and_its_name_does_not(digits_of_text, tmp_path):
    path, moved = tmp_path / "a.txt", tmp_path / "elsewhere" / "b.text"
    path.write_text("a text")
    before = digits_of_text(path)
    moved.parent.mkdir()
    path.rename(moved)
    assert digits_of_text(moved) == before
    path.write_text("a text, longer")
    assert digits_of_text(path) != before
    path.write_text("a text")
    assert digits_of_text(path) == before


def test_a_file_written_anew_with_the_same_size_is_another(digits_of_text, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one")
    before = digits_of_text(path)
    path.write_text("two")
    os.utime(path, ns=(0, 0))
    assert digits_of_text(path) != before


def test_only_files_are_read_and_none_where_none_is_given(digits, tmp_path):
    assert digits("dataset=chartext") == digits("dataset=chartext", "dataset.path=null")
    assert digits("dataset=chartext", "dataset.text='nowhere.txt'") != digits("dataset=chartext")


@pytest.mark.parametrize("name", ["nowhere.txt", ".", "a.txt/b.txt"])
def test_a_file_that_cannot_be_read_is_refused_with_key_and_path(digits_of_text, tmp_path, name):
    (tmp_path / "a.txt").write_text("a text")
    with pytest.raises(ConfigError, match=r"^dataset\.path=.*: the file cannot be read: \w.*\. Give the path of"):
        digits_of_text(tmp_path / name)


PLAN = """
import sys
from nnexp.base.errors import ConfigError
from nnexp.execution import plan_cohorts
from nnexp.registry.discovery import discover
from nnexp.config.sweep_jobs import compose_jobs

registry = discover()
try:
    plan_cohorts(compose_jobs(["dataset=chartext", "dataset.path=nowhere.txt"], registry), registry)
except ConfigError as error:
    print(error, "torch" in sys.modules)
"""


def test_a_missing_file_is_found_while_planning_before_torch_is_imported(tmp_path):
    done = subprocess.run([sys.executable, "-c", PLAN], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("dataset.path=nowhere.txt: the file cannot be read: No such file or directory.")
    assert done.stdout.endswith("False\n")
    assert not [*tmp_path.iterdir()]
