"""The errors a user can meet: each names what was asked, what exists and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


class NnexpError(Exception):
    """An error whose message is written for the user: shown without a traceback."""


class ConfigError(NnexpError):
    """A job that cannot be composed: found before torch is imported and before anything is written."""


class PluginError(NnexpError):
    """A plugin file that cannot be read, or does not keep its contract."""


class RecordError(NnexpError):
    """A run directory that cannot be used: in use by another process, damaged, or not of this format."""


def shorten(text: str, length: int = 200) -> str:
    """The text on one line, its end left out where it is long; what a terminal would obey is a question mark."""
    line = " ".join(text[: 2 * length].split())
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(text) <= length else f"{line[:length]}..."


def short_repr(value: Any, length: int = 200) -> str:
    """A value as a message shows it, whatever it is: Python refuses to write an integer of thousands of digits."""
    try:
        return shorten(repr(value), length)
    except (ValueError, RecursionError):
        return f"a value of type {type(value).__name__} that is too long to be shown"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to `word`, or None where nothing is close."""
    close = difflib.get_close_matches(word[:100], sorted(known), n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` where something is close, and nothing otherwise."""
    match = nearest(word, known)
    return f" Did you mean '{match}'?" if match else ""
