"""nnexp: an experiment harness for small neural networks.

A plugin imports `dataset`, `model`, `trainer` or `probe`, and what its signature needs, from here. A notebook gets a
plugin's class by `nnexp.plugin("model", "lstm")`, a trained model with its data by `nnexp.load("runs/default/...")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nnexp.seen import Picture, Seen
from nnexp.spec import DataSpec, File, PerLane, Probe, Range, Trainer, dataset, model, probe, trainer

if TYPE_CHECKING:
    from nnexp.reopen import load as load

__all__ = ["DataSpec", "File", "PerLane", "Picture", "Probe", "Range", "Seen", "Trainer"]
__all__ += ["dataset", "load", "model", "plugin", "probe", "trainer"]


def __getattr__(name: str) -> Any:
    """`load` imports torch, so it is looked up when it is asked for."""
    if name == "load":
        from nnexp.reopen import load

        return load
    raise AttributeError(f"module 'nnexp' has no attribute '{name}'")


def plugin(kind: str, name: str) -> Any:
    """The class of a plugin, wherever it is installed: `nnexp.plugin("model", "lstm")(spec, hidden_size=8)`."""
    from nnexp.registry import discover

    return discover().get(kind, name).load()
