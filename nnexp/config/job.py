"""The typed job: every value checked against the schema of what it configures, whoever wrote it."""

from __future__ import annotations

import ast
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from nnexp.base import ConfigError, did_you_mean, short_repr, shorten
from nnexp.registry import PARTS, Option, Parameter, Plugin, Range, Registry, SignatureReader, argument_docs, with_docs

PROBE = "probe"
GROUPS = (*PARTS, "experiment")  # what is chosen by name, one of each
SEED_OPTION = Option(int, range=Range(min=0))
DATA_SEED = Parameter("seed", (SEED_OPTION,), 0, per_lane=True, help="what the data are")
OWN_SEED = Parameter("seed", (SEED_OPTION, Option(type(None))), None, per_lane=True)
SEEDS = {
    "dataset": DATA_SEED,
    "model": replace(OWN_SEED, help="of the initial weights; null takes the job's seed"),
    "trainer": replace(OWN_SEED, help="of the batch order; null takes the job's seed"),
}


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The keys of a job that belong to no plugin.

    Args:
        seed: initial weights and batch order; `model.seed` and `trainer.seed` set one of them apart.
        device: where to train; auto is cuda where there is one.
        precision: bits of a number; bf16 computes in bfloat16 what is safe, on weights of 32 bits.
        runs: folder of the run directories.
        checkpoint_every: updates between checkpoints; null is about every ten seconds. Changes no number.
        stack: train jobs of a sweep that differ in nothing but numbers as one stack of models; alone, a job's last
            digits are others.
    """

    seed: Annotated[int, Range(min=0)] = 0
    device: Literal["cpu", "cuda", "mps", "auto"] = "cpu"
    precision: Literal[32, 64, "bf16"] = 32
    runs: str = "runs"
    checkpoint_every: Annotated[int, Range(min=1)] | None = None
    stack: bool = True


@cache
def job_options_schema() -> dict[str, Parameter]:
    """The schema of `JobOptions`, read as a plugin's is."""
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    parameters = SignatureReader(tree, "nnexp/config/job.py").parameters("JobOptions")[1]
    return with_docs(parameters, argument_docs(JobOptions.__doc__ or ""))


@dataclass(frozen=True)
class PluginConfig:
    """A plugin chosen, and the values of all its parameters. `seed` is never null."""

    kind: str
    name: str
    values: dict[str, Any]
    seed: int


@dataclass(frozen=True)
class Job:
    """One fully composed, typed configuration: it can be trained, and nothing after this checks it again."""

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
        """What makes the numbers: no probe does."""
        return (self.dataset, self.model, self.trainer)

    def plain(self) -> dict[str, Any]:
        """Nested dictionaries of plain values: enough to run the job again."""
        parts = {c.kind: {"name": c.name, **c.values, "seed": c.seed} for c in self.parts}
        return {**parts, PROBE: {c.name: dict(c.values) for c in self.probes}, **asdict(self.options)}

    def flat(self) -> dict[str, Any]:
        """The same with dotted keys, without probes; a plugin's name stands under its kind."""
        flat: dict[str, Any] = {}
        for choice in self.parts:
            flat[choice.kind] = choice.name
            flat |= {f"{choice.kind}.{key}": value for key, value in choice.values.items()}
            flat[f"{choice.kind}.seed"] = choice.seed
        return flat | asdict(self.options)


def format_value(value: Any) -> str:
    """A value as a person writes it: 3 for 3.0, null for None, 1_0_1 for a list."""
    if isinstance(value, list | tuple):
        return "_".join(map(format_value, value))
    if isinstance(value, float):
        return f"{value:g}".replace("+", "")
    return "null" if value is None else str(value)


def plugin_keys(plugin: Plugin) -> dict[str, Parameter]:
    """A plugin's own parameters and the seed that the harness adds to each but a probe."""
    return {**plugin.parameters, **({"seed": SEEDS[plugin.kind]} if plugin.kind in SEEDS else {})}


