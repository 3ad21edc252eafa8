"""Images with one edge: its place, orientation and polarity found again from the pixels."""

import pytest
import torch
from contract import splits
from contract.registry import plugin

from nnexp.data.seeding import seeded_generator

Edges = plugin("dataset", "edges")
SPLITS = ("train", "val", "test")


def _made(seed: int = 0, **values):
    return Edges(seeded_generator(seed, "data"), **values)


def _columns(image: torch.Tensor) -> set[int]:
    return set(image[0].abs().sum(0).nonzero().flatten().tolist())


def _rows(image: torch.Tensor) -> set[int]:
    return set(image[0].abs().sum(1).nonzero().flatten().tolist())


def _label(image: torch.Tensor) -> int:
    """The class, from the box of pixels that are not zero: 4 x 5 pixels, half of them dark."""
    rows, columns = sorted(_rows(image)), sorted(_columns(image))
    box = image[0][rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    if box.shape == (4, 5):
        first, second, horizontal = box[:2], box[2:], True
    else:
        assert box.shape == (5, 4)
        first, second, horizontal = box[:, :2], box[:, 2:], False
    assert first.unique().tolist() == [first[0, 0].item()]
    assert second.unique().tolist() == [-first[0, 0].item()]
    assert abs(first[0, 0].item()) == 1
    return 2 * horizontal + int(first[0, 0] > 0)


@pytest.mark.parametrize("values", [{}, {"size": 15}, {"shift": True}, {"size": 10, "shift": True}])
def test_the_label_is_the_orientation_and_polarity_of_the_edge(values):
    made = _made(noise=0.0, **values)
    for split in SPLITS:
        x, y = getattr(made, split)
        assert y.tolist() == [_label(image) for image in x]


@pytest.mark.parametrize("num_train", [4, 400, 402, 403])
def test_classes_are_balanced_to_the_last_image(num_train):
    counts = _made(num_train=num_train).train[1].bincount(minlength=4)
    assert counts.max() - counts.min() <= 1


def test_an_edge_may_stand_everywhere():
    images = _made(noise=0.0).test[0]
    places = {(min(_rows(image)), min(_columns(image)), len(_rows(image))) for image in images}
    assert places == {(top, left, 4) for top in range(9) for left in range(8)} | {
        (top, left, 5) for top in range(8) for left in range(9)
    }


@pytest.mark.parametrize("size", [10, 12, 15])
def test_with_a_shift_no_test_edge_touches_a_column_of_a_training_edge(size):
    made = _made(noise=0.0, shift=True, size=size)
    train, val, test = ([set.union(*map(_columns, getattr(made, split)[0]))] for split in SPLITS)
    assert train == val == [set(range(size // 2))]
    assert test == [set(range(size // 2, size))]


def test_noise_has_its_standard_deviation_and_moves_no_edge():
    quiet, loud = _made(noise=0.0), _made(noise=0.5)
    for split in SPLITS:
        assert torch.equal(getattr(quiet, split)[1], getattr(loud, split)[1])
    moved = loud.val[0] - quiet.val[0]
    assert moved.std().item() == pytest.approx(0.5, rel=0.02)


def test_the_number_of_training_images_changes_neither_of_the_other_splits():
    splits.training_rows_leave_the_others(_made)


def test_a_seed_gives_the_same_images_again_and_another_seed_gives_others():
    assert torch.equal(_made(3).train[0], _made(3).train[0])
    assert not torch.equal(_made(3).train[1], _made(4).train[1])
