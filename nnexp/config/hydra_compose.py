"""Hydra's part: each combination of choices (plugins, experiment) composed once, and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_search_path import SearchPathElement
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.plugins import Plugins
from hydra.errors import MissingConfigException

from nnexp.base import ConfigError, did_you_mean, shorten
from nnexp.config.job import GROUPS, PROBE, job_options_schema, plugin_keys
from nnexp.config.sweep_options import nested, sweep_options_schema, take_sweep_options
from nnexp.config.yaml_source import ConfigFile, one_line, plain_values
from nnexp.registry import ALL, DEFAULT, KINDS, Registry, conf_dir

Choices = tuple[tuple[str, str | None], ...]


class ComposedBase(NamedTuple):
    """A combination of choices, composed: plain unresolved values of its jobs, the parameters of its sweep, and the
    keys of the command that its files give.
    """

    config: dict[str, Any]
    params: dict[str, Any]
    command: dict[str, Any]


def store_schemas(registry: Registry) -> None:
    """Give Hydra a config for every plugin and for the settings."""
    store = ConfigStore.instance()
    for kind in KINDS:
        store.repo.pop(kind, None)
        for name in registry.names(kind):
            parameters = plugin_keys(registry.get(kind, name))
            values = {k: p.default for k, p in parameters.items()}
            if kind == PROBE:  # of which there may be several
                store.store(name, values, group=kind, package=f"{kind}.{name}")
            else:
                store.store(name, {"name": name} | values, group=kind)
    for name in (ALL, DEFAULT):
        store.store(name, {}, group=PROBE, package=f"{PROBE}.{name}")
    settings = {key: parameter.default for key, parameter in job_options_schema().items()}
    store.store("settings", settings | nested(sweep_options_schema()))


@contextmanager
def config_errors(where: str) -> Iterator[None]:
    """Whatever goes wrong while Hydra or OmegaConf works is a ConfigError of one line."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # where a config surprises them they raise what Python does
        raise ConfigError(f"{where}: {one_line(error)}") from error


class Composer:
    """Composes each combination of choices once, and remembers it.

    Args:
        registry: the plugins that can be chosen.
        config_name: the primary config.
        searchpath: folders of configs, looked into before the project's own.
    """

    def __init__(self, registry: Registry, config_name: str, searchpath: tuple[str, ...]) -> None:
        self.registry = registry
        self.config_name = config_name
        self.folders = (*searchpath, str(conf_dir().resolve()))
        self.composed: dict[Choices, ComposedBase] = {}
        self.known: dict[str, list[str]] = {}

    @contextmanager
    def open(self) -> Iterator[Composer]:
        store_schemas(self.registry)
        with initialize_config_dir(self.folders[-1], version_base="1.3"):
            loader = GlobalHydra.instance().config_loader()
            assert isinstance(loader, ConfigLoaderImpl)
            Plugins.instance().register(ConfigFile)
            search = loader.get_search_path()
            places = search.get_path()
            at = [place.provider for place in places].index("main")
            places[at : at + 1] = [SearchPathElement("main", f"{ConfigFile.scheme()}://{f}") for f in self.folders]
            loader.repository.initialize_sources(search)
            yield self

    def options(self, group: str) -> list[str]:
        """Names that a choice may take: plugins, and presets in conf/<group>/."""
        if group not in self.known:  # Hydra reads and copies all its configs to answer
            loader = GlobalHydra.instance().config_loader()
            with config_errors(group):
                found = loader.get_group_options(group, config_name=self.config_name)
            self.known[group] = sorted({*found, *(self.registry.names(group) if group in KINDS else [])})
        return self.known[group]

    def base(self, choices: Choices) -> ComposedBase:
        """A combination of choices."""
        if choices not in self.composed:
            where = " ".join(f"{group}={name}" for group, name in choices) or f"config '{self.config_name}'"
            with config_errors(where):
                self.composed[choices] = self._compose(choices, where)
        return self.composed[choices]

    def _compose(self, choices: Choices, where: str) -> ComposedBase:
        overrides = [f"~{group}" if name is None else f"{group}={quoted(name)}" for group, name in choices]
        try:
            config = compose(self.config_name, overrides, return_hydra_config=True)
        except MissingConfigException as error:
            self._explain(error, where)
            raise
        HydraConfig.instance().cfg = None
        params = plain_values(config.hydra.sweeper, resolve=True).get("params") or {}
        plain = plain_values(config, resolve=False)
        del plain["hydra"]
        if "experiment" in plain:
            advice = "It is chosen on the command line; a file of one begins with '# @package _global_'"
            raise ConfigError(f"{where}: experiment: a file cannot hold this key. {advice}.")
        return ComposedBase(plain, params, take_sweep_options(plain))

    def _explain(self, error: MissingConfigException, where: str) -> None:
        """Raise a ConfigError with the nearest name where a file chooses what there is not."""
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        if group in (*GROUPS, PROBE):
            try:
                self.check_choice(group, name)
            except ConfigError as reason:
                raise ConfigError(f"{where}: {reason}") from None

    def check_choice(self, group: str, name: Any) -> None:
        """Raises ConfigError, with the nearest name, where there is no such choice."""
        if group == "experiment" and name is None:
            return
        options = self.options(group)
        if name not in options:
            if (group, str(name)) in self.registry.broken:
                self.registry.get(group, str(name))
            known = ", ".join(options) or "none"
            asked = "null" if name is None else str(name)
            message = (
                f"{group}={shorten(asked)}: there is no such {group}.{did_you_mean(asked, options)} Available: {known}."
            )
            raise ConfigError(message)


def quoted(text: str) -> str:
    """The text as Hydra reads it whatever it holds."""
    return QuotedString(text, Quote.single).with_quotes()
