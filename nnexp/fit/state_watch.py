"""Notes on a lane: state that no checkpoint holds, weights that are not trained, splits that are not new data."""

from __future__ import annotations

from typing import Any

from nnexp.data import splits_in_training
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


def lane_notes(lane: Lane) -> list[str]:
    """Return notes on what the numbers of a lane rest on: weights outside `parameters()`, splits that overlap."""
    notes = []
    if places := hidden_weights(lane.module):
        cure = "they are neither trained nor saved. Use nn.ModuleList, nn.ModuleDict or nn.Parameter"
        notes.append(f"weights outside parameters(): {', '.join(places)}; {cure}.")
    if names := splits_in_training(lane.dataset):
        notes.append(f"{' and '.join(names)} rows are training rows: their metrics say nothing of new data.")
    return notes
