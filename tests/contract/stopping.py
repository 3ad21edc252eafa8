"""A signal at a moment that is known."""

from __future__ import annotations

from nnexp.base.signals import StopRequest


class StopAfter(StopRequest):
    """Asks for an end after so many questions, as a signal would at a random moment."""

    def __init__(self, questions: int) -> None:
        self.left = questions
        self.signal = None

    @property
    def requested(self) -> bool:
        self.left -= 1
        return self.left < 0

    @requested.setter
    def requested(self, _: bool) -> None: ...
