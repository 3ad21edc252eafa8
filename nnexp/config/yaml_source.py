"""Safe loading of YAML files for Hydra: each file is checked first, because it may come from an untrusted source.

A file must be a mapping of bounded size, also after its aliases are expanded, and may set no key of Hydra's own except
the sweep of an experiment.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.plugins.config_source import ConfigResult
from omegaconf import Container, OmegaConf

from nnexp.base import ConfigError, shorten, suggestion

MAX_BYTES = 100_000
MAX_VALUES = 20_000
MAX_DEPTH = 30  # of nested mappings and lists
SWEEP_SYNTAX = "hydra: {sweeper: {params: {KEY: 'A,B'}}}"


class ConfigFile(FileConfigSource):
    """Hydra's file source with these checks, under its own scheme so that Hydra's own source stays unchanged."""

    @staticmethod
    def scheme() -> str:
        """Return the scheme of search paths that this source serves."""
        return "nnexp"

    def load_config(self, config_path: str) -> ConfigResult:
        """Return the checked content of one file. Raises ConfigError, naming the file, for any problem with it."""
        path = Path(self.path, self._normalize_file_name(config_path))
        try:
            text = _read(path)
            check_size(text)
            config = OmegaConf.load(io.StringIO(text))
            plain = plain_values(config, resolve=False)
            _check_values(plain)
            _check_hydra(plain)
            header = self._get_header_dict(text[:512])
        except Exception as error:  # yaml, omegaconf and builtin types raise unrelated exceptions
            raise ConfigError(f"{path}: {one_line(error)}") from None
        return ConfigResult(provider=self.provider, path=f"{self.scheme()}://{self.path}", config=config, header=header)


def one_line(error: BaseException) -> str:
    """Return the essential part of an error message of Hydra, OmegaConf or PyYAML on one line; never empty."""
    if isinstance(error, RecursionError):
        return "it refers to itself, or is nested too deeply."
    text = str(error).split("Config search path")[0].split("See https://")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip(" ^")]
    lines = [line for line in lines if line != "full_key:" and not line.startswith(("object_type=", "reference_type="))]
    if "@experiment." in text:
        lines.append("An experiment needs '# @package _global_' as its first line.")
    return shorten(" ".join(lines), 1000) or type(error).__name__


def plain_values(config: Container, *, resolve: bool) -> dict[str, Any]:
    """Return an OmegaConf container as plain dictionaries and lists.

    Args:
        config: a mapping.
        resolve: replace interpolations by their values.
    """
    plain = OmegaConf.to_container(config, resolve=resolve)
    assert isinstance(plain, dict)
    return cast("dict[str, Any]", plain)


def _read(path: Path) -> str:
    with open(path, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ConfigError(f"a config has at most {MAX_BYTES} bytes; this file has more.")
    return content.decode("utf-8")


def check_size(text: str) -> None:
    """Raise ConfigError where YAML text is not a mapping, or exceeds the limits once its aliases are expanded.

    Works on the parser's event stream: nothing is built, and depth uses no stack.
    """
    sizes: dict[str | None, int] = {}  # values below each anchor, once its node is complete
    opened: list[tuple[str | None, int]] = []
    count = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.NodeEvent) and not opened and not isinstance(event, yaml.MappingStartEvent):
            raise ConfigError("a config must be a mapping, with KEY: VALUE on each line.")
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, count))
            sizes.pop(event.anchor, None)
            count += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, start = opened.pop()
            sizes[anchor] = count - start
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ConfigError(f"*{event.anchor}: undefined or recursive alias.")
            count += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            sizes[event.anchor] = 1
            count += 1
        if count > MAX_VALUES or len(opened) > MAX_DEPTH:
            raise ConfigError(
                f"a config has at most {MAX_VALUES} values, {MAX_DEPTH} deep, with aliases expanded; this has more."
            )


def _check_values(node: Any, prefix: str = "") -> None:
    """Raise ConfigError for keys that are not text, and for integers too long to be printed."""
    if isinstance(node, dict):
        for key, value in node.items():
            if not isinstance(key, str):
                raise ConfigError(
                    f"{prefix}{shorten(str(key))}: a key must be text; YAML reads another type here. Remove it."
                )
            _check_values(value, f"{prefix}{key}.")
    elif isinstance(node, list):
        for item in node:
            _check_values(item, prefix)
    elif isinstance(node, int):
        try:
            str(node)
        except ValueError:
            raise ConfigError(f"{prefix[:-1]}: an integer with more digits than Python can print.") from None


def _check_hydra(config: dict[str, Any]) -> None:
    """Raise ConfigError for keys of Hydra's own, except the sweep of an experiment."""
    node, path = config.get("hydra", {}), "hydra"
    for allowed in ("sweeper", "params"):
        if not isinstance(node, dict):
            raise ConfigError(f"{path}: write {SWEEP_SYNTAX}, or leave it out.")
        for key in node:
            if key != allowed:
                advice = (
                    f"Only {SWEEP_SYNTAX} is allowed; --config-dir adds a folder of configs, runs: sets their place"
                )
                raise ConfigError(f"{path}.{key}: there is no such key.{suggestion(key, [allowed])} {advice}.")
        if allowed not in node:
            return
        node, path = node[allowed], f"{path}.{allowed}"
    if not isinstance(node, dict):
        raise ConfigError(f"{path}: write {SWEEP_SYNTAX}, or leave it out.")
