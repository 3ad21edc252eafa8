"""The compiled kernels: built at first use by the machine's own C++ compiler, and kept in a folder of the user.

A library's name holds a hash of the source and of all that the compiler says of itself and of this processor, so that
a home shared by machines never gives one the instructions of another; and a hash of the library itself, so that a file
that is damaged or not whole is never loaded. Whatever fails is a reason, not an error: the kernels of torch remain.
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
SECONDS = 60.0


class Unavailable(Exception):
    """Why there is no compiled kernel."""


@cache
def library() -> tuple[ctypes.CDLL | None, str]:
    """The compiled kernels, or None and why there are none. Set NNEXP_COMPILER=none for the second."""
    try:
        return _load(find_compiler(), _folder()), ""
    except (Unavailable, OSError, RuntimeError, ValueError) as error:  # RuntimeError: there is no home folder
        return None, " ".join(str(error).split())


def find_compiler() -> list[str]:
    """The command of the first compiler found: NNEXP_COMPILER, CXX, g++, clang++."""
    chosen = os.environ.get("NNEXP_COMPILER", "")
    if chosen == "none":
        raise Unavailable("NNEXP_COMPILER=none")
    if not hasattr(os, "getuid"):
        raise Unavailable("kernels are compiled on Linux and macOS only")
    for name in [chosen] if chosen else [os.environ.get("CXX", ""), "g++", "clang++"]:
        command = shlex.split(name)
        if command and (path := shutil.which(command[0])):
            return [path, *command[1:]]
    raise Unavailable(f"there is no C++ compiler {chosen}".rstrip())


def _folder() -> Path:
    """Where libraries are kept. It must be the user's own, for what is in it is run."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "nnexp"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(folder)
    return folder


def _check_owner(path: Path) -> None:
    status = path.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Unavailable(f"{path} can be written by others")


def _load(compiler: list[str], folder: Path) -> ctypes.CDLL:
    source = b"".join(path.read_bytes() for path in SOURCES + HEADERS)
    about = _run([*compiler, *FLAGS, "-E", "-dM", "-x", "c++", os.devnull])  # its version, and this processor
    key = _digest(source + about + repr((compiler, FLAGS)).encode())
    for path in sorted(folder.glob(f"kernels-{key}-*.so")):
        if path.name == _name(key, path.read_bytes()):
            _check_owner(path)
            return ctypes.CDLL(str(path))
        path.unlink(missing_ok=True)  # damaged
    return _compile(compiler, key, folder)


def _compile(compiler: list[str], key: str, folder: Path) -> ctypes.CDLL:
    """Into a file of its own, which gets its name when it has been loaded."""
    handle, made = tempfile.mkstemp(suffix=".so", prefix="unfinished-", dir=folder)
    os.close(handle)
    try:
        _run([*compiler, *FLAGS, "-shared", "-fPIC", "-o", made, *map(str, SOURCES)])
        compiled = ctypes.CDLL(made)
        Path(made).chmod(0o700)
        Path(made).replace(folder / _name(key, Path(made).read_bytes()))
        return compiled
    finally:
        Path(made).unlink(missing_ok=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _name(key: str, content: bytes) -> str:
    return f"kernels-{key}-{_digest(content)}.so"


def _run(command: list[str]) -> bytes:
    """What a command prints. It and all that it started are ended where it takes too long."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            code = process.wait(SECONDS)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise Unavailable(f"{command[0]} takes longer than {SECONDS:g} s") from None
            raise
        errors.seek(0)
        if code:
            first = errors.readline(300).decode(errors="replace")
            raise Unavailable(f"{command[0]} ends with code {code}: {first}")
        output.seek(0)
        return output.read()
