"""What the built-in plugins must reach, over five seeds of data and weights, in the settings of the claims."""

from __future__ import annotations

import pytest

FULL = ("trainer.batch_size=full", "trainer.lr=0.01")
PATTERN = ("dataset=pattern", *FULL, "trainer.max_steps=400", "trainer.clip_norm=1")
EDGES = ("dataset=edges", "dataset.num_train=100", *FULL, "trainer.max_steps=150")
VIT = ("model=vit", "model.hidden_size=12", "model.num_layers=1", "model.num_heads=2", "model.patch_size=3")


@pytest.mark.parametrize(
    ("overrides", "low", "high"),
    [
        (("dataset=moons", "model=linear", "trainer.max_steps=2000"), 0.857, 0.897),
        (("dataset=moons", "model=mlp"), 0.98, 1.0),
        ((*PATTERN, "model=rnn", "model.hidden_size=16"), 0.99, 1.0),
        ((*PATTERN, "model=mlp", "model.hidden_size=32"), 0.80, 0.92),
        ((*EDGES, "model=cnn"), 0.98, 1.0),
        ((*EDGES, "model=mlp", "model.hidden_size=64"), 0.3, 0.6),
        ((*EDGES, *VIT), 0.25, 0.6),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_the_mean_test_accuracy_lies_where_it_must(make_lane, overrides, low: float, high: float) -> None:
    accuracies = []
    for seed in range(5):
        lane = make_lane(*overrides, f"seed={seed}", f"dataset.seed={seed}")
        lane.advance(lane.trainer.max_steps)
        accuracies.append(lane.evaluate("test")["test/accuracy"])
    assert low <= sum(accuracies) / 5 <= high, accuracies


@pytest.mark.parametrize("bias", [1, 3])
def test_an_open_forget_gate_remembers_over_distractors(make_lane, bias: int) -> None:
    """The claims' task at length 24: fresh rows at every step; one failure in five allowed."""
    task = ("dataset.length=24", "dataset.window=8", "dataset.num_train=38400", "trainer.batch_size=64")
    solved = 0
    for seed in range(5):
        settings = ("model.hidden_size=16", f"model.forget_bias={bias}", "trainer.clip_norm=1", "trainer.max_steps=600")
        lane = make_lane(*task, *settings, f"seed={seed}", f"dataset.seed={seed}")
        lane.advance(600)
        solved += lane.evaluate("test")["test/accuracy"] >= 0.93
    assert solved >= 4
