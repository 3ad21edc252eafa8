"""Ctrl-C, SIGTERM, a closed terminal: the first asks training to keep what there is and end, the next ends at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class StopRequest:
    """Whether a signal, or a sweep that shall not go on, has asked for an end.

    `requested` is read before every update, so it is a plain attribute.
    """

    def __init__(self) -> None:
        self.requested = False
        self.signal: int | None = None

    def listen(self) -> None:
        """Handle the signals from now on; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if number != getattr(signal, "SIGHUP", None) or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                    signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
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
