"""The digits of scikit-learn, each in one split."""

from collections import Counter

import pytest
import torch
from contract.registry import plugin
from sklearn.datasets import load_digits

from nnexp.data.seeding import seeded_generator

Digits = plugin("dataset", "digits")
SPLITS = ("train", "val", "test")


def _made(seed: int = 0, **values):
    return Digits(seeded_generator(seed, "data"), **values)


def _keys(x: torch.Tensor, y: torch.Tensor) -> list[tuple[bytes, int]]:
    return [(row.numpy().tobytes(), label) for row, label in zip(x.flatten(1), y.tolist(), strict=True)]


@pytest.mark.parametrize("values", [{}, {"num_val": 10, "num_test": 700}])
def test_the_splits_together_are_the_rows_of_scikit_learn_each_with_its_label_and_once(values):
    images, labels = load_digits(return_X_y=True)
    source = _keys(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    made = _made(**values)
    assert Counter(key for split in SPLITS for key in _keys(*getattr(made, split))) == Counter(source)
    assert len({image for image, _ in source}) == len(source) == 1797  # so no image is in two splits


def test_splits_have_the_sizes_asked_for_and_training_the_rest():
    made = _made(num_val=30, num_test=50)
    assert [len(getattr(made, split)[0]) for split in SPLITS] == [1717, 30, 50]


def test_an_image_stands_upright():
    images = load_digits().images
    made = _made()
    whole = {image.numpy().tobytes() for image in made.train[0][:, 0] * 16}
    assert sum(torch.tensor(image, dtype=torch.float32).numpy().tobytes() in whole for image in images) == 997


def test_pixels_are_from_0_to_1():
    x = _made().train[0]
    assert (x.min().item(), x.max().item()) == (0.0, 1.0)


def test_every_class_is_in_every_split_about_as_often():
    for split in SPLITS:
        counts = getattr(_made(), split)[1].bincount(minlength=10)
        assert counts.min() > 0.5 * counts.max()


def test_a_seed_gives_the_same_split_again_and_another_seed_gives_another():
    assert torch.equal(_made(3).test[0], _made(3).test[0])
    assert not torch.equal(_made(3).test[0], _made(4).test[0])
