"""Every tensor of a split is checked where it enters: its shape, its type and its numbers, with field and row."""

from types import SimpleNamespace

import pytest
import torch

from nnexp.base.errors import NnexpError
from nnexp.data.data_spec import DataSpec
from nnexp.data.split_checks import check_spec, check_split, splits_in_training
from nnexp.data.splits import to_device

THREE = DataSpec(kind="sequence", shape=(4, 1), outputs=3)
VALUE = DataSpec(kind="sequence", shape=(4, 1), target="value", outputs=1)
EACH = DataSpec(kind="sequence", shape=(4, 1), outputs=3, per_step=True)
VALUES = DataSpec(kind="sequence", shape=(4, 1), target="value", outputs=2, per_step=True)
TOKENS = DataSpec(kind="tokens", shape=(4,), outputs=3, vocab=5)
X, LABELS, LENGTHS = torch.rand(6, 4, 1), torch.arange(6) % 3, 1 + torch.arange(6) % 4
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.int64]
NAN = X.clone()
NAN[4, 1] = float("nan")
WINDOWS = torch.arange(9).remainder(5).unfold(0, 4, 1)


@pytest.mark.parametrize("lengths", [(), (LENGTHS,), (LENGTHS.int(),)], ids=["whole", "padded", "padded int32"])
@pytest.mark.parametrize(
    ("spec", "y"),
    [
        *[(THREE, LABELS.to(dtype)) for dtype in INTEGERS],
        (THREE, LABELS > 1),
        (VALUE, torch.rand(6)),
        (VALUE, torch.rand(6, 1)),
        (EACH, LABELS[:, None].expand(6, 4)),
        (VALUES, torch.rand(6, 4, 2)),
    ],
)
def test_a_sound_split_passes_with_and_without_lengths(spec, y, lengths):
    check_split("data", (X, y, *lengths), spec)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_tokens_are_of_any_integer_type_and_may_be_windows(dtype):
    check_split("data", (WINDOWS.to(dtype), LABELS), TOKENS)
    check_split("data", (WINDOWS, LABELS), TOKENS)


@pytest.mark.parametrize(
    ("spec", "split", "reason"),
    [
        (THREE, (), "must be a tuple"),
        (THREE, (X,), r"must be a tuple \(x, y\) or \(x, y, lengths\)"),
        (THREE, (X, LABELS[:5]), "must be a tuple"),
        (THREE, (X, LABELS, LENGTHS[:5]), "must be a tuple"),
        (THREE, (X, LABELS, LENGTHS, torch.ones(6)), "must be a tuple"),
        (THREE, (X[:0], LABELS[:0]), "must be a tuple"),
        (THREE, (X, [0] * 6), "must be a tuple"),
        (THREE, (X[:, :3], LABELS), r"x has shape \(6, 3, 1\); its spec requires \(6, 4, 1\)"),
        (THREE, ((255 * X).byte(), LABELS), "x is of torch.uint8; its spec requires finite real numbers"),
        (THREE, (X.to(torch.cfloat), LABELS), "x is of torch.complex64"),
        (THREE, (NAN, LABELS), r"x\[4\] contains nan; it must hold finite real numbers"),
        (THREE, (NAN.nan_to_num(float("-inf")), LABELS), r"x\[4\] contains -inf"),
        (THREE, (X, LABELS + 1), r"y\[2\] is 3; it must hold integers from 0 to 2"),
        (THREE, (X, LABELS - 1), r"y\[0\] is -1"),
        (THREE, (X, LABELS.float()), "y is of torch.float32; its spec requires integers from 0 to 2"),
        (THREE, (X, LABELS[:, None]), r"y has shape \(6, 1\); its spec requires \(6,\)"),
        (EACH, (X, LABELS), r"y has shape \(6,\); its spec requires \(6, 4\)"),
        (VALUE, (X, LABELS), "y is of torch.int64; its spec requires finite real numbers"),
        (VALUE, (X, NAN[:, 1, 0]), r"y\[4\] is nan"),
        (VALUES, (X, torch.rand(6, 2, 4)), r"y has shape \(6, 2, 4\); its spec requires \(6, 4, 2\)"),
        (VALUES, (X, torch.rand(6, 8)), r"y has shape \(6, 8\)"),
        (THREE, (X, LABELS, torch.rand(6)), "lengths is of torch.float32; its spec requires integers from 1 to 4"),
        (THREE, (X, LABELS, LENGTHS - 1), r"lengths\[0\] is 0"),
        (THREE, (X, LABELS, LENGTHS + 1), r"lengths\[3\] is 5; it must hold integers from 1 to 4"),
        (EACH, (X, LABELS[:, None].expand(6, 4), -LENGTHS), r"lengths\[0\] is -1"),
        (THREE, (X, LABELS, torch.ones(6, 4).long()), r"lengths has shape \(6, 4\); its spec requires \(6,\)"),
        (TOKENS, (WINDOWS + 1, LABELS), r"x\[1\] contains 5; it must hold integers from 0 to 4"),
        (TOKENS, (X[..., 0], LABELS), "x is of torch.float32; its spec requires integers from 0 to 4"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_split_that_is_not_what_its_spec_says_is_refused_with_field_and_row(spec, split, reason):
    with pytest.raises(NnexpError, match=f"dataset 'mine', split 'val': .*{reason}"):
        check_split("dataset 'mine', split 'val'", split, spec)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
def test_integers_keep_a_type_with_which_torch_computes(dtype):
    x, y, lengths = to_device((X, LABELS.to(dtype), LENGTHS.to(dtype)), torch.float64, torch.device("cpu"))
    assert (x.dtype, lengths.dtype) == (torch.float64, torch.int64)
    assert y.dtype == (torch.int64 if dtype in (torch.bool, torch.uint16) else dtype)


def test_windows_are_right_where_only_numbers_outside_of_them_are_wrong():
    text = torch.tensor([9, 0, 1, 2, 3, 4, 0, 1, 2, 3])
    check_split("data", (text[1:].unfold(0, 4, 1), LABELS), TOKENS)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"kind": "sequences"}, "spec.kind is 'sequences'; it is one of vector, sequence, tokens, image"),
        ({"target": "labels"}, "spec.target is 'labels'; it is one of class, value"),
        ({"outputs": 0}, "spec.outputs is 0; it is an integer of at least 1"),
        ({"shape": (4, 0)}, r"spec.shape\[1\] is 0"),
        ({"shape": (4,)}, r"spec.shape is \(4,\); sequence data have 2 axes"),
        ({"kind": "tokens", "shape": (4,)}, "spec.vocab is 0"),
    ],
)
def test_a_spec_that_describes_no_data_is_refused(values, reason):
    with pytest.raises(NnexpError, match=f"dataset 'mine': {reason}"):
        check_spec("dataset 'mine'", DataSpec(**{"kind": "sequence", "shape": (4, 1), **values}))
    with pytest.raises(NnexpError, match=r"dataset 'mine' must set self.spec to a DataSpec"):
        check_spec("dataset 'mine'", None)


def test_splits_that_share_rows_with_training_are_told_and_parts_of_one_text_are_not():
    text = torch.arange(40)
    train, apart, inside = text[:20].unfold(0, 4, 1), text[20:].unfold(0, 4, 1), text[17:].unfold(0, 4, 1)
    dataset = SimpleNamespace(train=(train,), val=(apart,), test=(inside,))
    assert splits_in_training(dataset) == ["test"]
    assert splits_in_training(SimpleNamespace(train=(train,), val=(train[:3],), test=(train,))) == ["val", "test"]
