"""Strings with and without a pattern: labels, balance, uniformity within a class, and rows kept apart."""

import itertools
import sys
import warnings
from collections import Counter
from functools import cache

import pytest
import torch
from contract.registry import plugin

from nnexp.data.seeding import seeded_generator

Pattern = plugin("dataset", "pattern")
SPLITS = ("train", "val", "test")
LENGTHS = [*range(3, 13), 16, 64, 200]
PATTERNS = [(1, 0, 1), (1, 1, 0, 1), (0,), (1, 1)]
CASES = [(n, p) for n, p in itertools.product(LENGTHS, PATTERNS) if len(p) <= n]


@cache
def _made(seed: int = 0, **values):
    """A dataset, whose warning where the strings are few is looked at elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Pattern(seeded_generator(seed, "data"), **values)


def _small(length: int, pattern: tuple[int, ...]):
    return _made(length=length, pattern=pattern, num_train=61, num_val=30, num_test=41)


def _strings(x: torch.Tensor) -> list[str]:
    return ["".join(map(str, row)) for row in x.argmax(-1).tolist()]


def _text(pattern: tuple[int, ...]) -> str:
    return "".join(map(str, pattern))


@pytest.mark.parametrize(("length", "pattern"), CASES)
def test_a_label_says_whether_the_pattern_is_in_the_string(length, pattern):
    for split in SPLITS:
        x, y = getattr(_small(length, pattern), split)
        assert y.tolist() == [int(_text(pattern) in string) for string in _strings(x)]


@pytest.mark.parametrize(("length", "pattern"), CASES)
def test_classes_are_balanced_to_the_last_row(length, pattern):
    made = _small(length, pattern)
    assert [getattr(made, split)[1].sum().item() for split in SPLITS] == [30, 15, 20]
    assert [len(getattr(made, split)[0]) for split in SPLITS] == [61, 30, 41]


@pytest.mark.parametrize(("length", "pattern"), CASES)
def test_a_position_is_one_hot(length, pattern):
    x = _small(length, pattern).train[0]
    assert x.shape == (61, length, 2)
    assert torch.equal(x.sum(-1), torch.ones(61, length))
    assert x.unique().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("pattern", [*PATTERNS, (0, 0, 1, 0), (1, 1, 1)])
@pytest.mark.parametrize("label", [0, 1])
def test_every_string_of_a_class_is_equally_likely(pattern, label):
    every = map("".join, itertools.product("01", repeat=6))
    members = [string for string in every if (_text(pattern) in string) == bool(label)]
    x, y = _made(length=6, pattern=pattern, num_train=2, num_test=8000).test  # too many for rows to be kept apart
    counts = Counter(_strings(x[y == label]))
    expected, freedom = 4000 / len(members), len(members) - 1
    chi_square = sum((counts[string] - expected) ** 2 / expected for string in members)
    assert set(counts) <= set(members)
    assert chi_square <= freedom + 5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize(("length", "pattern"), [(16, (1, 0, 1)), *((n, p) for n, p in CASES if n <= 10)])
def test_the_size_of_a_class_is_what_counting_gives(length, pattern):
    strings = map("".join, itertools.product("01", repeat=length))
    positive = sum(_text(pattern) in string for string in strings)
    assert [c.sizes[0] for c in _classes(length, pattern)] == [2**length - positive, positive]


def _classes(length: int, pattern: tuple[int, ...]) -> list:
    made = sys.modules[Pattern.__module__]
    return [made._Class(pattern, length, positive, torch.Generator()) for positive in (False, True)]


def test_of_the_65536_strings_of_length_16_55284_hold_the_pattern():
    assert [c.sizes[0] for c in _classes(16, (1, 0, 1))] == [65536 - 55284, 55284]


@pytest.mark.parametrize("length", [200, 1000])
def test_long_strings_are_counted_exactly(length):
    negative, positive = _classes(length, (1, 0, 1))
    assert negative.sizes[0] + positive.sizes[0] == 2**length
    assert negative.sizes[0] > 0


@pytest.mark.parametrize("length", [16, 64])
def test_no_row_held_out_is_seen_in_training_or_twice(length):
    made = _made(length=length)
    train, val, test = (_strings(getattr(made, split)[0]) for split in SPLITS)
    assert not set(train) & {*val, *test}
    assert len({*val, *test}) == len(val) + len(test) == 512 + 1024


def test_enough_strings_give_no_warning():
    Pattern(seeded_generator(0, "data"), length=16)


def test_too_few_strings_give_a_warning_with_the_share_of_test_rows_known_from_training():
    with pytest.warns(UserWarning, match=r"only 200 sequences of length 9 without the pattern") as caught:
        made = Pattern(seeded_generator(0, "data"), length=9)
    known = set(_strings(made.train[0]))
    share = sum(string in known for string in _strings(made.test[0])) / 1024
    assert f"too few for 1536 distinct held-out rows: {share:.0%} of test rows" in str(caught[0].message)
    assert share < 1


def test_at_length_8_nearly_every_test_row_is_a_training_row():
    with pytest.warns(UserWarning, match=r"length 8 .*: (9\d|100)% of test rows are training rows too"):
        Pattern(seeded_generator(0, "data"), length=8)


@pytest.mark.parametrize("length", [8, 16])
def test_the_number_of_training_rows_changes_neither_of_the_other_splits(length):
    few, many = _made(length=length, num_train=10), _made(length=length, num_train=300)
    for split in ("val", "test"):
        assert all(torch.equal(a, b) for a, b in zip(getattr(few, split), getattr(many, split), strict=True))


def test_classes_come_in_random_order():
    y = _made().train[1]
    assert (y[1:] != y[:-1]).sum().item() == pytest.approx(512, abs=80)  # five standard deviations


@pytest.mark.parametrize(("length", "pattern"), [(3, (1, 0, 1, 1)), (1, (1, 1)), (4, ())])
def test_a_pattern_that_fits_no_string_is_refused(length, pattern):
    with pytest.raises(ValueError, match=f"dataset.pattern has {len(pattern)} bits: .* dataset.length={length}"):
        Pattern(seeded_generator(0, "data"), length=length, pattern=pattern)


FIRST = ["1001010110010101", "0100010011101111", "1101100100111101", "0110010111000111"]


def test_with_neither_window_nor_min_length_rows_are_what_they_have_always_been():
    """Of seed 0, before there were either."""
    made = _made()
    assert len(made.train) == 2
    assert _strings(made.test[0][:2]) + _strings(made.train[0][:2]) == FIRST
