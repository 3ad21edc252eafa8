"""nnexp: an experiment harness for small neural networks.

A plugin imports `dataset`, `model` or `trainer` and what its signature needs from here. A notebook gets a plugin's
class by `nnexp.plugin("model", "lstm")`.
"""

from __future__ import annotations

from typing import Any

from nnexp.spec import DataSpec, PerLane, Range, Trainer, dataset, model, trainer

__all__ = ["DataSpec", "PerLane", "Range", "Trainer", "dataset", "model", "plugin", "trainer"]


def plugin(kind: str, name: str) -> Any:
    """The class of a plugin, wherever it is installed: `nnexp.plugin("model", "lstm")(spec, hidden_size=8)`."""
    from nnexp.registry import discover

    return discover().get(kind, name).load()
