"""Compile the C++ kernels at first use with the machine's compiler, and cache them in the user's cache folder.

A library's name holds a hash of the sources and of the compiler's macros for this processor, so that machines that
share a home directory do not load each other's instructions, and a hash of the library itself, so that a damaged file
is not loaded. No failure is an error: the caller gets the reason and uses torch operations instead.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCES = [Path(__file__).with_name(name) for name in ("recurrent.cpp", "attention.cpp")]
HEADERS = [Path(__file__).with_name(name) for name in ("products.h", "scratch.h", "vectors.h")]
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
TIMEOUT_SECONDS = 60.0


class KernelsUnavailable(Exception):
    """Kernels cannot be compiled or loaded; the message is the reason."""


@cache
def library() -> tuple[ctypes.CDLL | None, str]:
    """Return the compiled kernels and "", or None and the reason; computed once per process.

    The environment variable NNEXP_COMPILER names the compiler; with "none" nothing is compiled.
    """
    try:
        return _load(find_compiler(), _folder()), ""
    except (KernelsUnavailable, OSError, RuntimeError, ValueError) as error:  # RuntimeError: there is no home folder
        return None, " ".join(str(error).split())


def find_compiler() -> list[str]:
    """Return the command of the first compiler found: NNEXP_COMPILER, or else CXX, g++, clang++.

    Raises:
        KernelsUnavailable: there is none, or the platform is not supported.
    """
    chosen = os.environ.get("NNEXP_COMPILER", "")
    if chosen == "none":
        raise KernelsUnavailable("NNEXP_COMPILER=none")
    if not hasattr(os, "getuid"):
        raise KernelsUnavailable("kernels are compiled only on Linux and macOS")
    for name in [chosen] if chosen else [os.environ.get("CXX", ""), "g++", "clang++"]:
        command = shlex.split(name)
        if command and (path := shutil.which(command[0])):
            return [path, *command[1:]]
    raise KernelsUnavailable(f"no C++ compiler {chosen}".rstrip() + " found")


def _folder() -> Path:
    """Return the cache folder. Only the user may be able to write to it, because its libraries are executed."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "nnexp"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(folder)
    return folder


def _check_owner(path: Path) -> None:
    status = path.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise KernelsUnavailable(f"{path} is writable by other users")


def _load(compiler: list[str], folder: Path) -> ctypes.CDLL:
    source = b"".join(path.read_bytes() for path in SOURCES + HEADERS)
    macros = _run([*compiler, *FLAGS, "-E", "-dM", "-x", "c++", os.devnull])  # depend on compiler and processor
    key = _digest(source + macros + repr((compiler, FLAGS)).encode())
    for path in sorted(folder.glob(f"kernels-{key}-*.so")):
        if path.name == _name(key, path.read_bytes()):
            _check_owner(path)
            return ctypes.CDLL(str(path))
        path.unlink(missing_ok=True)  # damaged
    return _compile(compiler, key, folder)


def _compile(compiler: list[str], key: str, folder: Path) -> ctypes.CDLL:
    """Compile to a temporary file, load it, and rename it only then."""
    handle, temporary = tempfile.mkstemp(suffix=".so", prefix="unfinished-", dir=folder)
    os.close(handle)
    try:
        _run([*compiler, *FLAGS, "-shared", "-fPIC", "-o", temporary, *map(str, SOURCES)])
        compiled = ctypes.CDLL(temporary)
        Path(temporary).chmod(0o700)
        Path(temporary).replace(folder / _name(key, Path(temporary).read_bytes()))
        return compiled
    finally:
        Path(temporary).unlink(missing_ok=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _name(key: str, content: bytes) -> str:
    return f"kernels-{key}-{_digest(content)}.so"


def _run(command: list[str]) -> bytes:
    """Return the standard output of a command; kill its process group after a time limit."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            code = process.wait(TIMEOUT_SECONDS)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise KernelsUnavailable(f"{command[0]} takes longer than {TIMEOUT_SECONDS:g} s") from None
            raise
        errors.seek(0)
        if code:
            first = errors.readline(300).decode(errors="replace")
            raise KernelsUnavailable(f"{command[0]} failed with exit code {code}: {first}")
        output.seek(0)
        return output.read()
