"""The typed job: every value is checked against the schema of its plugin, whether typed or read from a file."""

from __future__ import annotations

import ast
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from nnexp.base import ConfigError, did_you_mean, short_repr, shorten
from nnexp.registry import PARTS, Option, Parameter, Plugin, Range, Registry, SignatureReader, argument_docs, with_docs

PROBE = "probe"
GROUPS = (*PARTS, "experiment")  # Hydra's config groups of which exactly one option is chosen
SEED_OPTION = Option(int, range=Range(min=0))
DATASET_SEED = Parameter("seed", (SEED_OPTION,), 0, per_lane=True, help="seed of the data")
OPTIONAL_SEED = Parameter("seed", (SEED_OPTION, Option(type(None))), None, per_lane=True)
SEEDS = {
    "dataset": DATASET_SEED,
    "model": replace(OPTIONAL_SEED, help="seed of the initial weights; null uses the job's seed"),
    "trainer": replace(OPTIONAL_SEED, help="seed of the batch order; null uses the job's seed"),
}


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The keys of a job that belong to no plugin.

    Args:
        seed: seed of initial weights and batch order; `model.seed` and `trainer.seed` override it.
        device: where to train; auto uses cuda or mps where available.
        precision: bits of floating-point numbers; bf16 keeps 32-bit weights and uses autocast to bfloat16.
        runs: folder of the run directories.
        checkpoint_every: updates between checkpoints; null is about every ten seconds. Does not change results.
        stack: train jobs of a sweep that differ only in numbers as one stack of models; trained alone, rounding
            differs.
    """

    seed: Annotated[int, Range(min=0)] = 0
    device: Literal["cpu", "cuda", "mps", "auto"] = "cpu"
    precision: Literal[32, 64, "bf16"] = 32
    runs: str = "runs"
    checkpoint_every: Annotated[int, Range(min=1)] | None = None
    stack: bool = True


@cache
def job_options_schema() -> dict[str, Parameter]:
    """Return the schema of `JobOptions`, read from this file's source as a plugin's is."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    parameters = SignatureReader(tree, "nnexp/config/job.py").parameters("JobOptions")[1]
    return with_docs(parameters, argument_docs(JobOptions.__doc__ or ""))


@dataclass(frozen=True)
class PluginConfig:
    """A chosen plugin with its configuration.

    Args:
        kind: dataset, model, trainer or probe.
        name: the plugin's name.
        values: a value for every parameter.
        seed: the resolved seed, never None.
    """

    kind: str
    name: str
    values: dict[str, Any]
    seed: int


@dataclass(frozen=True)
class Job:
    """One fully composed, typed configuration. It was checked when it was made; later code relies on that.

    Args:
        dataset: the dataset and its values; likewise `model` and `trainer`.
        options: the keys that belong to no plugin.
        probes: the chosen probes; they never affect training.
        experiment: name of the experiment, and of the folder of its runs.
        overrides: `KEY=VALUE` texts that compose the same job again, without those of probes.
        label: the changed values, as they appear in the run directory's name.
    """

    dataset: PluginConfig
    model: PluginConfig
    trainer: PluginConfig
    options: JobOptions
    probes: tuple[PluginConfig, ...] = ()
    experiment: str = "default"
    overrides: tuple[str, ...] = ()
    label: str = "default"

    @property
    def parts(self) -> tuple[PluginConfig, ...]:
        """Dataset, model and trainer: everything that affects training."""
        return (self.dataset, self.model, self.trainer)

    def plain(self) -> dict[str, Any]:
        """Return the job as nested dictionaries of plain values, from which `make_job` makes the same job again."""
        parts = {c.kind: {"name": c.name, **c.values, "seed": c.seed} for c in self.parts}
        return {**parts, PROBE: {c.name: dict(c.values) for c in self.probes}, **asdict(self.options)}

    def flat(self) -> dict[str, Any]:
        """Return the job's values by dotted key, without probes; a plugin's name is stored under its kind."""
        flat: dict[str, Any] = {}
        for choice in self.parts:
            flat[choice.kind] = choice.name
            flat |= {f"{choice.kind}.{key}": value for key, value in choice.values.items()}
            flat[f"{choice.kind}.seed"] = choice.seed
        return flat | asdict(self.options)


def format_value(value: Any) -> str:
    """Return a value as short text for labels and tables.

    >>> format_value(3.0), format_value(None), format_value([1, 0, 1])
    ('3', 'null', '1_0_1')
    """
    if isinstance(value, list | tuple):
        return "_".join(map(format_value, value))
    if isinstance(value, float):
        return f"{value:g}".replace("+", "")
    return "null" if value is None else str(value)


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
        else did_you_mean(key, keys) or did_you_mean(prefix, [*GROUPS, *keys])
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
    guess = did_you_mean(name, keys).replace("mean '", f"mean '{prefix}.")
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
            f"{key}: {error}.{did_you_mean(text, parameter.text_choices)}{_quoting(parameter, value)}"
        ) from None


def _quoting(parameter: Parameter, value: Any) -> str:
    """Return the advice to quote a value that was read as another type than text, where text is allowed."""
    is_text = any(option.type is str and not option.choices for option in parameter.options)
    if isinstance(value, str) or not (is_text or parameter.misread_choices(value)):
        return ""
    return """ Quote it if text is meant. In a shell: KEY="'TEXT'"."""


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
