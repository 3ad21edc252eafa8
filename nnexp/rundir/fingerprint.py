"""The fingerprint of a job: a hash of its configuration, its seeds, the code that computes it, and torch's version.

The code is that of nnexp's numeric rooms, of the plugins, and of what plugins import (see `plugin_imports`).

A parameter marked `File` is hashed by the content of the file, not by its path.

Not covered: device, folders and checkpoint interval, because they change no number.
"""

from __future__ import annotations

import ast
import hashlib
import json
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nnexp.base import ConfigError
from nnexp.config import Job, PluginConfig
from nnexp.registry import PACKAGE, Registry, parse
from nnexp.rundir.plugin_imports import plugin_imports

NUMERIC_ROOMS = ("data", "nn", "training", "stacking")  # changes in other rooms leave finished runs valid
SOURCES = (".py", ".cpp", ".h")


class CodeHashes:
    """Hashes of code, each read when it is first asked for and then kept: one for all jobs of a plan.

    Args:
        registry: the plugins.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._plugins: dict[tuple[str, str], list[Any]] = {}

    @cached_property
    def numeric(self) -> list[str]:
        """Those of nnexp's numeric rooms."""
        return numeric_code()

    @cached_property
    def torch(self) -> str:
        """The version of torch."""
        return version("torch")

    def plugin(self, choice: PluginConfig) -> list[Any]:
        """Return those of a plugin's source and of its own modules, and the versions of what they import."""
        key = choice.kind, choice.name
        if key not in self._plugins:
            path = self.registry.get(*key).path
            modules, distributions = plugin_imports(path)
            self._plugins[key] = [code_hash(path), sorted(map(code_hash, modules)), distributions]
        return self._plugins[key]


def job_fingerprint(job: Job, registry: Registry, code: CodeHashes | None = None) -> str:
    """Return the fingerprint of a job, 64 hexadecimal digits. Jobs with equal fingerprints are the same run.

    Args:
        job: the job.
        registry: the plugins.
        code: shared by the jobs of a plan; None reads the code as it is now.

    Raises:
        PluginError: the source of a plugin cannot be read.
        ConfigError: a file that the job names cannot be read.
    """
    code = code or CodeHashes(registry)
    content = {
        "choices": [[c.kind, c.name, _values(c, registry), c.seed] for c in job.parts],
        "precision": job.options.precision,
        "plugins": [code.plugin(choice) for choice in job.parts],
        "nnexp": code.numeric,
        "torch": code.torch,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def numeric_code() -> list[str]:
    """Return the sorted hashes of the sources in `NUMERIC_ROOMS`, so that file names do not count."""
    files = [path for room in NUMERIC_ROOMS for path in (PACKAGE / room).rglob("*") if path.suffix in SOURCES]
    return sorted(code_hash(path) if path.suffix == ".py" else file_hash(path) for path in files)


def probe_fingerprint(choice: PluginConfig, registry: Registry, code: CodeHashes | None = None) -> str:
    """Return 16 hexadecimal digits for a probe's code and values, without its schedule `every`.

    Raises:
        PluginError: the source of the probe cannot be read.
    """
    values = {name: value for name, value in choice.values.items() if name != "every"}
    content = [values, (code or CodeHashes(registry)).plugin(choice)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _values(choice: PluginConfig, registry: Registry) -> dict[str, Any]:
    """Return the values of a plugin's parameters, each file path replaced by a hash of the file."""
    values = dict(choice.values)
    for name, parameter in registry.get(choice.kind, choice.name).parameters.items():
        if parameter.is_file and values[name] is not None:
            try:
                values[name] = file_hash(Path(values[name]))
            except (OSError, ValueError) as error:  # ValueError: a path with a null character
                reason = getattr(error, "strerror", None) or error
                message = f"{choice.kind}.{name}={values[name]}: the file cannot be read: {reason}."
                raise ConfigError(f"{message} Give the path of an existing file.") from None
    return values


@cache
def _file_hash(path: Path, _stamp: tuple[int, int]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, read in blocks; cached by path, modification time and size.

    Raises:
        OSError: the file cannot be read.
    """
    stat = path.stat()
    return _file_hash(path.resolve(), (stat.st_mtime_ns, stat.st_size))


@cache
def _code_hash(path: Path, _stamp: tuple[int, int]) -> str:
    return hashlib.sha256(json.dumps(normalised(parse(path))).encode()).hexdigest()


def code_hash(path: Path) -> str:
    """Return the SHA-256 of a Python source without docstrings, comments, layout and imports from nnexp.

    Code imported from nnexp is hashed where it is defined, so it can move between modules without new fingerprints.

    Raises:
        PluginError: the file cannot be read or parsed.
        OSError: the file does not exist.
    """
    stat = path.stat()
    return _code_hash(path, (stat.st_mtime_ns, stat.st_size))


def normalised(tree: ast.AST) -> list[Any]:
    """Return a syntax tree as a flat list that is equal on every Python version: empty and None fields are left out.

    A node becomes its type and field names, followed by its fields; a list becomes its length, followed by its items.
    Iterative, because a long expression nests deeper than Python's recursion limit.
    """
    flat: list[Any] = []
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.AST):
            fields = sorted(field for field in _fields(node).items() if field[1] not in (None, []))
            flat.append([type(node).__name__, *(name for name, _ in fields)])
            stack += [value for _, value in reversed(fields)]
        elif isinstance(node, list):
            flat.append(len(node))
            stack += reversed(node)
        else:
            # hex: Python refuses to write integers of more than 4300 decimal digits
            flat.append([type(node).__name__, hex(node) if type(node) is int else repr(node)])
    return flat


def _fields(node: ast.AST) -> dict[str, Any]:
    """Return the fields of a node without docstrings and without imports from nnexp."""
    fields = {name: value for name, value in ast.iter_fields(node) if name not in ("ctx", "kind")}
    documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    if documented and ast.get_docstring(node, clean=False) is not None:  # type: ignore[arg-type]  # as just checked
        fields["body"] = fields["body"][1:]
    if isinstance(fields.get("body"), list):
        fields["body"] = [statement for statement in fields["body"] if not _is_own_import(statement)]
    return fields


def _is_own_import(node: ast.AST) -> bool:
    """Check for an import from nnexp without `as`: the code below then shows the original names."""
    if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] != "nnexp":
        return False
    return all(alias.asname is None for alias in node.names)
