"""Very many rows: batches without a held order, bounded evaluation, windows that stay views."""

import pytest
import torch

from nnexp.base.errors import NnexpError
from nnexp.data import split_checks
from nnexp.data.batches import Batches
from nnexp.data.data_spec import DataSpec
from nnexp.data.metrics import evaluate
from nnexp.data.split_checks import check_split
from nnexp.data.splits import to_device

CLASSES = DataSpec(kind="vector", shape=(3,), outputs=4)


def _order(batches: Batches, first: int, count: int) -> list[list[int]]:
    return [y.tolist() for _, y in batches.take(first, count)]


@pytest.mark.parametrize(
    ("num_rows", "max_rows", "expected"),
    [(10, 10, range(10)), (11, 10, range(0, 11, 2)), (100, 10, range(0, 100, 10)), (101, 10, range(0, 101, 11))],
)
def test_of_many_rows_evenly_spaced_ones_are_evaluated(num_rows, max_rows, expected):
    values = DataSpec(kind="vector", shape=(1,), target="value", outputs=1)
    x = torch.arange(num_rows).unsqueeze(1).float()
    result = evaluate(torch.nn.Identity(), (x, torch.zeros_like(x)), values, max_rows)
    assert result["loss"] == pytest.approx(sum(row * row for row in expected) / len(expected), rel=1e-6)
    every = evaluate(torch.nn.Identity(), (x, torch.zeros_like(x)), values, None)
    assert every["loss"] == pytest.approx(sum(row * row for row in range(num_rows)) / num_rows, rel=1e-6)


def test_no_more_than_20000_rows_are_evaluated_where_nothing_else_is_said():
    seen: list[int] = []
    x = torch.zeros(50_001, 3)
    evaluate(torch.nn.Sequential(_Counting(seen), torch.nn.Linear(3, 4)), (x, torch.zeros(50_001).byte()), CLASSES)
    assert 10_000 < sum(seen) <= 20_000


class _Counting(torch.nn.Module):
    def __init__(self, seen: list[int]) -> None:
        super().__init__()
        self.seen = seen

    def forward(self, x):
        self.seen.append(len(x))
        return x


MANY = 2**18 + 1


@pytest.fixture(scope="module")
def many():
    """Rows of which each says which it is."""
    return torch.arange(MANY), torch.arange(MANY)


def test_up_to_262144_rows_come_once_an_epoch_and_of_more_no_order_is_held(many):
    last = tuple(t[:-1] for t in many)
    (batch, _), *_ = Batches(last, 2**18, seed=3).take(1, 1)
    assert torch.equal(batch.sort().values, last[0])
    batches = Batches(many, 32, seed=3)
    next(batches.take(1, 1))
    assert len(batches._last_page[1]) == 4096


@pytest.mark.parametrize("size", [7, 32, 5000])
def test_of_very_many_rows_a_batch_depends_on_seed_and_step_alone(many, size, undrawn):
    with undrawn():
        whole = _order(Batches(many, size, seed=3), 1, 300 if size < 5000 else 6)
        steps = [5, 1, len(whole) - 1, 2]
        again = Batches(many, size, seed=3)
        assert [_order(again, step, 1)[0] for step in steps] == [whole[step - 1] for step in steps]
        assert _order(Batches(many, size, seed=4), 1, 3) != whole[:3]
    assert {len(batch) for batch in whole} == {size}


def test_of_very_many_rows_each_is_as_likely_as_any_other(many):
    rows = torch.cat([x for x, _ in Batches(many, 4000, seed=0).take(1, 100)])
    counts = (rows * 16 // MANY).bincount(minlength=16).double()
    assert ((counts - 25_000).square() / 25_000).sum() < 15 + 5 * 30**0.5
    distinct = len(rows.unique()) / MANY
    assert distinct == pytest.approx(1 - (1 - 1 / MANY) ** 400_000, abs=0.01)  # with replacement


def _windows(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(100).to(dtype)[3:].unfold(0, 10, 2)


@pytest.mark.parametrize(("given", "asked"), [(torch.uint8, torch.uint8), (torch.float32, torch.float64)])
def test_windows_stay_views_when_they_are_moved(given, asked):
    windows = _windows(given)
    moved, _ = to_device((windows, windows), torch.float64, torch.device("cpu"))
    assert moved.dtype == asked
    assert moved.untyped_storage().nbytes() == 100 * moved.element_size() < moved.numel() * moved.element_size()
    assert torch.equal(moved, windows.to(asked))


def test_windows_with_a_wrong_label_anywhere_are_refused(monkeypatch):
    monkeypatch.setattr(split_checks, "BLOCK_BYTES", 240)  # one row
    tokens = DataSpec(kind="tokens", shape=(10,), vocab=100, outputs=98, per_step=True)
    with pytest.raises(NnexpError, match=r"y\[\d+\] contains 98; it must hold integers from 0 to 97"):
        check_split("train", (_windows(torch.uint8)[:-1], _windows(torch.uint8)[1:]), tokens)
