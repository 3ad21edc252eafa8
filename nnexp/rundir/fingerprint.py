"""The fingerprint of a job: a hash of configuration, seeds, the code that makes the numbers, and torch's version.

A parameter marked `File` counts by what is in the file, wherever that is.

Not covered: where and how fast a job runs (device, folders, checkpoint interval), for these change no number.
"""

from __future__ import annotations

import ast
import hashlib
import json
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nnexp.base import ConfigError
from nnexp.config import Job, PluginConfig
from nnexp.registry import PACKAGE, Registry, parse

NUMERIC_ROOMS = ("data", "nn", "training", "stacking")  # others may change, and a finished run stays valid
SOURCES = (".py", ".cpp", ".h")


def job_fingerprint(job: Job, registry: Registry) -> str:
    """64 hexadecimal digits.

    Raises PluginError where the code of a plugin can no longer be read, ConfigError where a file cannot that the job
    names.
    """
    content = {
        "choices": [[c.kind, c.name, _values(c, registry), c.seed] for c in job.parts],
        "precision": job.options.precision,
        "plugins": [code_hash(registry.get(c.kind, c.name).path) for c in job.parts],
        "nnexp": numeric_code(),
        "torch": version("torch"),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def numeric_code() -> list[str]:
    """Return the hashes of the source files of the rooms that make numbers; their names and order do not count."""
    files = [path for room in NUMERIC_ROOMS for path in (PACKAGE / room).rglob("*") if path.suffix in SOURCES]
    return sorted(code_hash(path) if path.suffix == ".py" else file_hash(path) for path in files)


def probe_fingerprint(choice: PluginConfig, registry: Registry) -> str:
    """16 hexadecimal digits of a probe's code and values, but for when it looks."""
    values = {name: value for name, value in choice.values.items() if name != "every"}
    content = [values, code_hash(registry.get("probe", choice.name).path)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _values(choice: PluginConfig, registry: Registry) -> dict[str, Any]:
    """The values of a plugin's parameters, with the content of a file for its path."""
    values = dict(choice.values)
    for name, parameter in registry.get(choice.kind, choice.name).parameters.items():
        if parameter.is_file and values[name] is not None:
            try:
                values[name] = file_hash(Path(values[name]))
            except (OSError, ValueError) as error:  # ValueError: a path with a null character
                reason = getattr(error, "strerror", None) or error
                message = f"{choice.kind}.{name}={values[name]}: the file cannot be read: {reason}."
                raise ConfigError(f"{message} Give the path of a file that is there.") from None
    return values


@cache
def _file_hash(path: Path, _stamp: tuple[int, int]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_hash(path: Path) -> str:
    """Hash of a file's bytes, which are never in memory as a whole; computed once for all the jobs of a sweep."""
    stat = path.stat()
    return _file_hash(path.resolve(), (stat.st_mtime_ns, stat.st_size))


@cache
def _code_hash(path: Path, _stamp: tuple[int, int]) -> str:
    return hashlib.sha256(json.dumps(normalised(parse(path))).encode()).hexdigest()


def code_hash(path: Path) -> str:
    """Return the hash of a source file's meaning: docstrings, comments, layout and imports from nnexp do not count.

    What is imported from nnexp counts where it is defined, so that code can move between its modules.
    """
    stat = path.stat()
    return _code_hash(path, (stat.st_mtime_ns, stat.st_size))


def normalised(tree: ast.AST) -> list[Any]:
    """A syntax tree as a flat list, the same on every version of Python: empty and None fields are left out.

    Each node is its type and the names of its fields, which follow it, and each list its length: without recursion,
    so that an expression may be as long as Python itself allows.
    """
    flat: list[Any] = []
    left: list[Any] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.AST):
            fields = sorted(field for field in _fields(node).items() if field[1] not in (None, []))
            flat.append([type(node).__name__, *(name for name, _ in fields)])
            left += [value for _, value in reversed(fields)]
        elif isinstance(node, list):
            flat.append(len(node))
            left += reversed(node)
        else:
            # In decimal digits Python refuses to write an integer that is long.
            flat.append([type(node).__name__, hex(node) if type(node) is int else repr(node)])
    return flat


def _fields(node: ast.AST) -> dict[str, Any]:
    """Return the fields of a node that mean something: without docstrings, and without imports from nnexp."""
    fields = {name: value for name, value in ast.iter_fields(node) if name not in ("ctx", "kind")}
    documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    if documented and ast.get_docstring(node, clean=False) is not None:  # type: ignore[arg-type]  # as just checked
        fields["body"] = fields["body"][1:]
    if isinstance(fields.get("body"), list):
        fields["body"] = [statement for statement in fields["body"] if not _is_own_import(statement)]
    return fields


def _is_own_import(node: ast.AST) -> bool:
    """Whether a statement imports from nnexp under the names defined there: the code then names what it uses."""
    if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] != "nnexp":
        return False
    return all(alias.asname is None for alias in node.names)
