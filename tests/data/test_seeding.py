"""Streams derived from seeds, and the global generators captured, carried and put back."""

import random

import numpy as np
import pytest
import torch

from nnexp.data.rng_state import get_rng_state, set_rng_state
from nnexp.data.seeding import LaneGenerators, derive_seed, seed_all, seeded, seeded_generator


def _draw() -> list[float]:
    """From every global generator, both kinds of draw that keep a spare number included."""
    python = [random.random(), random.gauss(0, 1), float(random.getrandbits(32))]
    numpy = [np.random.rand(), np.random.randn(), float(np.random.randint(1000))]
    return [*python, *numpy, *torch.rand(3).tolist(), torch.randn(1).item(), float(torch.randperm(50)[0])]


def _draw_and_fail() -> None:
    _draw()
    raise KeyError


def test_a_derived_seed_is_the_same_every_time_and_on_every_machine():
    assert (derive_seed(0, "model"), derive_seed(7, "epoch 3")) == (7291365262602469748, 414845991339452124)


def test_streams_and_seeds_give_different_derived_seeds():
    derived = {derive_seed(seed, stream) for seed in range(200) for stream in ("model", "order", "data", "epoch 1")}
    assert len(derived) == 800


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_a_derived_seed_is_one_that_torch_accepts(seed):
    assert 0 <= derive_seed(seed, "data") < 2**63
    torch.Generator().manual_seed(derive_seed(seed, "data"))


def test_a_generator_depends_on_seed_and_stream():
    first, same, other_stream, other_seed = (
        torch.rand(4, generator=seeded_generator(seed, stream)).tolist()
        for seed, stream in ((3, "a"), (3, "a"), (3, "b"), (4, "a"))
    )
    assert first == same
    assert first != other_stream
    assert first != other_seed


def test_a_captured_state_applied_gives_the_same_draws_from_all_three_libraries():
    seed_all(5)
    _draw()
    state = get_rng_state()
    first = _draw()
    assert _draw() != first
    set_rng_state(state)
    assert _draw() == first


@pytest.mark.parametrize("draw", [lambda: np.random.randn(), lambda: random.gauss(0, 1)], ids=["numpy", "python"])
def test_the_spare_gaussian_number_is_part_of_the_state(draw):
    draw()
    state = get_rng_state()
    spare = draw()
    draw()
    set_rng_state(state)
    assert draw() == spare


def test_applying_a_state_does_not_change_it():
    state = get_rng_state()
    set_rng_state(state)
    first = _draw()
    set_rng_state(state)
    assert _draw() == first


def test_a_captured_state_survives_being_saved(tmp_path):
    state = get_rng_state()
    torch.save(state, tmp_path / "state.pt")
    first = _draw()
    set_rng_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert _draw() == first


def test_seed_all_takes_the_largest_seed():
    seed_all(2**63 - 1)
    first = _draw()
    seed_all(2**63 - 1)
    assert _draw() == first


def test_a_seeded_block_leaves_no_trace_outside(undrawn):
    with undrawn(), seeded(9):
        inside = _draw()
    with seeded(9):
        assert _draw() == inside
    with seeded(10):
        assert _draw() != inside


def test_a_seeded_block_that_fails_leaves_no_trace_either(undrawn):
    with undrawn(), pytest.raises(KeyError), seeded(9):
        _draw_and_fail()


def test_generators_go_on_where_they_were_from_block_to_block(undrawn):
    with seeded(11):
        whole = [_draw(), _draw(), _draw()]
    generators = LaneGenerators(11)
    pieces = []
    for _ in range(3):
        with undrawn(), generators.active():
            pieces.append(_draw())
        _draw()
    assert pieces == whole


def test_making_generators_leaves_no_trace(undrawn):
    with undrawn():
        LaneGenerators(11)


def test_generators_put_the_outer_state_back_when_the_block_fails(undrawn):
    generators = LaneGenerators(1)
    with undrawn(), pytest.raises(KeyError), generators.active():
        _draw_and_fail()


def test_the_state_of_generators_can_be_kept_and_put_back():
    generators = LaneGenerators(2)
    with generators.active():
        _draw()
    kept = generators.state
    with generators.active():
        first = _draw()
    generators.state = kept
    with generators.active():
        assert _draw() == first


def test_two_generators_do_not_disturb_each_other():
    one, two = LaneGenerators(1), LaneGenerators(2)
    mixed = []
    for _ in range(2):
        with one.active():
            mixed.append(_draw())
        with two.active():
            _draw()
    with seeded(1):
        assert mixed == [_draw(), _draw()]
