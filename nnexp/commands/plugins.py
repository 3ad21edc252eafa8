"""List all plugins, or describe the named ones with their keys; imports no plugin."""

from __future__ import annotations

from collections.abc import Sequence

from nnexp.base import ConfigError, align, print_out, suggestion, visible
from nnexp.commands.arguments import Parser
from nnexp.config import PROBE, plugin_keys
from nnexp.registry import KINDS, Plugin, Registry, discover


def listing(registry: Registry) -> str:
    """Return a table of all plugins, followed by a line for each plugin file that cannot be used."""
    plugins = [registry.get(kind, name) for kind in KINDS for name in registry.names(kind)]
    lines = [align([["choice", "what it is"], *([choice_of(p), p.summary] for p in plugins)])]
    lines += [f"{b.kind}={b.name}: cannot be used: {b.reason}" for b in registry.broken.values()]
    return "\n".join(lines)


def choice_of(plugin: Plugin) -> str:
    """Return the override that chooses a plugin: `model=lstm`, `probe=[filters]`."""
    return f"{plugin.kind}=[{plugin.name}]" if plugin.kind == PROBE else f"{plugin.kind}={plugin.name}"


def details(plugin: Plugin) -> str:
    """Return a plugin's documentation and a table of its keys."""
    rows = [["key", "default", "allowed", "meaning"]]
    prefix = f"{plugin.kind}.{plugin.name}" if plugin.kind == PROBE else plugin.kind
    for name, parameter in plugin_keys(plugin).items():
        default = "null" if parameter.default is None else str(parameter.default)
        allowed = f"{parameter.allowed}; per lane" if parameter.per_lane or name == "seed" else parameter.allowed
        rows.append([f"{prefix}.{name}", default, allowed, parameter.help])
    head = f"{choice_of(plugin)}  ({plugin.path})"
    return "\n".join([head, "", plugin.source_doc.strip(), "", plugin.summary, "", align(rows)])


def main(argv: Sequence[str]) -> int:
    """List all plugins or describe the named ones, and return the exit code.

    Raises ConfigError where there is no such plugin.
    """
    arguments = Parser(prog="nnexp plugins", description=__doc__)
    arguments.add_argument("names", nargs="*", metavar="NAME", help="lstm, model=lstm, or a kind: model")
    names, registry = arguments.parse_args(argv).names, discover()
    if names:
        print_out(visible("\n\n".join(details(plugin) for name in names for plugin in find_plugins(registry, name))))
    else:
        print_out(visible(listing(registry)))
    return 0


def find_plugins(registry: Registry, name: str) -> list[Plugin]:
    """Return the plugins called `NAME` or `KIND=NAME`, or all of `KIND`. Raises ConfigError where there is none."""
    if name in KINDS:
        return [registry.get(name, each) for each in registry.names(name)]
    kind, _, last = name.rpartition("=")
    kinds = [kind] if kind else list(KINDS)
    found = [registry.plugins[k, last] for k in kinds if (k, last) in registry.plugins]
    for key, broken in registry.broken.items():
        if key[1] == last and key[0] in kinds and not found:
            raise ConfigError(broken.reason)
    if not found:
        names = sorted({plugin_name for _, plugin_name in registry.plugins})
        guess = suggestion(last, names)
        raise ConfigError(f"{name or repr(name)}: there is no such plugin.{guess} Available: {', '.join(names)}.")
    return found
