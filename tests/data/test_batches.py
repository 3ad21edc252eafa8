"""Batches in an order that depends on seed and step alone, loss and metrics."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from nnexp.base.errors import NnexpError
from nnexp.data import batches as data
from nnexp.data.batches import Batches
from nnexp.data.data_spec import DataSpec
from nnexp.data.losses import check_output, loss
from nnexp.data.metrics import evaluate, metric_names
from nnexp.data.splits import to_device

ROWS = 23


def _split(num_rows: int = ROWS) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row says which it is, in both tensors."""
    rows = torch.arange(num_rows)
    return rows.float().unsqueeze(1).repeat(1, 3), rows


def _order(batches: Batches, first: int, count: int) -> list[list[int]]:
    return [y.tolist() for _, y in batches.take(first, count)]


@pytest.mark.parametrize("size", [1, 5, 22, 23])
def test_every_row_comes_exactly_once_an_epoch(size):
    steps = 4 * ROWS
    flat = list(itertools.chain.from_iterable(_order(Batches(_split(), size, seed=3), 1, steps)))
    for start in range(0, len(flat) - ROWS + 1, ROWS):
        assert sorted(flat[start : start + ROWS]) == list(range(ROWS))


@pytest.mark.parametrize("size", [1, 5, 22, 23])
def test_all_batches_have_the_same_size_and_keep_rows_together(size):
    for x, y in Batches(_split(), size, seed=3).take(1, 40):
        assert x.shape == (size, 3)
        assert torch.equal(x, y.float().unsqueeze(1).expand(size, 3))


def test_each_epoch_has_an_order_of_its_own():
    epochs = _order(Batches(_split(), ROWS, seed=3), 1, 5)
    assert len({tuple(epoch) for epoch in epochs}) == 5
    assert list(range(ROWS)) not in epochs


def test_every_row_is_as_likely_as_any_other_to_come_first():
    firsts = [batch[0] for batch in _order(Batches(_split(4), 4, seed=0), 1, 2000)]
    for row in range(4):
        assert firsts.count(row) == pytest.approx(500, abs=4 * 19.4)


@pytest.mark.parametrize("block_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("pieces", [[1] * 100, [7] * 15, [50, 50], [1, 7, 50, 42]])
def test_pieces_of_any_size_give_the_same_batches_as_the_whole(monkeypatch, pieces, block_bytes):
    whole = _order(Batches(_split(), 5, seed=3), 1, 105)
    monkeypatch.setattr(data, "BLOCK_BYTES", block_bytes)
    batches = Batches(_split(), 5, seed=3)
    taken: list[list[int]] = []
    for count in pieces:
        taken += _order(batches, len(taken) + 1, count)
    assert taken == whole[: len(taken)]


def test_pieces_agree_across_the_largest_block():
    batches = Batches(_split(), 5, seed=3)
    assert batches.block == 256
    whole = _order(batches, 1, 600)
    assert _order(batches, 250, 20) == whole[249:269]
    assert _order(batches, 500, 101) == whole[499:600]


def test_a_step_can_be_asked_for_out_of_order():
    batches = Batches(_split(), 5, seed=3)
    later, earlier = _order(batches, 90, 1), _order(batches, 2, 1)
    fresh = _order(Batches(_split(), 5, seed=3), 1, 90)
    assert [earlier[0], later[0]] == [fresh[1], fresh[89]]


def test_the_order_depends_on_the_seed_and_not_on_global_generators(undrawn):
    with undrawn():
        first = _order(Batches(_split(), 5, seed=3), 1, 20)
        assert _order(Batches(_split(), 5, seed=4), 1, 20) != first
    torch.manual_seed(99)
    assert _order(Batches(_split(), 5, seed=3), 1, 20) == first


def test_a_full_batch_is_the_whole_split_at_every_step_and_may_be_changed():
    split = _split()
    taken = list(Batches(split, "full", seed=3).take(4, 3))
    assert len(taken) == 3
    for batch in taken:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(batch, split, strict=True))
        batch[0].zero_()


def test_no_batches_are_none():
    assert list(Batches(_split(), 5, seed=3).take(1, 0)) == []


def test_lengths_travel_with_their_rows():
    batches = Batches((*_split(), torch.arange(ROWS) * 10), 5, seed=3)
    for _, y, lengths in batches.take(1, 10):
        assert torch.equal(lengths, y * 10)


def test_too_large_a_batch_says_how_many_rows_there_are_and_what_to_do():
    with pytest.raises(NnexpError, match=r"batch_size=24 .* 23 training rows.*batch_size=full"):
        Batches(_split(), 24, seed=3)


def test_only_real_numbers_take_the_precision_asked_for():
    x, y = to_device(_split(), torch.float64, torch.device("cpu"))
    assert (x.dtype, y.dtype) == (torch.float64, torch.int64)


CLASSES = DataSpec(kind="vector", shape=(3,), outputs=4)


def test_the_loss_of_classes_is_cross_entropy_in_nats():
    assert loss(torch.zeros(5, 4), torch.tensor([0, 1, 2, 3, 0]), CLASSES).item() == pytest.approx(1.3862943611)


def test_the_loss_per_step_is_the_mean_over_all_positions():
    per_step = DataSpec(kind="sequence", shape=(6, 2), outputs=4, per_step=True)
    output, target = torch.randn(3, 6, 4), torch.randint(4, (3, 6))
    single = [F.cross_entropy(output[b, t], target[b, t]) for b in range(3) for t in range(6)]
    assert loss(output, target, per_step).item() == pytest.approx(torch.stack(single).mean().item(), rel=1e-6)


@pytest.mark.parametrize("shape", [(5, 2), (5, 1), (5,)])
def test_the_loss_of_values_is_the_mean_squared_error(shape):
    values = DataSpec(kind="vector", shape=(3,), target="value", outputs=shape[-1] if len(shape) > 1 else 1)
    target = torch.randn(shape)
    output = torch.randn(5, values.outputs)
    expected = (output.flatten() - target.flatten()).square().mean()
    assert loss(output, target, values).item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize(("target", "names"), [("class", ["loss", "accuracy"]), ("value", ["loss"])])
def test_only_classes_have_an_accuracy(target, names):
    assert metric_names(DataSpec(kind="vector", shape=(3,), target=target)) == names


@pytest.mark.parametrize("rows_at_once", [3, 23, 4096])
def test_evaluation_in_parts_is_the_mean_over_all_rows(monkeypatch, rows_at_once):
    monkeypatch.setattr("nnexp.data.metrics.MAX_PREDICTIONS", rows_at_once)
    module, x, y = torch.nn.Linear(3, 4), torch.randn(ROWS, 3), torch.randint(4, (ROWS,))
    result = evaluate(module, (x, y), CLASSES)
    output = module(x)
    assert result["loss"] == pytest.approx(F.cross_entropy(output, y).item(), rel=1e-5)
    assert result["accuracy"] == pytest.approx((output.argmax(1) == y).sum().item() / ROWS, rel=1e-6)


SPEC = DataSpec(kind="vector", shape=(3,), outputs=2)
X = torch.zeros(4, 3)


@pytest.mark.parametrize("output", [torch.zeros(4, 7), torch.zeros(4), torch.zeros(4, 1), torch.zeros(4, 2, 1), (1, 2)])
def test_an_output_of_another_shape_is_refused_with_both(output):
    with pytest.raises(NnexpError, match=r"the model returned .*; the data require .*\(4, 2\)"):
        check_output(output, torch.zeros(4, dtype=torch.long), SPEC)
