"""Options in combination: every two values, or three, that can meet do meet, in far fewer rows than all."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations, product
from typing import Any

import pytest

Row = tuple[Any, ...]


def covering(*options: Sequence[Any], strength: int = 2) -> list[Row]:
    """Return rows of one value of each option, such that any `strength` values of different options share a row."""
    return cover(list(product(*options)), strength)


def cover(rows: Sequence[Row], strength: int) -> list[Row]:
    """Return those of the rows in which any `strength` values meet that meet in any of them.

    Greedy: each is the first of those that have most of what is missing. The same rows give the same.
    """
    columns = [list(column) for column in zip(*rows, strict=True)]
    numbered = [tuple(map(list.index, columns, row)) for row in rows]
    places = list(combinations(range(len(columns)), strength))

    def parts(k: int) -> set[Row]:
        return {(at, *(numbered[k][place] for place in at)) for at in places}

    chosen: list[Row] = []
    seen: set[Row] = set()
    left = [(-len(places), k) for k in range(len(rows))]
    heapify(left)
    while left:
        most, k = heappop(left)
        new = parts(k) - seen
        if new and len(new) < -most:  # what a row has to add only falls: it is looked at again in its place
            heappush(left, (-len(new), k))
        elif new:
            chosen.append(rows[k])
            seen |= new
    return chosen


def slow_but(few: Sequence[Row], rows: Sequence[Row]) -> list[Any]:
    """Return the rows as parameters of a test that is slow for all of them but a few."""
    assert all(row in rows for row in few)
    return [pytest.param(*row, marks=() if row in few else pytest.mark.slow) for row in rows]
