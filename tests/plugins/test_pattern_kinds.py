"""The pattern in a window at the start, before other symbols, and in rows of different lengths."""

import itertools
import warnings
from collections import Counter
from functools import cache

import pytest
import torch
from contract.registry import plugin

from nnexp.data.seeding import seeded_generator

Pattern = plugin("dataset", "pattern")
SPLITS = ("train", "val", "test")


@cache
def _made(seed: int = 0, **values):
    """A dataset, whose warning where the strings are few is looked at elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Pattern(seeded_generator(seed, "data"), **values)


def _strings(x: torch.Tensor) -> list[str]:
    return ["".join(map(str, row)) for row in x.argmax(-1).tolist()]


def _text(pattern: tuple[int, ...]) -> str:
    return "".join(map(str, pattern))


WINDOWS = [(24, 8, (1, 0, 1)), (64, 8, (1, 0, 1)), (17, 16, (1, 1, 0, 1)), (12, 12, (1, 0))]


@pytest.mark.parametrize(("length", "window", "pattern"), WINDOWS)
def test_with_a_window_bits_stand_at_the_start_and_other_symbols_after_it(length, window, pattern):
    made = _made(length=length, window=window, pattern=pattern, num_train=61, num_val=30, num_test=41)
    assert made.spec.shape == (length, 4)
    for split, positive in zip(SPLITS, (30, 15, 20), strict=True):
        x, y = getattr(made, split)
        assert torch.equal(x.sum(-1), torch.ones(len(x), length))
        assert x.unique().tolist() == [0.0, 1.0]
        symbols = x.argmax(-1)
        assert symbols[:, :window].max() <= 1
        assert (symbols[:, window:] >= 2).all()
        assert y.tolist() == [int(_text(pattern) in string) for string in _strings(x[:, :window])]
        assert y.sum().item() == positive


def test_the_symbols_after_a_window_are_random_and_say_nothing_of_the_class():
    x, y = _made(length=40, window=8, num_test=4000).test
    after = x[:, 8:, 3]
    assert after.mean(0).tolist() == pytest.approx([0.5] * 32, abs=0.04)
    assert (after[y == 1].mean(0) - after[y == 0].mean(0)).abs().max() < 0.08
    assert (torch.corrcoef(after.T) - torch.eye(32)).abs().max() < 0.08


@pytest.mark.parametrize("label", [0, 1])
def test_every_string_of_a_window_is_equally_likely(label):
    members = [s for s in map("".join, itertools.product("01", repeat=6)) if ("101" in s) == bool(label)]
    x, y = _made(length=20, window=6, num_train=2, num_test=8000).test
    counts = Counter(_strings(x[y == label][:, :6]))
    expected, freedom = 4000 / len(members), len(members) - 1
    assert set(counts) == set(members)
    assert sum((counts[s] - expected) ** 2 / expected for s in members) <= freedom + 5 * (2 * freedom) ** 0.5


def test_rows_with_a_window_are_kept_apart_as_a_whole_and_need_no_warning():
    made = Pattern(seeded_generator(0, "data"), length=24, window=8)
    train, val, test = (_strings(getattr(made, split)[0]) for split in SPLITS)
    assert not set(train) & {*val, *test}
    assert len({*val, *test}) == 512 + 1024


LENGTHS_OF_ROWS = [(16, 9, (1, 0, 1)), (40, 3, (1, 0, 1)), (12, 12, (1, 0, 1)), (30, 20, (1, 1, 0, 1))]


@pytest.mark.parametrize(("length", "min_length", "pattern"), LENGTHS_OF_ROWS)
def test_short_rows_are_padded_with_zeros_and_their_label_is_that_of_the_valid_part(length, min_length, pattern):
    made = _made(length=length, min_length=min_length, pattern=pattern, num_train=200, num_val=31, num_test=120)
    for split, positive in zip(SPLITS, (100, 15, 60), strict=True):
        x, y, lengths = getattr(made, split)
        assert min_length <= lengths.min() <= lengths.max() <= length
        for row, label, size in zip(x, y.tolist(), lengths.tolist(), strict=True):
            assert torch.equal(row.sum(-1), (torch.arange(length) < size).float())
            assert label == int(_text(pattern) in _strings(row[None, :size])[0])
        assert y.sum().item() == positive


@pytest.mark.parametrize(("length", "min_length", "pattern"), LENGTHS_OF_ROWS)
def test_every_length_is_as_frequent_as_any_other_in_each_class(length, min_length, pattern):
    made = _made(length=length, min_length=min_length, pattern=pattern, num_train=200, num_val=31, num_test=120)
    for split in SPLITS:
        _, y, lengths = getattr(made, split)
        both = [lengths[y == label].bincount(minlength=length + 1)[min_length:] for label in (0, 1)]
        assert all(counts.max() - counts.min() <= 1 for counts in both)
        assert (both[0] - both[1]).abs().max() <= 1


@pytest.mark.parametrize("label", [0, 1])
def test_every_string_of_a_class_and_length_is_equally_likely(label):
    x, y, lengths = _made(length=7, min_length=4, num_train=2, num_test=16_000).test
    for length in (4, 5, 6, 7):
        members = [s for s in map("".join, itertools.product("01", repeat=length)) if ("101" in s) == bool(label)]
        counts = Counter(_strings(x[(y == label) & (lengths == length)][:, :length]))
        expected, freedom = 2000 / len(members), len(members) - 1
        assert set(counts) == set(members)
        assert sum((counts[s] - expected) ** 2 / expected for s in members) <= freedom + 5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("values", [{"length": 40, "min_length": 14}, {"length": 64, "min_length": 24}])
def test_no_row_of_any_length_that_is_held_out_is_seen_in_training_or_twice(values):
    made = Pattern(seeded_generator(0, "data"), **values)
    train, val, test = ([row.numpy().tobytes() for row in getattr(made, split)[0]] for split in SPLITS)
    assert not set(train) & {*val, *test}
    assert len({*val, *test}) == 512 + 1024


def test_too_few_strings_of_the_shortest_length_give_a_warning():
    with pytest.warns(UserWarning, match=r"there are only 1 sequences of length 3 with the pattern"):
        Pattern(seeded_generator(0, "data"), length=16, min_length=3)


@pytest.mark.parametrize("values", [{"length": 24, "window": 8}, {"length": 40, "min_length": 14}])
def test_the_number_of_training_rows_changes_no_other_split_with_a_window_or_lengths_either(values):
    few, many = _made(num_train=10, **values), _made(num_train=300, **values)
    for split in ("val", "test"):
        assert all(torch.equal(a, b) for a, b in zip(getattr(few, split), getattr(many, split), strict=True))


@pytest.mark.parametrize("values", [{"length": 24, "window": 8}, {"length": 40, "min_length": 14}])
def test_a_seed_gives_the_same_rows_again_and_another_seed_gives_others(values):
    first, same, other = Pattern(seeded_generator(3, "data"), **values), _made(3, **values), _made(4, **values)
    assert all(torch.equal(a, b) for a, b in zip(first.train, same.train, strict=True))
    assert not torch.equal(first.train[0], other.train[0])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"window": 8, "min_length": 9}, r"how far back .* Set dataset\.window or dataset\.min_length to null"),
        ({"window": 17}, r"dataset\.window=17: it must lie between the pattern's 3 bits and dataset\.length=16"),
        ({"window": 2}, r"dataset\.window=2: "),
        ({"min_length": 17}, r"dataset\.min_length=17: "),
        ({"min_length": 2}, r"dataset\.min_length=2: "),
    ],
)
def test_a_window_or_a_length_that_makes_no_task_is_refused_with_the_reason(values, reason):
    with pytest.raises(ValueError, match=reason):
        Pattern(seeded_generator(0, "data"), length=16, **values)


@pytest.mark.parametrize("values", [["dataset.length=24", "dataset.window=8"], ["dataset.min_length=14"]])
@pytest.mark.parametrize("model", ["lstm", "vit"])
def test_rows_of_both_kinds_train(make_lane, model, values):
    lane = make_lane("dataset.length=40", *values, f"model={model}", "trainer.max_steps=3")
    assert len(lane.advance(3)) == 3
    assert 0 <= lane.evaluate("test")["test/accuracy"] <= 1
