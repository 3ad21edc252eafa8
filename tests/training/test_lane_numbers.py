"""What a lane's numbers are: losses, norms, learning rate, clipping, seeds, and where it pauses."""

import itertools

import pytest
import torch
from torch.nn import functional as F

pytestmark = pytest.mark.slow


MOONS = ("dataset=moons", "model=mlp", "trainer=sgd")


def test_a_row_has_the_loss_and_the_norm_of_the_gradient_of_its_batch(make_lane):
    lane = make_lane(*MOONS, "trainer.batch_size=full", "precision=64")
    x, y = lane.splits["train"]
    loss = F.cross_entropy(lane.module(x), y)
    norm = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(lane.module.parameters()))]).norm()
    rows = lane.advance(1)
    assert (rows.first, len(rows)) == (1, 1)
    row = rows.row(1)
    assert row["train/loss"] == pytest.approx(loss.item(), rel=1e-12)
    assert row["grad_norm"] == pytest.approx(norm.item(), rel=1e-12)
    assert row["lr"] == 0.1


@pytest.mark.parametrize("model", ["lstm", "mlp"])
def test_the_layers_norms_make_up_the_whole(make_lane, model):
    lane = make_lane("dataset=moons", f"model={model}", "trainer.max_steps=5", "precision=64")
    rows = lane.advance(5)
    for step in range(1, 6):
        row = rows.row(step)
        layers = [value for name, value in row.items() if name.startswith("grad_norm/")]
        assert len(layers) == len(lane.weights.layers) == 2
        assert sum(v * v for v in layers) ** 0.5 == pytest.approx(row["grad_norm"], rel=1e-12)


@pytest.mark.parametrize("max_steps", [1, 7, 200, 201, 1000, 4001])
def test_a_bounded_number_of_steps_has_layer_norms_the_first_and_the_last_among_them(make_lane, max_steps):
    lane = make_lane(*MOONS, f"trainer.max_steps={max_steps}")
    recorded = [step for step in range(1, max_steps + 1) if lane.is_recorded(step)]
    assert recorded[0] == 1
    assert recorded[-1] == max_steps
    assert min(max_steps, 100) <= len(recorded) <= 202


def test_only_recorded_steps_have_layer_norms_and_every_step_has_a_loss(make_lane):
    lane = make_lane(*MOONS, "trainer.max_steps=1000")
    both = lane.advance(12), lane.advance(23)
    assert [(rows.first, len(rows.losses), len(rows.norms)) for rows in both] == [(1, 12, 12), (13, 11, 11)]
    assert [list(rows.sparse) for rows in both] == [[1, 5, 10], [15, 20]]
    assert all(
        set(row) == {"lr", "grad_norm/hidden.0", "grad_norm/head"} for rows in both for row in rows.sparse.values()
    )


def test_columns_are_all_that_rows_and_evaluations_hold(make_lane):
    lane = make_lane(*MOONS, "trainer.max_steps=1")
    row = lane.advance(1).row(1)
    evaluated = [name for split in ("val", "test") for name in lane.evaluate(split)]
    assert lane.columns == [*["train/loss", "grad_norm", "lr", "grad_norm/hidden.0", "grad_norm/head"], *evaluated]
    assert set(row) <= set(lane.columns)


def test_clipping_bounds_the_step_and_not_the_norm_that_is_recorded(make_lane):
    lane = make_lane(*MOONS, "trainer.clip_norm=0.01", "trainer.lr=1", "precision=64")
    before = lane.weights.vector.clone()
    assert lane.advance(1).norms[0] > 0.05
    assert (lane.weights.vector - before).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_the_network_of_the_moons_has_82_weights(make_lane):
    assert make_lane(*MOONS).num_weights == 82


def test_accuracy_and_loss_are_those_of_the_whole_split(make_lane):
    lane = make_lane(*MOONS)
    lane.advance(50)
    x, y = lane.splits["val"]
    output = lane.module(x)
    result = lane.evaluate("val")
    assert result["val/accuracy"] == pytest.approx((output.argmax(1) == y).double().mean().item(), rel=1e-6)
    assert result["val/loss"] == pytest.approx(F.cross_entropy(output, y).item(), rel=1e-5)


def test_training_lowers_the_loss(make_lane):
    lane = make_lane(*MOONS)
    before = lane.evaluate("val")
    lane.advance(300)
    after = lane.evaluate("val")
    assert after["val/loss"] < 0.6 * before["val/loss"]
    assert after["val/accuracy"] > 0.85


@pytest.mark.parametrize(
    ("key", "same_data", "same_weights", "same_order"),
    [
        ("dataset.seed", False, True, None),
        ("model.seed", True, False, True),
        ("trainer.seed", True, True, False),
        ("seed", True, False, False),
    ],
)
def test_each_seed_decides_its_own_part_and_no_other(make_lane, key, same_data, same_weights, same_order):
    one, other = make_lane(*MOONS), make_lane(*MOONS, f"{key}=5")
    for split in ("train", "val", "test"):
        assert torch.equal(one.splits[split][0], other.splits[split][0]) == same_data
    assert torch.equal(one.weights.vector, other.weights.vector) == same_weights
    if same_order is not None:
        batches = [next(lane.batches.take(1, 1))[0] for lane in (one, other)]
        assert torch.equal(*batches) == same_order


def test_no_steps_train_nothing(make_lane):
    lane = make_lane(*MOONS, "trainer.max_steps=0")
    before = lane.weights.vector.clone()
    assert len(lane.advance(0)) == 0
    assert torch.equal(lane.weights.vector, before)
    assert set(lane.evaluate("val")) == {"val/loss", "val/accuracy"}


@pytest.mark.parametrize("after", [0, 1, 17])
def test_a_stop_pauses_between_updates_and_training_goes_on_bit_for_bit(make_lane, after):
    whole, paused = make_lane(*MOONS), make_lane(*MOONS)
    asked = itertools.count()
    paused.should_stop = lambda: next(asked) == after
    rows = paused.advance(40)
    assert (len(rows), paused.step) == (after, after)
    rest, expected = paused.advance(40), whole.advance(40)
    assert rest.first == after + 1
    assert rows == expected.head(after)
    assert (rows.losses + rest.losses, rows.norms + rest.norms) == (expected.losses, expected.norms)
    assert rows.sparse | rest.sparse == expected.sparse
    assert torch.equal(paused.weights.vector, whole.weights.vector)


def test_64_bits_start_from_the_same_weights_as_32_and_part_by_rounding_only(make_lane):
    single, double = make_lane(*MOONS), make_lane(*MOONS, "precision=64")
    assert torch.equal(single.weights.vector.double(), double.weights.vector)
    losses = [lane.advance(20).losses for lane in (single, double)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] != losses[1]
