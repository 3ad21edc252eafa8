"""Which plugins there are: found by looking into folders, read as source, imported only when a job uses them.

The only file that knows where plugins live.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from nnexp.errors import ConfigError, PluginError, cut, hint
from nnexp.helps import helps_of, with_help
from nnexp.reader import Reader, is_dataclass, last_name
from nnexp.schema import Parameter

PARTS = ("dataset", "model", "trainer")  # of a job, one of each
KINDS = (*PARTS, "probe")
FACTS = {"dataset": ["generator"], "model": ["data"], "trainer": [], "probe": []}
BASES = {"trainer": ("Trainer", "its steps, batches and evaluation"), "probe": ("Probe", "its schedule")}
RESERVED = ("name", "seed")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
WORDS = ("null", "true", "false", "nan", "inf")  # Hydra and YAML read another value where one of these is typed
ALL, DEFAULT = "all", "default"  # in place of a probe's name: every one there is; what a command has that chooses none
OF_PROBES = (ALL, DEFAULT, "train", "val", "test", "final", "lr", "grad_norm", "status")  # mean something else
PACKAGE = Path(__file__).parent


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


class Registry:
    """The plugins of some folders.

    Args:
        folders: searched for `<kind>/<name>.py`; compared by real path, so that a folder may be named twice.
    """

    def __init__(self, folders: list[Path]) -> None:
        self.plugins: dict[tuple[str, str], Plugin] = {}
        self.broken: dict[tuple[str, str], Broken] = {}
        for folder in dict.fromkeys(map(_real, folders)):
            if folder.is_symlink():
                self.broken["folder", str(folder)] = Broken("folder", str(folder), folder, "a link that leads nowhere")
            for kind in KINDS:
                for path in sorted((folder / kind).glob("[!_.]*.py")):
                    self._add(kind, _real(path))

    def _add(self, kind: str, path: Path) -> None:
        key = (kind, path.stem)
        other = self.plugins.get(key) or self.broken.get(key)
        if other is not None and other.path == path:
            return
        try:
            if other is not None:
                raise PluginError(f"two files have the name '{path.stem}': {other.path} and {path}. Rename one.")
            self.plugins[key] = read_plugin(kind, path)
        except PluginError as error:
            self.plugins.pop(key, None)
            self.broken[key] = Broken(kind, ascii(path.stem)[1:-1], path, str(error))

    def names(self, kind: str) -> list[str]:
        return sorted(name for k, name in self.plugins if k == kind)

    def get(self, kind: str, name: str) -> Plugin:
        """The plugin, or a ConfigError with the nearest right name."""
        if (kind, name) in self.plugins:
            return self.plugins[kind, name]
        if kind not in KINDS:
            raise ConfigError(f"there is no kind '{kind}' of plugin. There is: {', '.join(KINDS)}.")
        if (kind, name) in self.broken:
            raise ConfigError(f"{kind}={name} cannot be used: {self.broken[kind, name].reason}")
        names = self.names(kind)
        raise ConfigError(f"{kind}={name}: there is no such {kind}.{hint(name, names)} There is: {', '.join(names)}.")

    def having(self, kind: str, parameter: str) -> list[str]:
        """Names of the plugins of this kind that have this parameter."""
        return [name for name in self.names(kind) if parameter in self.plugins[kind, name].parameters]


def _real(path: Path) -> Path:
    """The real path; a link to itself stays as it is."""
    return Path(os.path.realpath(path))


def conf_dir() -> Path:
    """The project's conf/, or the copy inside an installed package."""
    installed = PACKAGE / "_conf"
    return installed if installed.is_dir() else PACKAGE.parent / "conf"


def plugin_folders() -> list[Path]:
    """Where plugins come from: the project's own, NNEXP_PLUGINS, ./plugins and installed packages."""
    own = PACKAGE / "_plugins"
    folders = [own if own.is_dir() else PACKAGE.parent / "plugins"]
    folders += [Path(p) for p in os.environ.get("NNEXP_PLUGINS", "").split(os.pathsep) if p]
    folders.append(Path("plugins"))
    return [*folders, *_installed_folders()]


def _installed_folders() -> list[Path]:
    """Folders of the entry points `nnexp.plugins`; only the top package is looked up, so nothing is imported."""
    folders = []
    for point in entry_points(group="nnexp.plugins"):
        top, *rest = point.module.split(".")
        spec = importlib.util.find_spec(top)
        folders += [Path(place, *rest) for place in (spec.submodule_search_locations or [] if spec else [])]
    return folders


def discover() -> Registry:
    """The registry as it is now."""
    return Registry(plugin_folders())


@cache
def own_bases() -> dict[str, Reader]:
    """Readers of the classes that plugins may inherit from."""
    path = PACKAGE / "spec.py"
    reader = Reader(ast.parse(path.read_text(encoding="utf-8")), "nnexp/spec.py")
    return dict.fromkeys(reader.classes, reader)


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
        raise PluginError(f"{path}:1: the file cannot be read as a plugin: {cut(str(error))}.") from None


def _described(kind: str, path: Path, tree: ast.Module) -> Plugin:
    reader = Reader(tree, str(path), own_bases())
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
    described = with_help(parameters, helps_of(node, reader))
    return Plugin(kind, path.stem, path, node.name, described, doc, ast.get_docstring(tree) or "")


def _check_base(node: ast.ClassDef, reader: Reader, kind: str) -> None:
    base, what = BASES[kind]
    if not {base, *reader.classes} & {last_name(each) for each in node.bases}:
        raise reader.fail(node, f"a {kind} inherits {what}: class ...(nnexp.{base}).")
    has_fields = any(isinstance(item, ast.AnnAssign) for item in node.body)
    if has_fields and not is_dataclass(node):
        raise reader.fail(node, f"its fields are no parameters yet. Add @dataclass(kw_only=True) under @{kind}.")


def _plugin_class(reader: Reader, kind: str, path: Path) -> ast.ClassDef:
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
