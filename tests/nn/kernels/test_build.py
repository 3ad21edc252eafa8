"""Compiling at first use: what is kept, what is never loaded, and that nothing that fails is more than a reason."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kernels.layers import drawn
from nnexp.nn.kernels import build, unavailable_reason
from nnexp.nn.kernels.build import library
from nnexp.nn.kernels.op import is_compiled, recurrent

CPU = torch.device("cpu")
COMPILER = shutil.which("g++") or shutil.which("clang++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
QUICK = f'echo "$@" >> "$0.log"; exec {COMPILER} "$@" -O0'  # the last -O counts


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Makes a shell script the compiler, with an empty folder for what it makes."""

    def use(script: str) -> Path:
        path = tmp_path / "compiler"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        monkeypatch.setenv("NNEXP_COMPILER", str(path))
        library.cache_clear()
        return path

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library.cache_clear()  # of what another test has found
    yield use
    library.cache_clear()


def _kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "nnexp").iterdir())


def _computes() -> bool:
    x, weights = drawn("LSTM", 2, 3, 4, 2, 3)
    return bool(recurrent(x, *weights, None, "LSTM", False, True).isfinite().all())


@needs_compiler
def test_a_library_is_made_once_and_found_again(compiler, tmp_path):
    log = Path(f"{compiler(QUICK)}.log")
    for _ in range(2):
        library.cache_clear()
        assert is_compiled(CPU), unavailable_reason()
        assert unavailable_reason() == ""
        assert _computes()
    assert log.read_text().count("-shared") == 1
    (path,) = _kept(tmp_path)
    assert [stat.S_IMODE(p.stat().st_mode) for p in (path.parent, path)] == [0o700, 0o700]


@pytest.mark.slow
@needs_compiler
def test_a_damaged_library_is_made_anew_and_never_loaded(compiler, tmp_path):
    compiler(QUICK)
    assert is_compiled(CPU)
    (path,) = _kept(tmp_path)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:5000] + b"?" + whole[5001:]):
        path.unlink()  # a new file, for the old one is in use
        path.write_bytes(damaged)
        library.cache_clear()
        assert is_compiled(CPU)
        assert [p.read_bytes() for p in _kept(tmp_path)] == [whole]


@pytest.mark.slow
@needs_compiler
def test_each_compiler_processor_and_source_has_a_library_of_its_own(compiler, tmp_path, monkeypatch):
    compiler(QUICK)
    assert is_compiled(CPU)
    compiler(f'case "$*" in *-dM*) echo "#define __ANOTHER_PROCESSOR__ 1";; esac\n{QUICK}')
    assert is_compiled(CPU)
    assert len(_kept(tmp_path)) == 2
    changed = tmp_path / "recurrent.cpp"
    changed.write_text(f'#include "{build.SOURCES[0]}"\n// changed\n')
    monkeypatch.setattr(build, "SOURCES", [changed])
    library.cache_clear()
    assert is_compiled(CPU)
    assert len(_kept(tmp_path)) == 3


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo it is broken >&2; exit 3", "failed with exit code 3: it is broken"),
        ('case "$*" in *-dM*) exit 0;; esac; echo no such flag >&2; exit 1', "failed with exit code 1: no such flag"),
        ('case "$*" in *-dM*) exit 0;; esac; kill -9 $$', "failed with exit code -9"),
        ("exit 0", "file too short|invalid|not a mach-o"),  # says that it is done, and has written nothing
        ("sleep 60 & sleep 60", "takes longer than 0.5 s"),
    ],
)
def test_a_compiler_that_fails_is_a_reason_and_leaves_nothing_half_done(
    compiler, tmp_path, monkeypatch, script, reason
):
    compiler(script)
    monkeypatch.setattr(build, "TIMEOUT_SECONDS", 0.5)
    began = time.monotonic()
    assert not is_compiled(CPU)
    assert time.monotonic() - began < 30
    assert any(part in unavailable_reason() for part in reason.split("|")), unavailable_reason()
    assert _computes()
    assert _kept(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_a_reason(compiler, tmp_path):
    compiler(QUICK)
    (tmp_path / "cache").write_text("a file")
    assert not is_compiled(CPU)
    assert "cache" in unavailable_reason()
    assert _computes()


def test_a_folder_that_others_can_write_is_not_used(compiler, tmp_path):
    compiler(QUICK)
    folder = tmp_path / "cache" / "nnexp"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert not is_compiled(CPU)
    assert unavailable_reason() == f"{folder} is writable by other users"


@needs_compiler
def test_a_library_that_others_can_write_is_not_loaded(compiler, tmp_path):
    compiler(QUICK)
    assert is_compiled(CPU)
    (path,) = _kept(tmp_path)
    path.chmod(0o722)
    library.cache_clear()
    assert not is_compiled(CPU)
    assert unavailable_reason() == f"{path} is writable by other users"


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")
def test_a_folder_of_another_user_is_not_used(compiler, tmp_path):
    compiler(QUICK)
    folder = tmp_path / "cache" / "nnexp"
    folder.mkdir(parents=True, mode=0o700)
    os.chown(folder, 12345, 12345)
    assert not is_compiled(CPU)
    assert "writable by other users" in unavailable_reason()


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"NNEXP_COMPILER": "none"}, "NNEXP_COMPILER=none"),
        ({"NNEXP_COMPILER": "no-such-compiler"}, "no C++ compiler no-such-compiler found"),
        ({"NNEXP_COMPILER": "", "CXX": "", "PATH": "/nowhere"}, "no C++ compiler found"),
        ({"NNEXP_COMPILER": "", "CXX": "'", "PATH": "/nowhere"}, "No closing quotation"),
    ],
)
def test_no_compiler_is_a_reason(compiler, monkeypatch, variables, reason):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert not is_compiled(CPU)
    assert unavailable_reason() == reason
    assert _computes()


@needs_compiler
def test_cxx_is_the_compiler_with_its_arguments(compiler, monkeypatch):
    path = compiler(QUICK)
    monkeypatch.setenv("NNEXP_COMPILER", "")
    monkeypatch.setenv("CXX", f"{path} -DCHOSEN")
    assert is_compiled(CPU)
    assert Path(f"{path}.log").read_text().count("-DCHOSEN") == 2


@pytest.mark.slow
@needs_compiler
def test_processes_that_start_at_once_all_find_a_whole_library(compiler, tmp_path):
    compiler(QUICK)
    code = "from nnexp.nn.kernels.build import library; print(library()[0] is not None)"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0].split() for process in processes] == [["True"]] * 3
    assert all(path.name.startswith("kernels-") for path in _kept(tmp_path))
