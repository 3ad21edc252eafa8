"""The text of `nnexp --help`: usage, verbs, plugins and keys; or the keys of the named plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nnexp.base import ConfigError
from nnexp.commands.arguments import parser
from nnexp.commands.plugins import details, find_plugins
from nnexp.config import format_value, job_options_schema, sweep_options_schema
from nnexp.registry import KINDS, PARTS, Parameter, Registry, conf_dir


def help_text(registry: Registry, chosen: Sequence[str], verbs: Mapping[str, str]) -> str:
    """Return the help of the chosen plugins, or of the whole command where none is chosen.

    Args:
        registry: the plugins.
        chosen: plugins as `KIND=NAME`, such as `model=lstm`.
        verbs: a description for each verb.

    Raises:
        ConfigError: where there is no such plugin.
    """
    names = [text for text in chosen if text.partition("=")[0] in KINDS]
    if others := [text for text in chosen if text not in names]:
        raise ConfigError(f"--help {others[0]}: give plugins as KIND=NAME, such as model=lstm.")
    if names:
        return "\n\n".join(details(plugin) for name in names for plugin in find_plugins(registry, name))
    usage = parser().format_help().replace("usage: ", "usage:\n").rstrip()
    return "\n".join([usage, "", *_verbs(verbs), "", *_choices(registry), "", *_keys()])


def _verbs(verbs: Mapping[str, str]) -> list[str]:
    return ["verbs:", *(f"  {name:<10}{text}" for name, text in verbs.items())]


def _choices(registry: Registry) -> list[str]:
    experiments = sorted(path.stem for path in (conf_dir() / "experiment").glob("*.yaml"))
    return [
        "choices:",
        *(f"  {kind}={'|'.join(registry.names(kind))}" for kind in PARTS),
        f"  probe=[{','.join(registry.names('probe'))}]",
        "    several; default: all probes for one job, none for a sweep",
        f"  experiment={'|'.join(experiments)}",
    ]


def _keys() -> list[str]:
    return [
        "keys of every job:",
        *_key_lines(job_options_schema(), width=22),
        "",
        "keys of a sweep:",
        *_key_lines(sweep_options_schema(), width=26),
    ]


def _key_lines(schema: Mapping[str, Parameter], width: int) -> list[str]:
    texts = {f"{name}={format_value(p.default)}": f"{p.help} ({p.allowed})" for name, p in schema.items()}
    return [f"  {key:<{width}}{text}" for key, text in texts.items()]
