"""What one probe returned at one step, on its way into figures/."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnexp.base import shorten
from nnexp.config import PluginConfig
from nnexp.registry import Observation, describe_error

LONGEST_TOLD = 400


@dataclass
class ProbeResult:
    """What a probe saw at a step: nothing where it does not fit, or an error.

    Args:
        choice: the probe.
        is_drawn: whether this is a step of which pictures and texts are shown.
        numbers: of each picture, as they are written.
        drawn: of each picture that is drawn, its files' content by ending.
    """

    choice: PluginConfig
    step: int
    seen: Observation | None = None
    error: BaseException | None = None
    is_drawn: bool = True
    numbers: dict[str, dict[str, Any]] = field(default_factory=dict)
    drawn: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def told(self) -> str:
        """What to say of it: its error, with the place where its author looks, or its own warning."""
        if self.error is None:
            return f"{probe_title(self.choice)} says: {self.seen.warning}" if self.seen and self.seen.warning else ""
        what = shorten(describe_error(self.error)["message"], LONGEST_TOLD)
        return f"{probe_title(self.choice)} saw nothing from step {self.step} on: {what}"


def probe_title(choice: PluginConfig) -> str:
    """How what is said of a probe begins."""
    return f"probe '{choice.name}'"
