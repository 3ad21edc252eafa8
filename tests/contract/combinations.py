"""Options in combination: every two values, or three, that can meet do meet, in far fewer rows than all."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations, product
from typing import Any


def covering(*options: Sequence[Any], strength: int = 2) -> list[tuple[Any, ...]]:
    """Return rows of one value of each option, such that any `strength` values of different options share a row.

    Greedy: each row is the first of those that have most of what is missing. The same options give the same rows.
    """
    places = list(combinations(range(len(options)), strength))

    def parts(row: tuple[int, ...]) -> set[tuple[Any, ...]]:
        return {(at, *(row[k] for k in at)) for at in places}

    rows: list[tuple[int, ...]] = []
    seen: set[tuple[Any, ...]] = set()
    left = [(-len(places), row) for row in product(*map(range, map(len, options)))]
    heapify(left)
    while left:
        most, row = heappop(left)
        new = parts(row) - seen
        if new and len(new) < -most:  # what a row has to add only falls: it is looked at again in its place
            heappush(left, (-len(new), row))
        elif new:
            rows.append(row)
            seen |= new
    return [tuple(values[k] for values, k in zip(options, row, strict=True)) for row in rows]
