"""Which plugins there are: plugin folders and installed packages, searched for `<kind>/<name>.py`.

The only module that knows where plugins live.
"""

from __future__ import annotations

import importlib.util
import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from nnexp.base import ConfigError, PluginError, did_you_mean
from nnexp.registry.contracts import KINDS
from nnexp.registry.plugin_source import PACKAGE, Broken, Plugin, read_plugin


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
        raise ConfigError(
            f"{kind}={name}: there is no such {kind}.{did_you_mean(name, names)} There is: {', '.join(names)}."
        )

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


def plugin(kind: str, name: str) -> Any:
    """Return the class of a plugin, wherever it is installed: `nnexp.plugin("model", "lstm")(spec, hidden_size=8)`.

    Raises ConfigError where there is no such plugin.
    """
    return discover().get(kind, name).load()