def chosen_plugins(config: dict[str, Any], registry: Registry) -> dict[str, Plugin]:
    """The plugin chosen for each part of a job, and each probe, by the keys under which their own stand.

    Raises ConfigError where a part is missing.
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


def known_keys(plugins: dict[str, Plugin]) -> dict[str, Parameter]:
    """Every key that can be set, dotted, for this combination of plugins."""
    keys = dict(job_options_schema())
    for kind, plugin in plugins.items():
        keys |= {f"{kind}.{name}": parameter for name, parameter in plugin_keys(plugin).items()}
    return keys


def unknown_key(key: str, plugins: dict[str, Plugin], registry: Registry) -> ConfigError:
    """The error for a key that is not known, with the nearest that is."""
    keys, key = known_keys(plugins), shorten(key) or "''"
    kind, _, name = key.partition(".")
    if kind == PROBE:
        kind, _, name = key.rpartition(".")
        if key in plugins:
            own = ", ".join(f"{key}.{name}" for name in plugins[key].parameters)
            return ConfigError(f"{key} holds the keys of a probe, and takes no value. Give one of {own}.")
        if kind not in plugins:
            asked, chosen_ones = key.split(".")[1], ", ".join(k.partition(".")[2] for k in plugins if PROBE in k)
            registry.get(PROBE, asked)
            advice = f"Add {PROBE}=[{', '.join(filter(None, (chosen_ones, asked)))}]"
            return ConfigError(f"{key}: probe '{asked}' is not chosen. {advice}.")
    if kind in plugins and name == "name":
        return ConfigError(f"{key}: choose a plugin with {kind}=NAME, one of {', '.join(registry.names(kind))}.")
    if kind in plugins and name:
        return ConfigError(_no_such_key(key, kind, name, plugins[kind], registry))
    if kind in plugins:
        return ConfigError(f"{key} takes the name of a plugin, one of {', '.join(registry.names(kind))}.")
    last = key.rpartition(".")[2]
    same_name = [known for known in keys if known.rpartition(".")[2] == last and known != key]
    guess = (
        f" Did you mean '{same_name[0]}'?"
        if same_name
        else did_you_mean(key, keys) or did_you_mean(kind, [*GROUPS, *keys])
    )
    top = ", ".join([*PARTS, PROBE, "experiment", *job_options_schema()])
    return ConfigError(f"{key}: there is no such key.{guess} At the top are: {top}.")


def _no_such_key(key: str, kind: str, name: str, plugin: Plugin, registry: Registry) -> str:
    own = plugin_keys(plugin)
    message = f"{key}: {plugin.kind} '{plugin.name}' has no key '{name}'."
    guess = did_you_mean(name, own).replace("mean '", f"mean '{kind}.")
    others = registry.names_with_parameter(kind, name) if kind in PARTS else []
    if not guess and others:
        guess = f" A key of {', '.join(others)}: add {kind}={others[0]}."
    elif not guess:
        root = [k for k in job_options_schema() if k == name]
        guess = f" Did you mean '{root[0]}'?" if root else ""
    return f"{message}{guess} It has: {', '.join(sorted(own))}."


def check_value(key: str, parameter: Parameter, value: Any) -> Any:
    """The value in the parameter's own type. Raises ConfigError naming key, value and what is allowed."""
    try:
        return parameter.check(value)
    except ValueError as error:
        text = value if isinstance(value, str) else short_repr(value)
        raise ConfigError(
            f"{key}: {error}.{did_you_mean(text, parameter.text_choices)}{_quoting(parameter, value)}"
        ) from None


def _quoting(parameter: Parameter, value: Any) -> str:
    """How to give text that was read as another value, where text is allowed."""
    is_text = any(option.type is str and not option.choices for option in parameter.options)
    if isinstance(value, str) or not (is_text or parameter.misread_choices(value)):
        return ""
    return """ Quote it if text is meant. In a shell: KEY="'TEXT'"."""


def make_job(config: dict[str, Any], registry: Registry, **facts: Any) -> Job:
    """A job from composed, resolved, plain values. Raises ConfigError at the first key or value that is wrong."""
    refuse_code(config)
    plugins = chosen_plugins(config, registry)
    keys = known_keys(plugins)
    values = {key: parameter.default for key, parameter in keys.items()}
    for key, value in _flatten(config).items():
        if key not in keys:
            raise unknown_key(key, plugins, registry)
        values[key] = check_value(key, keys[key], value)
    options = JobOptions(**{name: values[name] for name in job_options_schema()})
    parts = {place: _choice(place, plugin, values, options.seed) for place, plugin in plugins.items()}
    probes = tuple(choice for choice in parts.values() if choice.kind == PROBE)
    return Job(parts["dataset"], parts["model"], parts["trainer"], options, probes, **facts)


def _choice(place: str, plugin: Plugin, values: dict[str, Any], seed: int) -> PluginConfig:
    own_seed = values.get(f"{place}.seed")
    own = {name: values[f"{place}.{name}"] for name in plugin.parameters}
    return PluginConfig(plugin.kind, plugin.name, own, seed if own_seed is None else own_seed)


def _flatten(config: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if key in PARTS:
            flat |= {f"{key}.{name}": item for name, item in value.items() if name != "name"}
        elif key == PROBE:
            flat |= {
                f"{key}.{probe}.{name}": item for probe, own in (value or {}).items() for name, item in own.items()
            }
        else:
            flat[str(key)] = value
    return flat


def refuse_code(node: Any, path: str = "") -> None:
    """Refuse keys by which other programs let a config name code. Raises ConfigError."""
    if isinstance(node, dict):
        for key, value in node.items():
            if isinstance(key, str) and key.startswith("_") and key.endswith("_"):
                where = f"{path}{key}"
                raise ConfigError(f"{where}: a config names plugins and gives values, never code. Remove this key.")
            refuse_code(value, f"{path}{key}.")
    elif isinstance(node, list):
        for item in node:
            refuse_code(item, path)
