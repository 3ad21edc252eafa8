"""Rows of combined options leave out nothing that they say they have."""

from itertools import combinations, product

import pytest

from contract.combinations import cover, covering

OPTIONS = ["abcd", (1, 2, 3), [True, False], (None, "x"), range(5)]


@pytest.mark.parametrize(("strength", "most"), [(1, 5), (2, 25), (3, 75), (5, 240)])
def test_all_values_meet_in_few_rows(strength: int, most: int) -> None:
    rows = covering(*OPTIONS, strength=strength)
    for places in combinations(range(len(OPTIONS)), strength):
        met = {tuple(row[k] for k in places) for row in rows}
        assert met == set(product(*(OPTIONS[k] for k in places)))
    assert len(rows) == len(set(rows)) <= most
    assert rows == covering(*OPTIONS, strength=strength)


def test_a_few_rows_have_what_meets_in_all_of_them() -> None:
    rows = [("a", 1), ("a", 2), ("b", 2), ("c", 2)]
    assert cover(rows, 1) == [("a", 1), ("b", 2), ("c", 2)]
    assert cover(rows, 2) == rows
