"""What makes two jobs the same: configuration, seeds, the code that makes the numbers, and torch's version.

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

from nnexp.config import Job
from nnexp.registry import PACKAGE, Registry

# The modules of nnexp that decide a run's numbers. The others may change and a finished run stays valid.
NUMERIC = ("data", "init", "lane", "seeding", "spec", "update", "views", "weights")


def fingerprint(job: Job, registry: Registry) -> str:
    """64 hexadecimal digits."""
    content = {
        "choices": [[c.kind, c.name, c.values, c.seed] for c in job.choices],
        "precision": job.settings.precision,
        "plugins": [code_hash(registry.get(c.kind, c.name).path) for c in job.choices],
        "nnexp": [code_hash(PACKAGE / f"{name}.py") for name in NUMERIC],
        "torch": version("torch"),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@cache
def _code_hash(path: Path, _stamp: tuple[int, int]) -> str:
    tree = ast.parse(path.read_bytes())
    return hashlib.sha256(json.dumps(normalised(tree)).encode()).hexdigest()


def code_hash(path: Path) -> str:
    """Hash of a source file's meaning: docstrings, comments and layout do not count."""
    stat = path.stat()
    return _code_hash(path, (stat.st_mtime_ns, stat.st_size))


def normalised(node: Any) -> Any:
    """A syntax tree as nested lists, the same on every version of Python: empty and None fields are left out."""
    if isinstance(node, ast.AST):
        fields = [[name, normalised(value)] for name, value in _fields(node) if name not in ("ctx", "kind")]
        return [type(node).__name__, *sorted(field for field in fields if field[1] not in (None, []))]
    if isinstance(node, list):
        return [normalised(item) for item in node]
    return node if isinstance(node, str | int | None) else [type(node).__name__, repr(node)]


def _fields(node: ast.AST) -> list[tuple[str, Any]]:
    """The fields of a node, a docstring left out of its body."""
    fields = list(ast.iter_fields(node))
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return fields
    if ast.get_docstring(node, clean=False) is None:
        return fields
    return [(name, value[1:] if name == "body" else value) for name, value in fields]
