"""The rooms: their order, what each may import, and that a planted fault is found by the tool that keeps it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

PROJECT = Path(__file__).parent.parent
LINT = Path(sys.executable).with_name("lint-imports")


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the package in a folder against the contracts in its .importlinter."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run([LINT, "--no-cache"], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of the package and its contracts."""
    shutil.copytree(PROJECT / "nnexp", tmp_path / "nnexp", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / ".importlinter", tmp_path)
    return tmp_path


def test_the_contracts_are_kept() -> None:
    result = lint(PROJECT)
    assert result.returncode == 0, result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("base/console.py", "from nnexp.config import Job", "Rooms import only from rooms below them"),
        ("data/losses.py", "def f(): from nnexp.fit import CohortFit", "Rooms import only from rooms below them"),
        (
            "rundir/run.py",
            "if TYPE_CHECKING: from nnexp.fit import CohortFit",
            "Rooms import only from rooms below them",
        ),
        ("data/rng_state.py", "import nnexp.data.seeding", "No circles between modules"),
        ("training/lane.py", "import pytorch_lightning", "Only fit imports pytorch_lightning"),
        ("probing/view.py", "from matplotlib import pyplot", "Only plotting imports matplotlib"),
        ("execution/task.py", "def f(): import omegaconf", "Only config imports hydra"),
        ("fit/run_writer.py", "from tensorboard.compat import proto", "Only tensorboard imports tensorboard"),
        ("registry/schema.py", "import torch", "pass through rooms that do not import"),
        ("fit/run_writer.py", "from nnexp.base.errors import NnexpError", "Other rooms import from base"),
    ],
)
def test_a_planted_import_is_found(copy: Path, module: str, line: str, contract: str) -> None:
    path = copy / "nnexp" / module
    path.write_text(
        path.read_text().replace(
            "from __future__ import annotations\n", f"from __future__ import annotations\n{line}\n", 1
        )
    )
    result = lint(copy)
    assert result.returncode == 1, result.stdout
    broken = result.stdout.partition("Broken contracts")[2]
    assert contract in broken
    assert module.removesuffix(".py").rpartition("/")[2] in broken


def test_a_room_that_the_order_does_not_name_is_found(copy: Path) -> None:
    (copy / "nnexp" / "attic").mkdir()
    (copy / "nnexp" / "attic" / "__init__.py").touch()
    result = lint(copy)
    assert result.returncode == 1, result.stdout
    assert "attic" in result.stdout


def test_no_room_imports_the_door() -> None:
    graph = grimp.build_graph("nnexp")
    assert graph.find_modules_that_directly_import("nnexp") == set()


def test_every_room_says_in_one_sentence_what_it_is_for() -> None:
    rooms = [path for path in (PROJECT / "nnexp").iterdir() if path.is_dir() and path.name[0] not in "_."]
    assert len(rooms) == 15
    for room in rooms:
        first = (room / "__init__.py").read_text().splitlines()[0]
        assert first.startswith('"""'), room
        assert first.rstrip('"').endswith("."), room


def test_every_folder_of_tests_has_some_that_are_not_slow(slow_of_folder: dict[Path, list[bool]]) -> None:
    """So that `pytest -m "not slow"` looks into every room."""
    if slow_of_folder.keys() != {path.parent for path in (PROJECT / "tests").rglob("test_*.py")}:
        pytest.skip("only some of the folders were collected")
    assert [folder for folder, slow in slow_of_folder.items() if all(slow)] == []
