"""The files that Hydra composes: each is checked before it is read, for it may come from anyone.

A file has a bounded size with its aliases written out, is a mapping, and tells Hydra nothing but an experiment's sweep.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.plugins.config_source import ConfigResult
from omegaconf import Container, OmegaConf

from nnexp.base import ConfigError, did_you_mean, shorten

LARGEST = 100_000  # bytes
MOST = 20_000  # values
DEEPEST = 30  # mappings and lists within each other
SWEEP = "hydra: {sweeper: {params: {KEY: 'A,B'}}}"


class ConfigFile(FileConfigSource):
    """Hydra's source of files, with these checks. A scheme of its own leaves Hydra in other programs as it is."""

    @staticmethod
    def scheme() -> str:
        return "nnexp"

    def load_config(self, config_path: str) -> ConfigResult:
        """One file. Raises ConfigError, naming it, whatever is wrong with it."""
        path = Path(self.path, self._normalize_file_name(config_path))
        try:
            text = _read(path)
            check_size(text)
            config = OmegaConf.load(io.StringIO(text))
            plain = plain_values(config, resolve=False)
            _check_values(plain)
            _check_hydra(plain)
            header = self._get_header_dict(text[:512])
        except Exception as error:  # YAML, OmegaConf and Python's own types have each their errors
            raise ConfigError(f"{path}: {one_line(error)}") from None
        return ConfigResult(provider=self.provider, path=f"{self.scheme()}://{self.path}", config=config, header=header)


def one_line(error: BaseException) -> str:
    """The part of a message of Hydra, OmegaConf or YAML that says what is wrong, on one line; never empty."""
    if isinstance(error, RecursionError):
        return "it refers to itself, or is nested too deeply."
    text = str(error).split("Config search path")[0].split("See https://")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip(" ^")]
    lines = [line for line in lines if line != "full_key:" and not line.startswith(("object_type=", "reference_type="))]
    if "@experiment." in text:
        lines.append("An experiment needs '# @package _global_' as its first line.")
    return shorten(" ".join(lines), 1000) or type(error).__name__


def plain_values(config: Container, *, resolve: bool) -> dict[str, Any]:
    """A config of OmegaConf's as plain dictionaries."""
    plain = OmegaConf.to_container(config, resolve=resolve)
    assert isinstance(plain, dict)
    return cast("dict[str, Any]", plain)


def _read(path: Path) -> str:
    with open(path, "rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ConfigError(f"a config has at most {LARGEST} bytes, and this file has more.")
    return content.decode("utf-8")


def check_size(text: str) -> None:
    """Raises ConfigError where the file is no mapping, or is deep or large when its aliases are written out.

    The parser's events come one after another, so that nothing is built and depth costs no stack.
    """
    sizes: dict[str | None, int] = {}  # of what has an anchor and is complete
    opened: list[tuple[str | None, int]] = []
    count = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.NodeEvent) and not opened and not isinstance(event, yaml.MappingStartEvent):
            raise ConfigError("a config is a mapping, KEY: VALUE on each line, and this file is none.")
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, count))
            sizes.pop(event.anchor, None)
            count += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, start = opened.pop()
            sizes[anchor] = count - start
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ConfigError(f"*{event.anchor} stands for nothing, or for what it is itself a part of.")
            count += sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            sizes[event.anchor] = 1
            count += 1
        if count > MOST or len(opened) > DEEPEST:
            raise ConfigError(
                f"a config has at most {MOST} values, {DEEPEST} deep, aliases written out; this has more."
            )


def _check_values(node: Any, place: str = "") -> None:
    """Refuse keys that are no text and integers that Python cannot write again. Raises ConfigError."""
    if isinstance(node, dict):
        for key, value in node.items():
            if not isinstance(key, str):
                raise ConfigError(
                    f"{place}{shorten(str(key))}: a key is text, and YAML reads another value here. Remove it."
                )
            _check_values(value, f"{place}{key}.")
    elif isinstance(node, list):
        for item in node:
            _check_values(item, place)
    elif isinstance(node, int):
        try:
            str(node)
        except ValueError:
            raise ConfigError(f"{place[:-1]}: an integer of more digits than Python writes.") from None


def _check_hydra(config: dict[str, Any]) -> None:
    """Refuse all keys of Hydra's own but the sweep of an experiment. Raises ConfigError."""
    node, place = config.get("hydra", {}), "hydra"
    for only in ("sweeper", "params"):
        if not isinstance(node, dict):
            raise ConfigError(f"{place}: write {SWEEP}, or leave it out.")
        for key in node:
            if key != only:
                advice = f"Only {SWEEP} is known; --config-dir adds a folder of configs, runs: says where runs go"
                raise ConfigError(f"{place}.{key}: there is no such key.{did_you_mean(key, [only])} {advice}.")
        if only not in node:
            return
        node, place = node[only], f"{place}.{only}"
    if not isinstance(node, dict):
        raise ConfigError(f"{place}: write {SWEEP}, or leave it out.")
