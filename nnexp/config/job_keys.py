"""The keys of a job: which are valid with the chosen plugins, checks of their values, errors for the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nnexp.base import ConfigError, short_repr, shorten, suggestion
from nnexp.config.job import GROUPS, PROBE, job_options_schema
from nnexp.registry import PARTS, Option, Parameter, Plugin, Range, Registry

SEED_OPTION = Option(int, range=Range(min=0))
DATASET_SEED = Parameter("seed", (SEED_OPTION,), 0, per_lane=True, help="seed of the data")
OPTIONAL_SEED = Parameter("seed", (SEED_OPTION, Option(type(None))), None, per_lane=True)
SEEDS = {
    "dataset": DATASET_SEED,
    "model": replace(OPTIONAL_SEED, help="seed of the initial weights; null uses the job's seed"),
    "trainer": replace(OPTIONAL_SEED, help="seed of the batch order; null uses the job's seed"),
}


def plugin_keys(plugin: Plugin) -> dict[str, Parameter]:
    """Return the parameters of a plugin, with the seed that the harness adds to every kind but probes."""
    return {**plugin.parameters, **({"seed": SEEDS[plugin.kind]} if plugin.kind in SEEDS else {})}


def chosen_plugins(config: dict[str, Any], registry: Registry) -> dict[str, Plugin]:
    """Return the chosen plugins by the prefix of their keys: `dataset`, `model`, `trainer`, `probe.<name>`.

    Raises ConfigError where a part is missing or there is no such plugin.
    """
    plugins = {}
    for kind in PARTS:
        node = config.get(kind)
        if not isinstance(node, dict) or not isinstance(node.get("name"), str):
            raise ConfigError(f"no {kind} is chosen. Add {kind}=NAME, one of {', '.join(registry.names(kind))}.")
        plugins[kind] = registry.get(kind, node["name"])
    probes = config.get(PROBE) or {}
    if not isinstance(probes, dict) or not all(isinstance(node, dict) for node in probes.values()):
        raise ConfigError(f"{PROBE}: choose probes by {PROBE}=[NAME,...], give their values as {PROBE}.NAME.KEY=VALUE.")
    return plugins | {f"{PROBE}.{name}": registry.get(PROBE, str(name)) for name in probes}


def valid_keys(plugins: dict[str, Plugin]) -> dict[str, Parameter]:
    """Return every dotted key that can be set with this combination of plugins (see `chosen_plugins`)."""
    keys = dict(job_options_schema())
    for prefix, plugin in plugins.items():
        keys |= {f"{prefix}.{name}": parameter for name, parameter in plugin_keys(plugin).items()}
    return keys


def unknown_key_error(key: str, plugins: dict[str, Plugin], registry: Registry) -> ConfigError:
    """Return the error for a key that does not exist; it names the closest valid key and what to do."""
    keys, key = valid_keys(plugins), shorten(key) or "''"
    prefix, _, name = key.partition(".")
    if prefix == PROBE:
        prefix, _, name = key.rpartition(".")
        if key in plugins or prefix not in plugins:
            return _probe_key_error(key, plugins, registry)
    if prefix in plugins and name == "name":
        return ConfigError(f"{key}: choose a plugin with {prefix}=NAME, one of {', '.join(registry.names(prefix))}.")
    if prefix in plugins and name:
        return _plugin_key_error(key, prefix, name, plugins[prefix], registry)
    if prefix in plugins:
        return ConfigError(f"{key} takes the name of a plugin, one of {', '.join(registry.names(prefix))}.")
    last = key.rpartition(".")[2]
    same_name = [valid for valid in keys if valid.rpartition(".")[2] == last and valid != key]
    guess = (
        f" Did you mean '{same_name[0]}'?"
        if same_name
        else suggestion(key, keys) or suggestion(prefix, [*GROUPS, *keys])
    )
    top_level = ", ".join([*PARTS, PROBE, "experiment", *job_options_schema()])
    return ConfigError(f"{key}: there is no such key.{guess} Top-level keys: {top_level}.")


def _probe_key_error(key: str, plugins: dict[str, Plugin], registry: Registry) -> ConfigError:
    """Return the error for a value given to a probe as a whole, or a key of a probe that is not chosen."""
    if key in plugins:
        keys = ", ".join(f"{key}.{name}" for name in plugins[key].parameters)
        return ConfigError(f"{key} is a group of keys and takes no value. Set one of {keys}.")
    probe, chosen = key.split(".")[1], [k.partition(".")[2] for k in plugins if PROBE in k]
    registry.get(PROBE, probe)
    return ConfigError(f"{key}: probe '{probe}' is not chosen. Add {PROBE}=[{', '.join([*chosen, probe])}].")


def _plugin_key_error(key: str, prefix: str, name: str, plugin: Plugin, registry: Registry) -> ConfigError:
    keys = plugin_keys(plugin)
    message = f"{key}: {plugin.kind} '{plugin.name}' has no key '{name}'."
    guess = suggestion(name, keys).replace("mean '", f"mean '{prefix}.")
    others = registry.names_with_parameter(prefix, name) if prefix in PARTS else []
    if not guess and others:
        guess = f" A key of {', '.join(others)}: add {prefix}={others[0]}."
    elif not guess and name in job_options_schema():
        guess = f" Did you mean '{name}'?"
    return ConfigError(f"{message}{guess} Available: {', '.join(sorted(keys))}.")


def check_value(key: str, parameter: Parameter, value: Any) -> Any:
    """Return the value converted to the parameter's type. Raises ConfigError naming key, value and what is allowed."""
    try:
        return parameter.check(value)
    except ValueError as error:
        text = value if isinstance(value, str) else short_repr(value)
        raise ConfigError(
            f"{key}: {error}.{suggestion(text, parameter.text_choices)}{_quoting(parameter, value)}"
        ) from None


def _quoting(parameter: Parameter, value: Any) -> str:
    """Return the advice to quote a value that was read as another type than text, where text is allowed."""
    is_text = any(option.type is str and not option.choices for option in parameter.options)
    if isinstance(value, str) or not (is_text or parameter.misread_choices(value)):
        return ""
    return """ Quote it if text is meant. In a shell: KEY="'TEXT'"."""
