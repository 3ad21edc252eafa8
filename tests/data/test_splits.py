"""Splits are checked where they enter: with or without lengths, labels of classes at both ends, real values."""

import pytest
import torch

from nnexp.base.errors import NnexpError
from nnexp.data.data_spec import DataSpec
from nnexp.data.splits import check_split

THREE = DataSpec(kind="sequence", shape=(4, 1), outputs=3)
VALUE = DataSpec(kind="sequence", shape=(4, 1), target="value", outputs=1)
X, LABELS, LENGTHS = torch.rand(6, 4, 1), torch.arange(6) % 3, 1 + torch.arange(6) % 4


@pytest.mark.parametrize("lengths", [(), (LENGTHS,)], ids=["whole", "padded"])
@pytest.mark.parametrize(("spec", "y"), [(THREE, LABELS), (THREE, LABELS.to(torch.uint8)), (VALUE, torch.rand(6))])
def test_a_sound_split_passes_with_and_without_lengths(spec, y, lengths):
    check_split("train", (X, y, *lengths), spec)


@pytest.mark.parametrize(
    ("split", "reason"),
    [
        ((), "must be a tuple"),
        ((X,), r"must be a tuple \(x, y\) or \(x, y, lengths\)"),
        ((X, LABELS[:5]), "must be a tuple"),
        ((X, LABELS, LENGTHS[:5]), "must be a tuple"),
        ((X[:0], LABELS[:0]), "must be a tuple"),
        ((X, [0] * 6), "must be a tuple"),
        ((X[:, :3], LABELS), r"inputs of shape \(3, 1\), its spec has shape \(4, 1\)"),
        ((X, LABELS + 1), "labels of torch.int64 from 1 to 3; its spec requires integers from 0 to 2"),
        ((X, LABELS - 1), "labels of torch.int64 from -1 to 1"),
        ((X, LABELS.float()), "labels of torch.float32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "split",
)
def test_a_split_that_is_not_what_its_spec_says_is_refused_with_the_reason(split, reason):
    with pytest.raises(NnexpError, match=f"the dataset's 'val' .*{reason}"):
        check_split("val", split, THREE)
