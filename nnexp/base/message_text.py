"""Text within messages: one line, shortened, harmless to a terminal."""

from __future__ import annotations

from typing import Any


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
