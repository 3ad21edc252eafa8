"""Check a composed configuration against the schemas of its plugins, and return the typed job."""

from __future__ import annotations

from typing import Any

from nnexp.base import ConfigError
from nnexp.config.job import PROBE, Job, JobOptions, PluginConfig, job_options_schema
from nnexp.config.job_keys import check_value, chosen_plugins, unknown_key_error, valid_keys
from nnexp.registry import PARTS, Plugin, Registry


def make_job(config: dict[str, Any], registry: Registry, **metadata: Any) -> Job:
    """Return the job of a composed configuration of plain values without interpolations.

    Args:
        config: nested dictionaries, as `Job.plain` returns them; parameters that are missing get their defaults.
        registry: the plugins.
        metadata: `experiment`, `overrides` and `label` of the job.

    Raises:
        ConfigError: at the first invalid key or value.

    >>> parts = {"dataset": {"name": "moons"}, "model": {"name": "mlp"}, "trainer": {"name": "adam", "lr": 0.1}}
    >>> make_job(parts, discover()).trainer.values["lr"]
    0.1
    """
    refuse_code(config)
    plugins = chosen_plugins(config, registry)
    keys = valid_keys(plugins)
    values = {key: parameter.default for key, parameter in keys.items()}
    for key, value in _flatten(config).items():
        if key not in keys:
            raise unknown_key_error(key, plugins, registry)
        values[key] = check_value(key, keys[key], value)
    options = JobOptions(**{name: values[name] for name in job_options_schema()})
    configs = {prefix: _plugin_config(prefix, plugin, values, options.seed) for prefix, plugin in plugins.items()}
    probes = tuple(choice for choice in configs.values() if choice.kind == PROBE)
    return Job(configs["dataset"], configs["model"], configs["trainer"], options, probes, **metadata)


def _plugin_config(prefix: str, plugin: Plugin, values: dict[str, Any], job_seed: int) -> PluginConfig:
    seed = values.get(f"{prefix}.seed")
    parameters = {name: values[f"{prefix}.{name}"] for name in plugin.parameters}
    return PluginConfig(plugin.kind, plugin.name, parameters, job_seed if seed is None else seed)


def _flatten(config: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if key in PARTS:
            flat |= {f"{key}.{name}": item for name, item in value.items() if name != "name"}
        elif key == PROBE:
            flat |= {
                f"{key}.{probe}.{name}": item for probe, items in (value or {}).items() for name, item in items.items()
            }
        else:
            flat[str(key)] = value
    return flat


def refuse_code(node: Any, path: str = "") -> None:
    """Raise ConfigError for keys such as `_target_`, through which configs of other programs name code to run."""
    if isinstance(node, dict):
        for key, value in node.items():
            if isinstance(key, str) and key.startswith("_") and key.endswith("_"):
                where = f"{path}{key}"
                raise ConfigError(f"{where}: a config names plugins and gives values, never code. Remove this key.")
            refuse_code(value, f"{path}{key}.")
    elif isinstance(node, list):
        for item in node:
            refuse_code(item, path)
