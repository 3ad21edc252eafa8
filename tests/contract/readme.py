"""README.md and its plugins, which keep the contracts that all plugins keep."""

import atexit
import re
import shutil
import tempfile
from pathlib import Path

from nnexp.registry.discovery import Registry, plugin_folders

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def blocks(marker: str) -> list[str]:
    """The code under each place of a marker."""
    return re.findall(rf"<!-- {re.escape(marker)}[^>]* -->\n```\w+\n(.*?)```", README, re.DOTALL)


def block(marker: str) -> str:
    """The code under a marker that stands once."""
    (code,) = blocks(marker)
    return code


PLUGINS = {"model/mine.py": block("test: this plugin is trained"), "probe/norm.py": block("test: this probe is run")}


def _written() -> Path:
    """A folder of plugins that is there until the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="nnexp-readme-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, source in PLUGINS.items():
        (folder / name).parent.mkdir()
        (folder / name).write_text(source, encoding="utf-8")
    return folder


REGISTRY = Registry([*plugin_folders(), _written()])
