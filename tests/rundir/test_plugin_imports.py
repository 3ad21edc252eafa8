"""The code that a plugin imports is part of what its runs are."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest

from nnexp.base.errors import PluginError
from nnexp.registry.discovery import Registry, plugin_folders
from nnexp.rundir.fingerprint import job_fingerprint
from nnexp.rundir.plugin_imports import plugin_imports

MODEL = '''"""Uses a helper. Our own."""
import math
import torch
IMPORT
from torch import nn
from nnexp import DataSpec, model

@model
class Mine(nn.Module):
    """One layer.

    Args:
        data: what the dataset says.
    """
    def __init__(self, data: DataSpec):
        super().__init__()
        self.head = nn.Linear(2, 2)
'''


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """The file of a plugin, with modules beside it and a package in the working folder of its project."""
    files = {
        "plugins/model/_helper.py": "from _deep import SCALE\n",
        "plugins/model/_deep.py": "SCALE = 5.0\n",
        "plugins/model/_unused.py": "SCALE = 1.0\n",
        "plugins/model/_broken.py": "def (:\n",
        "project/__init__.py": "",
        "project/layers.py": "from .parts import inner\nfrom . import other\n",
        "project/parts/__init__.py": "import project.layers\n",
        "project/parts/inner.py": "import numpy\n",
        "project/other.py": "",
        "project/unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "plugins/model/mine.py"


def names(plugin: Path, line: str) -> list[str]:
    plugin.write_text(MODEL.replace("IMPORT", line))
    return [file.relative_to(plugin.parents[2]).as_posix() for file in plugin_imports(plugin)[0]]


BESIDE = ["plugins/model/_deep.py", "plugins/model/_helper.py"]
PACKAGE = ["project/__init__.py", "project/layers.py", "project/other.py"]
PACKAGE += ["project/parts/__init__.py", "project/parts/inner.py"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import os.path, random", []),
        ("from _helper import SCALE", BESIDE),
        ("import _helper as h", BESIDE),
        ("def late():\n    from _helper import SCALE", BESIDE),
        ("import project.layers", PACKAGE),
        ("from project import layers", PACKAGE),
        ("from project.layers import *", PACKAGE),
        ("import project", PACKAGE[:1]),
        ("import no_such_module", []),
    ],
)
def test_own_modules_are_found_in_turn_and_others_are_not(plugin, monkeypatch, line, found):
    monkeypatch.syspath_prepend(str(plugin.parents[2]))
    assert names(plugin, line) == found


def test_distributions_have_their_versions(plugin):
    plugin.write_text(MODEL.replace("IMPORT", "import numpy.linalg, yaml, no_such_module"))
    assert plugin_imports(plugin)[1] == {
        "numpy": version("numpy"),
        "no_such_module": None,
        "yaml": "PyYAML " + version("pyyaml"),
    }


def test_the_modules_of_an_installed_plugins_package_count_and_those_of_others_do_not(tmp_path, monkeypatch):
    place = tmp_path / "site-packages"
    for name in ("ours/__init__.py", "ours/layers.py", "theirs/__init__.py"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("")
    monkeypatch.syspath_prepend(str(place))
    plugin = place / "ours/plugins/model/mine.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(MODEL.replace("IMPORT", "import ours.layers, theirs"))
    modules, others = plugin_imports(plugin)
    assert modules == [place / "ours/__init__.py", place / "ours/layers.py"]
    assert others == {"theirs": None}


def test_a_changed_helper_is_another_job_and_a_comment_in_it_is_not(plugin, make_job):
    plugin.write_text(MODEL.replace("IMPORT", "from _helper import SCALE"))
    registry = Registry([*plugin_folders(), plugin.parents[1]])
    job = make_job("dataset=moons", "model=mine", plugins=registry)
    helper, found = plugin.with_name("_deep.py"), [job_fingerprint(job, registry)]
    for number, text in enumerate(["SCALE = 5.0  # the same\n", "SCALE = 6.0\n"], 1):
        helper.write_text(text)
        os.utime(helper, ns=(number, number))
        found.append(job_fingerprint(job, registry))
    assert found[0] == found[1] != found[2]


def test_a_helper_that_python_cannot_read_is_an_error_with_file_and_line(plugin):
    plugin.write_text(MODEL.replace("IMPORT", "import _broken"))
    with pytest.raises(PluginError, match=r"_broken\.py:1: "):
        plugin_imports(plugin)


def test_another_version_of_an_imported_distribution_is_another_job(registry, make_job, monkeypatch):
    job = make_job("dataset=moons", "model=mlp")
    before = job_fingerprint(job, registry)
    monkeypatch.setattr("nnexp.rundir.fingerprint.plugin_imports", lambda path: ([], {"numpy": "0.1"}))
    assert job_fingerprint(job, registry) != before
