"""The plugins that are there, read once in each process: reading all takes longer than most tests do."""

from functools import cache
from typing import Any

from nnexp.registry.discovery import discover

REGISTRY = discover()
EVERY_KIND = ["moons", "pattern", "chartext", "edges"]  # one dataset of each, where all would take long


@cache
def plugin(kind: str, name: str) -> Any:
    """Return what `nnexp.plugin` does, from the registry that was read."""
    return REGISTRY.get(kind, name).load()
