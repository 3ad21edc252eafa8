"""What a command imports to train is left alone by the garbage collector; what comes later is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = "from nnexp.commands.cli import command_line as main; assert main(['trainer.max_steps=1', 'probe=[]']) == 0; "
KEPT = "import gc; from nnexp.base.gc_freeze import frozen_import as kept; "


def run(code: str, folder: Path) -> str:
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_command_that_trains_keeps_what_it_imported_and_collects_what_comes_later(tmp_path: Path) -> None:
    look = "import gc; print(gc.get_freeze_count() > 10 * len(gc.get_objects()), gc.isenabled())"
    assert run(TRAIN + look, tmp_path) == "True True"


def test_what_is_already_imported_freezes_nothing(tmp_path: Path) -> None:
    code = f"import wave; {KEPT}\nwith kept('wave'): import wave; print(gc.isenabled())\nprint(gc.get_freeze_count())"
    assert run(code, tmp_path) == "0"


def test_the_collector_is_as_before_where_the_import_fails_and_where_it_was_off(tmp_path: Path) -> None:
    code = f"""{KEPT}
try:
    with kept('no_such_module'): import no_such_module
except ImportError: print(gc.isenabled())
gc.disable()
with kept('wave'): import wave
print(gc.isenabled())"""
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["True", "False"]


def test_garbage_from_before_is_collected(tmp_path: Path) -> None:
    code = f"""{KEPT}
import weakref
class Node: pass
node = Node(); node.itself = node
dead = weakref.ref(node)
del node
with kept('wave'): import wave
print(dead() is None)"""
    assert run(code, tmp_path) == "True"
