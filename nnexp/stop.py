"""Ctrl-C and SIGTERM: the first asks training to keep what there is and end, the second ends at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether a signal has asked for an end.

    `requested` is read before every update, so it is a plain attribute.
    """

    def __init__(self) -> None:
        self.requested = False
        self.signal: int | None = None

    def listen(self) -> None:
        """Handle the signals from now on; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested, self.signal = True, number

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Handle the signals in the block, and as before outside."""
        before: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
        self.listen()
        try:
            yield
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in before.items():
                    signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM, as a shell expects."""
        return 128 + (self.signal or signal.SIGINT)
