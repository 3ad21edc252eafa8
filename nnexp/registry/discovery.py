"""Find plugins: search plugin folders and installed packages for `<kind>/<name>.py`.

The only module that knows where plugins are stored.
"""

from __future__ import annotations

import importlib.util
import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from nnexp.base import ConfigError, PluginError, suggestion
from nnexp.registry.contracts import KINDS
from nnexp.registry.plugin_source import PACKAGE, Broken, Plugin, read_plugin


class Registry:
    """The plugins found in a list of folders, and the plugin files that cannot be used.

    Args:
        folders: searched for `<kind>/<name>.py`; duplicates, compared by real path, are ignored.

    Attributes:
        plugins: by (kind, name).
        broken: unusable plugin files by (kind, name), with the reason.
    """

    def __init__(self, folders: list[Path]) -> None:
        self.plugins: dict[tuple[str, str], Plugin] = {}
        self.broken: dict[tuple[str, str], Broken] = {}
        for folder in dict.fromkeys(map(_real_path, folders)):
            if folder.is_symlink():
                self.broken["folder", str(folder)] = Broken("folder", str(folder), folder, "a broken symbolic link")
            for kind in KINDS:
                for path in sorted((folder / kind).glob("[!_.]*.py")):
                    self._add(kind, _real_path(path))

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
        """Return the sorted names of the plugins of one kind."""
        return sorted(name for k, name in self.plugins if k == kind)

    def get(self, kind: str, name: str) -> Plugin:
        """Return a plugin.

        Raises ConfigError, with the closest existing name, where there is none or its file cannot be used.
        """
        if (kind, name) in self.plugins:
            return self.plugins[kind, name]
        if kind not in KINDS:
            raise ConfigError(f"there is no kind '{kind}' of plugin. Available: {', '.join(KINDS)}.")
        if (kind, name) in self.broken:
            raise ConfigError(f"{kind}={name} cannot be used: {self.broken[kind, name].reason}")
        names = self.names(kind)
        raise ConfigError(
            f"{kind}={name}: there is no such {kind}.{suggestion(name, names)} Available: {', '.join(names)}."
        )

    def names_with_parameter(self, kind: str, parameter: str) -> list[str]:
        """Return the names of the plugins of one kind that have a parameter of this name."""
        return [name for name in self.names(kind) if parameter in self.plugins[kind, name].parameters]


def _real_path(path: Path) -> Path:
    return Path(os.path.realpath(path))  # unlike Path.resolve, accepts a link to itself


def conf_dir() -> Path:
    """Return the project's `conf/`, or its copy inside an installed package."""
    installed = PACKAGE / "_conf"
    return installed if installed.is_dir() else PACKAGE.parent / "conf"


def plugin_folders() -> list[Path]:
    """Return the folders to search: the built-in plugins, `NNEXP_PLUGINS`, `./plugins`, and installed packages."""
    built_in = PACKAGE / "_plugins"
    folders = [built_in if built_in.is_dir() else PACKAGE.parent / "plugins"]
    folders += [Path(p) for p in os.environ.get("NNEXP_PLUGINS", "").split(os.pathsep) if p]
    folders.append(Path("plugins"))
    return [*folders, *_entry_point_folders()]


def _entry_point_folders() -> list[Path]:
    """Return the folders of the entry points `nnexp.plugins`; finds the specs of top-level packages, imports none."""
    folders = []
    for point in entry_points(group="nnexp.plugins"):
        top, *rest = point.module.split(".")
        spec = importlib.util.find_spec(top)
        folders += [Path(place, *rest) for place in (spec.submodule_search_locations or [] if spec else [])]
    return folders


def discover() -> Registry:
    """Return a new registry of all plugins that can currently be found."""
    return Registry(plugin_folders())


def plugin(kind: str, name: str) -> Any:
    """Return the class of a plugin, wherever it is installed. Raises ConfigError where there is none.

    >>> model = nnexp.plugin("model", "lstm")(spec, hidden_size=8)
    """
    return discover().get(kind, name).load()
