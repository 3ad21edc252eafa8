"""Handle SIGINT (Ctrl-C), SIGTERM and SIGHUP: the first stops training after a checkpoint, the second at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class StopRequest:
    """A flag that asks training to stop, set by a signal or by a sweep that reached its limit of failures.

    `requested` is a plain attribute, since it is read before every update. `signal` is the number of the signal that
    was received, or None.

    >>> stop = StopRequest()
    >>> with stop.handling():
    ...     while not stop.requested:
    ...         step()
    """

    def __init__(self) -> None:
        self.requested = False
        self.signal: int | None = None

    def listen(self) -> None:
        """Install the signal handlers; does nothing outside the main thread, where Python allows none."""
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
        """Install the signal handlers within the block, and restore the previous ones after it."""
        previous: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
        self.listen()
        try:
            yield
        finally:
            if threading.current_thread() is threading.main_thread():
                for number, handler in previous.items():
                    signal.signal(number, handler)

    @property
    def exit_code(self) -> int:
        """The exit code that a shell expects: 128 + signal, so 130 after Ctrl-C and 143 after SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)
