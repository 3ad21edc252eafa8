"""Finds state of a lane that no checkpoint holds: attributes that change in training and are no buffers."""

from __future__ import annotations

from typing import Any

from nnexp.stacking import attributes_of, trainer_values
from nnexp.training import Lane, hidden_weights

CURE = "no checkpoint holds it, so a resumed run gives other numbers. Keep it in a buffer"


class StateWatch:
    """Compares the attributes of a lane's module and trainer with those from before, at steps that double.

    Args:
        lane: the lane, before it is trained.
    """

    def __init__(self, lane: Lane) -> None:
        self.lane, self._next = lane, 0
        self._before, self._noted = self._attributes(), set[str]()

    def _attributes(self) -> dict[str, Any]:
        trainer = {f"trainer.{name}": value for name, value in trainer_values(self.lane).items()}
        return trainer | {".".join(filter(None, key)): value for key, value in attributes_of(self.lane.module).items()}

    def notes(self) -> list[str]:
        """Return a note for each attribute that has changed, once."""
        if self.lane.step < self._next:
            return []
        self._next = 2 * self.lane.step
        now = self._attributes().items()
        changed = [name for name, value in now if name not in self._noted and self._before.get(name) != value]
        self._noted.update(changed)
        return [f"training changes '{name}', which is not a buffer: {CURE}." for name in changed]


def weights_note(lane: Lane) -> list[str]:
    """Return a note on weights that the module's `parameters()` do not name, if there are any."""
    places = hidden_weights(lane.module)
    cure = "they are neither trained nor saved. Use nn.ModuleList, nn.ModuleDict or nn.Parameter"
    return [f"weights outside parameters(): {', '.join(places)}; {cure}."] if places else []
