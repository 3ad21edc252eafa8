"""The observation, or the error, of one probe at one step, before it is written to figures/."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nnexp.base import shorten
from nnexp.config import PluginConfig
from nnexp.registry import Observation, describe_error

MAX_MESSAGE_LENGTH = 400


@dataclass
class ProbeResult:
    """The observation that a probe returned at a step, or the error that it raised.

    Args:
        choice: the probe and its values.
        step: updates done.
        observation: what the probe returned; None if it does not apply to the model or raised an error.
        error: the exception that the probe raised, or None.
        is_drawn: whether pictures and texts of this step are shown in TensorBoard.
        numbers: the numbers behind each picture, by the picture's name.
        drawn: content of the image files of each picture that is drawn, by picture and file ending.
    """

    choice: PluginConfig
    step: int
    observation: Observation | None = None
    error: BaseException | None = None
    is_drawn: bool = True
    numbers: dict[str, dict[str, Any]] = field(default_factory=dict)
    drawn: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def message(self) -> str:
        """Return the probe's error with its file and line, or its own warning; empty if there is neither."""
        title = probe_title(self.choice)
        if self.error is not None:
            error = shorten(describe_error(self.error)["message"], MAX_MESSAGE_LENGTH)
            return f"{title} failed at step {self.step}: {error}"
        return f"{title}: {self.observation.warning}" if self.observation and self.observation.warning else ""


def probe_title(choice: PluginConfig) -> str:
    """Return the prefix of messages about a probe: `probe 'receptive_field'`."""
    return f"probe '{choice.name}'"
