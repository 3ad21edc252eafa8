"""Columns of a table: whether they hold numbers, and how wide their cells are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import east_asian_width

NUMBER = re.compile(r"-?[\d.,]+(e[-+]?\d+)?|nan|-?inf|")


def is_numeric(column: Sequence[str]) -> bool:
    """Return whether all cells below the head of a column are numbers or empty."""
    return all(NUMBER.fullmatch(cell) for cell in column[1:])


def num_cells(text: str) -> int:
    """Return how many cells of a terminal a text takes; Chinese, Japanese and Korean characters take two."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(letter) in "WF") for letter in text)
