"""Read a plugin file as source: class, parameters and documentation. Only `Plugin.load` imports it."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nnexp.base import PluginError, shorten, suggestion
from nnexp.registry.contracts import ALL, BASES, CONSTRUCTOR_ARGUMENTS, CONTRACT, DEFAULT, KINDS
from nnexp.registry.docstrings import inherited_argument_docs, with_docs
from nnexp.registry.schema import Parameter
from nnexp.registry.signature import SignatureReader, defined_names, is_dataclass, last_name

RESERVED_PARAMETERS = ("name", "seed")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
RESERVED_NAMES = ("null", "true", "false", "nan", "inf")  # Hydra and YAML do not read these as text
RESERVED_PROBE_NAMES = (ALL, DEFAULT, "train", "val", "test", "final", "lr", "grad_norm", "status")  # columns, keys
PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Plugin:
    """A plugin as described by its source.

    Args:
        kind: dataset, model, trainer or probe.
        name: the file's stem, by which the plugin is chosen.
        path: the source file.
        class_name: the decorated class.
        parameters: the plugin's configuration, by name.
        doc: the docstring of the class.
        source_doc: the docstring of the module, which names the plugin's origin, such as a paper.
    """

    kind: str
    name: str
    path: Path
    class_name: str
    parameters: dict[str, Parameter]
    doc: str
    source_doc: str

    @property
    def summary(self) -> str:
        """The first line of the class's docstring."""
        return self.doc.strip().split("\n")[0]

    @property
    def defaults(self) -> dict[str, Any]:
        """The default of each parameter, by name."""
        return {name: parameter.default for name, parameter in self.parameters.items()}

    def load(self) -> Any:
        """Import the plugin and return its class. No other code executes plugins.

        Raises whatever the plugin's module raises on import.
        """
        module_name = f"nnexp_plugins.{self.kind}.{self.name}"
        module = sys.modules.get(module_name)
        if module is None or module.__file__ != str(self.path):
            spec = importlib.util.spec_from_file_location(module_name, self.path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[module_name] = module
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[module_name]
                raise
        return getattr(module, self.class_name)


def plugin_files() -> set[str]:
    """Return the source files of all imported plugins."""
    return {str(module.__file__) for name, module in list(sys.modules.items()) if name.startswith("nnexp_plugins.")}


@dataclass(frozen=True)
class Broken:
    """A plugin file that cannot be used, with the reason."""

    kind: str
    name: str
    path: Path
    reason: str


@cache
def base_readers() -> dict[str, SignatureReader]:
    """Return readers of nnexp's base classes for plugins, by class name."""
    readers: dict[str, SignatureReader] = {}
    for base in BASES.values():
        tree = ast.parse((PACKAGE / base.path).read_text(encoding="utf-8"))
        readers[base.class_name] = SignatureReader(tree, f"nnexp/{base.path}")
    return readers


def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file. Raises PluginError, with file and line, where it cannot be parsed."""
    if path.exists() and not path.is_file():
        raise PluginError(f"{path}:1: this is no regular file. Remove it.")
    try:
        return ast.parse(path.read_bytes())
    except (RecursionError, MemoryError):
        raise PluginError(f"{path}:1: an expression in this file is nested too deeply for Python.") from None
    except OSError as error:
        raise PluginError(f"{path}:1: the file cannot be read: {error.strerror}.") from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise PluginError(f"{path}:{line}: {getattr(error, 'msg', None) or error}") from None


def read_plugin(kind: str, path: Path) -> Plugin:
    """Return the plugin defined in one file. Raises PluginError, with file and line, where it violates the contract."""
    _check_name(kind, path)
    tree = parse(path)
    try:
        return _read_class(kind, path, tree)
    except PluginError:
        raise
    except Exception as error:  # an unexpected error in one file must not hide the other plugins
        raise PluginError(f"{path}:1: the file cannot be read as a plugin: {shorten(str(error))}.") from None


def _check_name(kind: str, path: Path) -> None:
    reserved = (*RESERVED_NAMES, *(RESERVED_PROBE_NAMES if kind == "probe" else ()))
    if NAME.fullmatch(path.stem) and path.stem.lower() not in reserved:
        return
    reason = f"{path.name!a} is not a valid name: use a letter, then letters, digits and _"
    raise PluginError(f"{ascii(str(path))[1:-1]}:1: {reason}; {', '.join(reserved)} are reserved. Rename the file.")


def _read_class(kind: str, path: Path, tree: ast.Module) -> Plugin:
    reader = SignatureReader(tree, str(path), base_readers())
    node = _plugin_class(reader, kind, path)
    if kind in BASES:
        _check_base(node, reader, kind)
    try:
        positional, parameters = reader.parameters(node.name)
    except RecursionError:
        raise reader.fail(node, "a base or a type in this file refers to itself, or is nested too deeply.") from None
    if len(positional) != len(CONSTRUCTOR_ARGUMENTS[kind]):
        expected = f"__init__(self, {', '.join([*CONSTRUCTOR_ARGUMENTS[kind], '*', '...'])})"
        raise reader.fail(node, f"a {kind} needs {expected}; parameters after * are its configuration.")
    for name in RESERVED_PARAMETERS:
        if name in parameters:
            raise reader.fail(node, f"'{name}' is set by nnexp for every {kind}; rename the parameter.")
    if kind in CONTRACT:
        _check_public_names(node, reader, kind, set(parameters))
    doc = ast.get_docstring(node) or ""
    described = with_docs(parameters, inherited_argument_docs(node, reader))
    return Plugin(kind, path.stem, path, node.name, described, doc, ast.get_docstring(tree) or "")


def _check_base(node: ast.ClassDef, reader: SignatureReader, kind: str) -> None:
    base = BASES[kind]
    if not {base.class_name, *reader.classes} & {last_name(each) for each in node.bases}:
        raise reader.fail(node, f"a {kind} inherits {base.provides}: class ...(nnexp.{base.class_name}).")
    has_fields = any(isinstance(item, ast.AnnAssign) for item in node.body)
    if has_fields and not is_dataclass(node):
        reason = f"fields are ignored without @dataclass. Add @dataclass(kw_only=True) under @{kind}."
        raise reader.fail(node, reason)


def _check_public_names(node: ast.ClassDef, reader: SignatureReader, kind: str, parameters: set[str]) -> None:
    """Raise PluginError for a public name of a class, or of its bases in this file, that nnexp would never use."""
    for item in node.body:
        for name in defined_names(item):
            if not name.startswith("_") and name not in parameters | CONTRACT[kind].keys():
                known = ", ".join(CONTRACT[kind])
                guess = suggestion(name, [*CONTRACT[kind], *parameters])
                advice = f"A {kind} defines {known} and its parameters; begin the names of helpers with an underscore."
                raise reader.fail(item, f"nnexp does not use '{name}' of a {kind}.{guess} {advice}")
    for base in node.bases:
        if last_name(base) in reader.classes:
            _check_public_names(reader.classes[last_name(base)], reader, kind, parameters)


def _plugin_class(reader: SignatureReader, kind: str, path: Path) -> ast.ClassDef:
    marked = []
    for node in reader.classes.values():
        names = [last_name(decorator) for decorator in node.decorator_list]
        for other in KINDS:
            if other in names and other != kind:
                raise reader.fail(node, f"@{other} in a folder of {kind} plugins. Move the file to {other}/.")
        if kind in names:
            marked.append(node)
    if len(marked) != 1:
        found = ", ".join(node.name for node in marked) or "none"
        raise PluginError(f"{path}:1: a plugin is one class marked @{kind} (from nnexp import {kind}); found {found}.")
    return marked[0]
