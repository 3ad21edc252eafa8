"""Text tables for the terminal and for pipes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from nnexp.base.columns import is_numeric, num_cells

MAX_FOLDED_ROWS = 500


def align(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of text as a table, the first row its head; columns of numbers are aligned to the right.

    On a terminal the head is bold and columns of text are folded to its width, by rich, which takes a millisecond a
    row: tables of more than `MAX_FOLDED_ROWS` rows, and all tables in a pipe, are neither folded nor coloured.

    >>> print(align([["name", "n"], ["a", "5"], ["long", "12"]]))
    name   n
    a      5
    long  12
    """
    if sys.stdout.isatty() and len(rows) <= MAX_FOLDED_ROWS:
        from nnexp.base.terminal import format_table

        return format_table(rows)
    columns = []
    for column in zip(*rows, strict=True):
        widths = list(map(num_cells, column))
        full, is_right = max(widths), is_numeric(column)
        gaps = [" " * (full - width) for width in widths]
        columns.append([gap + cell if is_right else cell + gap for cell, gap in zip(column, gaps, strict=True)])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))
