"""Batches in an order that depends on seed and step alone, loss and metrics."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from nnexp import data
from nnexp.data import Batches, check_output, check_split, evaluate, loss, metric_names, to_device
from nnexp.errors import NnexpError
from nnexp.spec import DataSpec

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
    batches, taken = Batches(_split(), 5, seed=3), []
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


def test_a_full_batch_is_the_split_itself_at_every_step():
    split = _split()
    taken = list(Batches(split, "full", seed=3).take(4, 3))
    assert len(taken) == 3
    assert all(batch is split for batch in taken)


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
    monkeypatch.setattr(data, "EVALUATION_ROWS", rows_at_once)
    module, x, y = torch.nn.Linear(3, 4), torch.randn(ROWS, 3), torch.randint(4, (ROWS,))
    result = evaluate(module, (x, y), CLASSES)
    output = module(x)
    assert result["loss"] == pytest.approx(F.cross_entropy(output, y).item(), rel=1e-5)
    assert result["accuracy"] == pytest.approx((output.argmax(1) == y).sum().item() / ROWS, rel=1e-6)


SPEC = DataSpec(kind="vector", shape=(3,), outputs=2)
X = torch.zeros(4, 3)


@pytest.mark.parametrize(
    ("split", "reason"),
    [
        ((), "must be a tuple"),
        ((X,), "must be a tuple"),
        ((X, [0, 1, 0, 1]), "must be a tuple"),
        ((X, torch.tensor([0])), "must be a tuple"),
        ((X[:0], torch.zeros(0, dtype=torch.long)), "must be a tuple"),
        ((X[:, :2], torch.tensor([0, 1, 0, 1])), r"inputs of shape \(2,\), its spec says \(3,\)"),
        ((X, torch.tensor([0, 1, 2, 1])), "labels of torch.int64 from 0 to 2; needed are whole numbers from 0 to 1"),
        ((X, torch.tensor([0, -1, 0, 1])), "from -1 to 1"),
        ((X, torch.tensor([0.0, 1.0, 0.0, 1.0])), "labels of torch.float32"),
    ],
)
def test_a_split_that_is_not_what_its_spec_says_is_refused_with_the_reason(split, reason):
    with pytest.raises(NnexpError, match=reason):
        check_split("val", split, SPEC)


@pytest.mark.parametrize("output", [torch.zeros(4, 7), torch.zeros(4), torch.zeros(4, 1), torch.zeros(4, 2, 1), (1, 2)])
def test_an_output_of_another_shape_is_refused_with_both(output):
    with pytest.raises(NnexpError, match=r"the model gave a .*, its data need .*\(4, 2\)"):
        check_output(output, torch.zeros(4, dtype=torch.long), SPEC)


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
PER_STEP = DataSpec(kind="sequence", shape=(6, 2), outputs=4, per_step=True)
LENGTHS = torch.tensor([6, 1, 3])


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("spec", [CLASSES, PER_STEP], ids=["rows", "positions"])
def test_labels_of_any_integer_type_give_the_same_loss_and_metrics(spec, dtype):
    y = torch.randint(4, (ROWS, 6) if spec.per_step else (ROWS,))
    x, module = torch.randn(ROWS, *spec.shape), torch.nn.Linear(spec.shape[-1], 4)
    check_split("val", (x, y.to(dtype)), spec)
    assert torch.equal(loss(module(x), y.to(dtype), spec), loss(module(x), y, spec))
    assert evaluate(module, (x, y.to(dtype)), spec) == evaluate(module, (x, y), spec)


def _valid() -> list[tuple[int, int]]:
    return [(b, t) for b, length in enumerate(LENGTHS.tolist()) for t in range(length)]


def test_padded_positions_have_no_part_in_the_loss_of_classes_and_get_no_gradient():
    output, target = torch.randn(3, 6, 4, requires_grad=True), torch.randint(4, (3, 6))
    value = loss(output, target, PER_STEP, LENGTHS)
    expected = torch.stack([F.cross_entropy(output[at], target[at]) for at in _valid()]).mean()
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    value.backward()
    assert {(b, t) for b, t, _ in output.grad.nonzero().tolist()} == {*_valid()}


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("is_flat", [False, True])
def test_padded_positions_have_no_part_in_the_loss_of_values(size, is_flat):
    values = DataSpec(kind="sequence", shape=(6, 2), target="value", outputs=size, per_step=True)
    output, target = torch.randn(3, 6, size), torch.randn(3, 6, size)
    given = target.squeeze(-1) if is_flat and size == 1 else target
    expected = torch.stack([(output[at] - target[at]).square().mean() for at in _valid()]).mean()
    assert loss(output, given, values, LENGTHS).item() == pytest.approx(expected.item(), rel=1e-6)


def test_lengths_change_no_loss_where_there_is_one_answer_per_row():
    output, target = torch.randn(3, 4), torch.randint(4, (3,))
    assert torch.equal(loss(output, target, CLASSES, LENGTHS), loss(output, target, CLASSES))


def test_the_loss_of_padded_rows_works_for_many_lanes_at_once():
    outputs, target = torch.randn(5, 3, 6, 4), torch.randint(4, (3, 6))
    together = torch.func.vmap(lambda output: loss(output, target, PER_STEP, LENGTHS))(outputs)
    alone = torch.stack([loss(output, target, PER_STEP, LENGTHS) for output in outputs])
    torch.testing.assert_close(together, alone)


class _Padded(torch.nn.Module):
    """Four sums of each position; lengths are given and not needed."""

    def __init__(self) -> None:
        super().__init__()
        self.sums = torch.nn.Linear(2, 4)

    def forward(self, x, lengths=None):
        return self.sums(x)


@pytest.mark.parametrize("rows_at_once", [1, 2, 4096])
def test_evaluation_is_the_mean_over_all_valid_positions_however_they_are_spread(monkeypatch, rows_at_once):
    monkeypatch.setattr(data, "EVALUATION_ROWS", rows_at_once)
    x, y, module = torch.randn(3, 6, 2), torch.randint(4, (3, 6)), _Padded()
    result = evaluate(module, (x, y, LENGTHS), PER_STEP)
    output = module(x)
    assert result["loss"] == pytest.approx(loss(output, y, PER_STEP, LENGTHS).item(), rel=1e-5)
    right = [output[at].argmax() == y[at] for at in _valid()]
    assert result["accuracy"] == pytest.approx(sum(right).item() / len(right), rel=1e-6)


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
    seen = []
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
    (moved,) = to_device((windows,), torch.float64, torch.device("cpu"))
    assert moved.dtype == asked
    assert moved.untyped_storage().nbytes() == 100 * moved.element_size() < moved.numel() * moved.element_size()
    assert torch.equal(moved, windows.to(asked))


def test_windows_with_a_wrong_label_anywhere_are_refused(monkeypatch):
    monkeypatch.setattr(data, "BLOCK_BYTES", 30)
    tokens = DataSpec(kind="tokens", shape=(10,), vocab=100, outputs=98, per_step=True)
    with pytest.raises(NnexpError, match=r"labels of torch\.uint8 from 5 to 98; needed are whole numbers from 0 to 97"):
        check_split("train", (_windows(torch.uint8)[:-1], _windows(torch.uint8)[1:]), tokens)
