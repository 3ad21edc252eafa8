"""Exceptions shown to users, and helpers for their messages: what was asked, what exists and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class NnexpError(Exception):
    """Base of errors whose message is written for the user and printed without a traceback."""


class ConfigError(NnexpError):
    """A job cannot be composed; raised before torch is imported and before anything is written."""


class PluginError(NnexpError):
    """A plugin file cannot be read or violates its contract."""


class RecordError(NnexpError):
    """A run directory cannot be used: locked by another process, damaged, or of another format version."""


def shorten(text: str, length: int = 200) -> str:
    """Return `text` on one line, cut after `length` characters; unprintable characters become question marks."""
    line = " ".join(text[: 2 * length].split())
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(text) <= length else f"{line[:length]}..."


def short_repr(value: Any, length: int = 200) -> str:
    """Return a shortened `repr` for error messages that never raises.

    `repr` itself raises for integers of thousands of digits and for deeply nested containers.
    """
    try:
        return shorten(repr(value), length)
    except (ValueError, RecursionError):
        return f"a value of type {type(value).__name__} that is too long to be shown"


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return the suggestion for a misspelt word, with a leading space, or "" where no candidate is close.

    >>> did_you_mean("lstmm", ["lstm", "gru"])
    " Did you mean 'lstm'?"
    """
    matches = difflib.get_close_matches(word[:100], sorted(candidates), n=1, cutoff=0.6)
    return f" Did you mean '{matches[0]}'?" if matches else ""
