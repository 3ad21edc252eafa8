"""What a probe is given is what training goes on with, and is the probe's own."""

from __future__ import annotations

import pytest
import torch

from nnexp.rundir.checkpoint import digest


@pytest.mark.parametrize("trainer", ["adam", "sgd"])
@pytest.mark.parametrize("overrides", [["dataset=moons", "model=mlp"], ["dataset=pattern", "model=lstm"]], ids=str)
def test_its_update_is_the_one_that_training_makes_next(make_lane, view_of, trainer: str, overrides: list[str]) -> None:
    job = [*overrides, f"trainer={trainer}", "trainer.clip_norm=0.01", "trainer.weight_decay=0.1"]
    update, lane = view_of(*job, step=7).update, make_lane(*job)
    lane.advance(7)
    before = lane.weights.vector.clone()
    rows = lane.advance(8)
    assert torch.equal(update.weights, before)
    assert torch.equal(update.change, lane.weights.vector - before)
    assert update.loss.item() == pytest.approx(rows.losses[0], rel=1e-6)
    assert torch.linalg.vector_norm(update.gradient).item() == pytest.approx(rows.norms[0], rel=1e-5)
    assert torch.linalg.vector_norm(update.clipped).item() <= 0.01 * (1 + 1e-5)
    assert update.layers == lane.weights.layers
    norms = update.layer_norms(update.gradient)
    assert torch.linalg.vector_norm(norms).item() == pytest.approx(rows.norms[0], rel=1e-5)


def test_asking_for_the_update_leaves_the_model_as_it_is(view_of) -> None:
    view = view_of("dataset=moons", "model=mlp", step=3)
    before = view.weights.vector.clone()
    assert not view.module.training
    assert view.update is view.update
    assert torch.equal(view.weights.vector, before)
    assert not view.module.training


@pytest.mark.parametrize("model", ["mlp", "cnn", "gru", "vit"])
def test_in_64_bits_it_is_the_same_model_on_the_same_rows(view_of, model: str) -> None:
    view = view_of("dataset=edges", f"model={model}", step=5)
    x, y, *_ = view.rows("val", 9)
    with view.exact() as exact:
        more, same, *_ = exact.rows("val", 9)
        assert exact.step == 5
        assert exact.module(more).dtype == torch.float64 == torch.ones(1).dtype
        torch.testing.assert_close(exact.module(more).float(), view.module(x), rtol=1e-4, atol=1e-5)
        assert exact.loss(exact.module(more), same).item() == pytest.approx(
            view.loss(view.module(x), y).item(), rel=1e-4
        )
    assert torch.ones(1).dtype == torch.float32


def test_rows_are_copies_and_no_more_than_there_are(view_of) -> None:
    view = view_of("dataset=pattern", "dataset.min_length=10", "model=gru")
    x, y, lengths = view.rows("train", 10**6)
    assert len(x) == len(y) == len(lengths) == 1024
    before = digest([*view.rows("train", 5)])
    for t in (x, y, lengths):
        t.zero_()
    assert digest([*view.rows("train", 5)]) == before
