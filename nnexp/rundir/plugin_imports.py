"""What a plugin imports besides nnexp and the standard library: modules of its own, and distributions.

Imports are read from the source, wherever in it they stand; nothing is imported. A plugin's own modules lie beside it,
in its own installed package, or on the module search path outside of installed distributions: their code counts, and
what they import in turn. Not seen are extension modules, and modules that code imports by a computed name.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from nnexp.registry import parse

KNOWN = {"nnexp", "torch", "__future__"} | sys.stdlib_module_names  # torch counts for every job
INSTALLED = {"site-packages", "dist-packages"}
Name = tuple[str, ...]


def plugin_imports(plugin: Path) -> tuple[list[Path], dict[str, str | None]]:
    """Return the sources of a plugin's own modules, and the versions of the distributions that it and they import.

    A version is None where nothing of that name is installed.

    Raises PluginError where a source cannot be parsed.
    """
    folders, package = _search_folders(plugin), _own_package(plugin)
    found, others, todo = set[Path](), set[str](), [plugin]
    while todo:
        source = todo.pop()
        for level, name in _imported_names(source, source.stat().st_mtime_ns):
            places = [source.parents[level - 1]] if level else [*folders, *package.get(name[0], [])]
            files = [file for file in _files(name, places) if file != plugin]
            todo += [file for file in files if file not in found]
            found.update(files)
            if not files and not level:
                others.add(name[0])
    return sorted(found), {name: _version(name) for name in sorted(others)}


@cache
def _imported_names(source: Path, _stamp: int) -> list[tuple[int, Name]]:
    """Return the dotted names that a source imports, each with the number of dots before it."""
    return [(level, name) for level, name in _names(parse(source)) if level or name[0] not in KNOWN]


def _names(tree: ast.Module) -> Iterator[tuple[int, Name]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, tuple(alias.name.split("."))) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module.split(".") if node.module else []
            yield from ((node.level, (*base, alias.name)) for alias in node.names)


def _files(name: Name, folders: list[Path]) -> list[Path]:
    """Return the sources that the import of a dotted name runs, from the first folder that has its first part.

    The last part may be a name within a module.
    """
    for folder in folders:
        place, files = folder, list[Path]()
        for part in name:
            files += [file for file in (place / f"{part}.py", place / part / "__init__.py") if file.is_file()]
            place = place / part
        if files:
            return files
    return []


def _search_folders(plugin: Path) -> list[Path]:
    """Return the plugin's folder, and those of the module search path that hold no installed distributions."""
    library = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    searched = [Path(place or ".").resolve() for place in sys.path]
    return [plugin.parent, *(place for place in searched if place not in library and not INSTALLED & {*place.parts})]


def _own_package(plugin: Path) -> dict[str, list[Path]]:
    """Return the top-level name and the folder of the installed package that a plugin is part of, if it is."""
    for parent in plugin.parents:
        if parent.parent.name in INSTALLED:
            return {parent.name: [parent.parent]}
    return {}


@cache
def _version(top: str) -> str | None:
    """Return the version of the distributions that provide a top-level module."""
    try:
        return version(top)
    except PackageNotFoundError:
        found = packages_distributions().get(top)
        return " ".join(f"{name} {version(name)}" for name in sorted(set(found))) if found else None
