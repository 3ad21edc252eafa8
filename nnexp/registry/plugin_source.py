"""A plugin file, read as source: its class, its parameters, its documentation. The class is imported only by `load`."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nnexp.base import PluginError, shorten
from nnexp.registry.contracts import ALL, BASES, DEFAULT, FACTS, KINDS
from nnexp.registry.docstrings import inherited_argument_docs, with_docs
from nnexp.registry.schema import Parameter
from nnexp.registry.signature import SignatureReader, is_dataclass, last_name

RESERVED = ("name", "seed")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
WORDS = ("null", "true", "false", "nan", "inf")  # Hydra and YAML read another value where one of these is typed
OF_PROBES = (ALL, DEFAULT, "train", "val", "test", "final", "lr", "grad_norm", "status")  # mean something else
PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Plugin:
    """One option of one kind, as its source describes it."""

    kind: str
    name: str
    path: Path
    class_name: str
    parameters: dict[str, Parameter]
    doc: str
    source_doc: str

    @property
    def summary(self) -> str:
        return self.doc.strip().split("\n")[0]

    @property
    def defaults(self) -> dict[str, Any]:
        return {name: parameter.default for name, parameter in self.parameters.items()}

    def load(self) -> Any:
        """The class itself. This is the one place where a plugin's code is executed."""
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
    """The files of all plugins that are loaded."""
    return {str(module.__file__) for name, module in list(sys.modules.items()) if name.startswith("nnexp_plugins.")}


@dataclass(frozen=True)
class Broken:
    """A plugin file that cannot be used, and why."""

    kind: str
    name: str
    path: Path
    reason: str


@cache
def own_bases() -> dict[str, SignatureReader]:
    """Return readers of the classes that plugins may inherit from, by class name."""
    readers: dict[str, SignatureReader] = {}
    for base in BASES.values():
        tree = ast.parse((PACKAGE / base.path).read_text(encoding="utf-8"))
        readers[base.class_name] = SignatureReader(tree, f"nnexp/{base.path}")
    return readers


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file. Raises PluginError where there is none."""
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
    """The plugin in one file. Raises PluginError with file and line where it does not keep the contract."""
    if not NAME.fullmatch(path.stem) or path.stem.lower() in (*WORDS, *(OF_PROBES if kind == "probe" else ())):
        reason = f"{path.name!a} cannot be typed as a name: begin with a letter, go on with letters, digits and _"
        raise PluginError(
            f"{ascii(str(path))[1:-1]}:1: {reason}; {', '.join((*WORDS, *OF_PROBES))} are taken. Rename the file."
        )
    tree = parse(path)
    try:
        return _described(kind, path, tree)
    except PluginError:
        raise
    except Exception as error:  # whatever surprises the reader in one file must hide no other
        raise PluginError(f"{path}:1: the file cannot be read as a plugin: {shorten(str(error))}.") from None


def _described(kind: str, path: Path, tree: ast.Module) -> Plugin:
    reader = SignatureReader(tree, str(path), own_bases())
    node = _plugin_class(reader, kind, path)
    if kind in BASES:
        _check_base(node, reader, kind)
    try:
        positional, parameters = reader.parameters(node.name)
    except RecursionError:
        raise reader.fail(node, "a base or a type in this file refers to itself, or is nested too deeply.") from None
    if len(positional) != len(FACTS[kind]):
        wanted = f"__init__(self, {', '.join([*FACTS[kind], '*', '...'])})"
        raise reader.fail(node, f"a {kind} is made as {wanted}; parameters after * are its configuration.")
    for name in RESERVED:
        if name in parameters:
            raise reader.fail(node, f"'{name}' is set by nnexp for every {kind}; rename the parameter.")
    doc = ast.get_docstring(node) or ""
    described = with_docs(parameters, inherited_argument_docs(node, reader))
    return Plugin(kind, path.stem, path, node.name, described, doc, ast.get_docstring(tree) or "")


def _check_base(node: ast.ClassDef, reader: SignatureReader, kind: str) -> None:
    base = BASES[kind]
    if not {base.class_name, *reader.classes} & {last_name(each) for each in node.bases}:
        raise reader.fail(node, f"a {kind} inherits {base.provides}: class ...(nnexp.{base.class_name}).")
    has_fields = any(isinstance(item, ast.AnnAssign) for item in node.body)
    if has_fields and not is_dataclass(node):
        raise reader.fail(node, f"its fields are no parameters yet. Add @dataclass(kw_only=True) under @{kind}.")


def _plugin_class(reader: SignatureReader, kind: str, path: Path) -> ast.ClassDef:
    marked = []
    for node in reader.classes.values():
        names = [last_name(decorator) for decorator in node.decorator_list]
        for other in KINDS:
            if other in names and other != kind:
                raise reader.fail(node, f"@{other} in the folder of {kind} plugins. Move the file to {other}/.")
        if kind in names:
            marked.append(node)
    if len(marked) != 1:
        found = ", ".join(node.name for node in marked) or "none"
        raise PluginError(f"{path}:1: a plugin is one class marked @{kind} (from nnexp import {kind}); found {found}.")
    return marked[0]
