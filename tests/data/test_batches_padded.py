"""Labels of any integer type, and padded positions, which have no part in loss and metrics."""

import pytest
import torch
from torch.nn import functional as F

from nnexp.data.data_spec import DataSpec
from nnexp.data.losses import loss
from nnexp.data.metrics import evaluate
from nnexp.data.split_checks import check_split

ROWS = 23
CLASSES = DataSpec(kind="vector", shape=(3,), outputs=4)
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
    monkeypatch.setattr("nnexp.data.metrics.MAX_PREDICTIONS", rows_at_once)
    x, y, module = torch.randn(3, 6, 2), torch.randint(4, (3, 6)), _Padded()
    result = evaluate(module, (x, y, LENGTHS), PER_STEP)
    output = module(x)
    assert result["loss"] == pytest.approx(loss(output, y, PER_STEP, LENGTHS).item(), rel=1e-5)
    right = [output[at].argmax() == y[at] for at in _valid()]
    assert result["accuracy"] == pytest.approx(sum(right).item() / len(right), rel=1e-6)
