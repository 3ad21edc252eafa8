"""Compose configurations with Hydra: each combination of choices (plugins, experiment) once, then cached."""

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

from nnexp.base import ConfigError, shorten, suggestion
from nnexp.config.job import GROUPS, PROBE, job_options_schema
from nnexp.config.job_keys import plugin_keys
from nnexp.config.sweep_options import nested, sweep_options_schema, take_sweep_options
from nnexp.config.yaml_source import ConfigFile, one_line, plain_values
from nnexp.registry import ALL, DEFAULT, KINDS, Registry, conf_dir

Choices = tuple[tuple[str, str | None], ...]


class ComposedBase(NamedTuple):
    """The composed configuration of one combination of choices.

    Args:
        config: nested plain values, interpolations unresolved.
        params: `hydra.sweeper.params` of the experiment: values by key, as overrides.
        sweep_options: `rerun` and `sweep.*` as set in files, by command-line key.
    """

    config: dict[str, Any]
    params: dict[str, Any]
    sweep_options: dict[str, Any]


def store_schemas(registry: Registry) -> None:
    """Register a config with the defaults of every plugin, and of the job's and sweep's options, in Hydra's store."""
    store = ConfigStore.instance()
    for kind in KINDS:
        store.repo.pop(kind, None)
        for name in registry.names(kind):
            parameters = plugin_keys(registry.get(kind, name))
            values = {k: p.default for k, p in parameters.items()}
            if kind == PROBE:  # a job may have several
                store.store(name, values, group=kind, package=f"{kind}.{name}")
            else:
                store.store(name, {"name": name} | values, group=kind)
    for name in (ALL, DEFAULT):
        store.store(name, {}, group=PROBE, package=f"{PROBE}.{name}")
    settings = {key: parameter.default for key, parameter in job_options_schema().items()}
    store.store("settings", settings | nested(sweep_options_schema()))


@contextmanager
def config_errors(where: str) -> Iterator[None]:
    """Convert every exception of the block to a ConfigError of one line, prefixed with `where`."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # Hydra and OmegaConf raise builtin exceptions for unexpected configs
        raise ConfigError(f"{where}: {one_line(error)}") from error


class Composer:
    """Composes each combination of choices once and caches it.

    Args:
        registry: the plugins that can be chosen.
        config_name: the primary config.
        searchpath: folders of configs, searched before the project's own.

    >>> with Composer(discover(), "config", ()).open() as composer:
    ...     composer.compose((("model", "gru"),)).config["model"]["name"]
    'gru'
    """

    def __init__(self, registry: Registry, config_name: str, searchpath: tuple[str, ...]) -> None:
        self.registry = registry
        self.config_name = config_name
        self.folders = (*searchpath, str(conf_dir().resolve()))
        self._schemas: dict[str, Any] = {}
        self._composed: dict[Choices, ComposedBase] = {}
        self._options: dict[str, list[str]] = {}

    @contextmanager
    def open(self) -> Iterator[Composer]:
        """Initialise Hydra with the search path and the plugins' schemas for the block."""
        stored = ConfigStore.instance().repo
        if not self._schemas:
            store_schemas(self.registry)
            self._schemas = {name: stored[name] for name in (*KINDS, "settings.yaml")}
        stored.update(self._schemas)  # another composer may have been open
        with initialize_config_dir(self.folders[-1], version_base="1.3"):
            loader = GlobalHydra.instance().config_loader()
            assert isinstance(loader, ConfigLoaderImpl)
            Plugins.instance().register(ConfigFile)
            search = loader.get_search_path()
            elements = search.get_path()
            main = [element.provider for element in elements].index("main")
            places = [f"{ConfigFile.scheme()}://{folder}" for folder in self.folders]
            elements[main : main + 1] = [SearchPathElement("main", place) for place in places]
            loader.repository.initialize_sources(search)
            yield self

    def options(self, group: str) -> list[str]:
        """Return the sorted names that a group can be set to: plugins, and presets in `conf/<group>/`."""
        if group not in self._options:
            loader = GlobalHydra.instance().config_loader()
            assert isinstance(loader, ConfigLoaderImpl)
            with config_errors(group):  # not of the loader, which would first read and copy all configs
                names = loader.repository.get_group_options(group)
            self._options[group] = sorted({*names, *(self.registry.names(group) if group in KINDS else [])})
        return self._options[group]

    def compose(self, choices: Choices) -> ComposedBase:
        """Return the composed configuration of a combination of choices.

        Raises ConfigError, naming the choices, where a file is invalid or chooses what does not exist.
        """
        if choices not in self._composed:
            where = " ".join(f"{group}={name}" for group, name in choices) or f"config '{self.config_name}'"
            with config_errors(where):
                self._composed[choices] = self._compose(choices, where)
        return self._composed[choices]

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
            advice = "Choose it on the command line; an experiment's file begins with '# @package _global_'"
            raise ConfigError(f"{where}: experiment: a file cannot hold this key. {advice}.")
        return ComposedBase(plain, params, take_sweep_options(plain))

    def _explain(self, error: MissingConfigException, where: str) -> None:
        """Raise ConfigError with the closest name where a file chooses an option that does not exist."""
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        if group in (*GROUPS, PROBE):
            try:
                self.check_choice(group, name)
            except ConfigError as reason:
                raise ConfigError(f"{where}: {reason}") from None

    def check_choice(self, group: str, name: Any) -> None:
        """Raise ConfigError, with the closest name, where a group has no option `name`."""
        if group == "experiment" and name is None:
            return
        options = self.options(group)
        if name not in options:
            if (group, str(name)) in self.registry.broken:
                self.registry.get(group, str(name))
            available = ", ".join(options) or "none"
            text = "null" if name is None else str(name)
            guess = suggestion(text, options)
            raise ConfigError(f"{group}={shorten(text)}: there is no such {group}.{guess} Available: {available}.")


def quoted(text: str) -> str:
    """Return the text quoted for Hydra's grammar, whatever characters it contains."""
    return QuotedString(text, Quote.single).with_quotes()
