"""Hydra's part: each combination of choices (plugins, experiment) composed once, and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from nnexp.config import parameters_of, settings_schema
from nnexp.errors import ConfigError, hint
from nnexp.registry import KINDS, Registry, conf_dir

GROUPS = (*KINDS, "experiment")


def store_schemas(registry: Registry) -> None:
    """Give Hydra a config for every plugin and for the settings."""
    store = ConfigStore.instance()
    for kind in KINDS:
        store.repo.pop(kind, None)
        for name in registry.names(kind):
            parameters = parameters_of(registry.get(kind, name))
            store.store(name, {"name": name} | {k: p.default for k, p in parameters.items()}, group=kind)
    store.store("settings", {key: parameter.default for key, parameter in settings_schema().items()})


class Composer:
    """Composes each combination of choices once, and remembers it."""

    def __init__(self, registry: Registry, config_name: str, searchpath: tuple[str, ...]) -> None:
        self.registry = registry
        self.config_name = config_name
        self.primary = str(conf_dir().resolve())
        for folder in searchpath:  # a primary config of the user's own comes before ours
            if Path(folder, f"{config_name}.yaml").is_file():
                searchpath, self.primary = (*searchpath, self.primary), folder
                break
        quoted = [QuotedString(path, Quote.single).with_quotes() for path in searchpath]
        self.searchpath = [f"hydra.searchpath=[{','.join(quoted)}]"] if quoted else []
        self.composed: dict[tuple[str, ...], tuple[dict[str, Any], dict[str, Any]]] = {}

    @contextmanager
    def open(self) -> Iterator[Composer]:
        store_schemas(self.registry)
        with initialize_config_dir(self.primary, version_base="1.3"):
            yield self

    def options(self, group: str) -> list[str]:
        """Names that a choice may take: plugins, and presets in conf/<group>/."""
        loader = GlobalHydra.instance().config_loader()
        found = loader.get_group_options(group, config_name=self.config_name, overrides=self.searchpath)
        return sorted({*found, *(self.registry.names(group) if group in KINDS else [])})

    def base(self, choices: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Plain unresolved values of a combination of choices, and the parameters of its sweep."""
        if choices not in self.composed:
            try:
                config = compose(self.config_name, [*choices, *self.searchpath], return_hydra_config=True)
            except YAMLError as error:
                raise ConfigError(" ".join(str(error).split())) from error
            except (HydraException, OmegaConfBaseException) as error:
                raise ConfigError(first_lines(error)) from error
            params = config.hydra.sweeper.get("params") or {}
            HydraConfig.instance().cfg = None
            plain = OmegaConf.to_container(config, resolve=False)
            assert isinstance(plain, dict)
            del plain["hydra"]
            self.composed[choices] = ({str(k): v for k, v in plain.items()}, dict(params))
        return self.composed[choices]

    def check_choice(self, group: str, name: Any) -> None:
        if group == "experiment" and name is None:
            return
        options = self.options(group)
        if name not in options:
            if (group, str(name)) in self.registry.broken:
                self.registry.get(group, str(name))
            known = ", ".join(options) or "none"
            message = f"{group}={name}: there is no such {group}.{hint(str(name), options)} There is: {known}."
            raise ConfigError(message)


def first_lines(error: Exception) -> str:
    """The part of a message of Hydra or OmegaConf that says what is wrong, on one line."""
    text = str(error).split("Config search path")[0].split("See https://")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip(" ^")]
    if "@experiment." in text:
        lines.append("An experiment needs '# @package _global_' as its first line.")
    return " ".join(lines)
