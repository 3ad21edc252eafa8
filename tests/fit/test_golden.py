"""Golden curves: fixed seeds give the losses that are in git. `python tests/test_golden.py` writes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nnexp.config.sweep_jobs import compose_jobs
from nnexp.registry.discovery import discover
from nnexp.training.lane import Lane

FOLDER = Path(__file__).parent.parent / "golden"
CURVES = {
    "moons-mlp-adam": ["dataset=moons", "model=mlp"],
    "moons-mlp-sgd-clip-decay": [
        "dataset=moons",
        "model=mlp",
        "trainer=sgd",
        "trainer.clip_norm=0.5",
        "trainer.weight_decay=0.01",
    ],
    "moons-mlp-relu-normal-full": [
        "dataset=moons",
        "model=mlp",
        "model.activation=relu",
        "model.init=normal",
        "trainer.batch_size=full",
    ],
    "pattern-lstm-adam": ["dataset=pattern", "model=lstm", "model.hidden_size=8"],
    "pattern-lstm-two-layers": [
        "dataset=pattern",
        "model=lstm",
        "model.hidden_size=5",
        "model.num_layers=2",
        "model.forget_bias=3",
    ],
}
STEPS = 60


def curve(overrides: list[str]) -> list[float]:
    """Losses of the first updates, in 64 bits, so that they agree between machines."""
    registry = discover()
    job = compose_jobs([*overrides, "precision=64", f"trainer.max_steps={STEPS}", "seed=7"], registry)[0]
    lane = Lane(job, registry, torch.device("cpu"), lambda: False)
    return lane.advance(STEPS).losses


@pytest.mark.parametrize("name", CURVES)
def test_a_fixed_seed_gives_the_curve_in_git(name: str) -> None:
    expected = [float(line) for line in (FOLDER / f"{name}.txt").read_text().splitlines()]
    assert curve(CURVES[name]) == pytest.approx(expected, rel=1e-9)


def test_every_curve_in_git_is_tested() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(CURVES)


if __name__ == "__main__":
    for name, overrides in CURVES.items():
        (FOLDER / f"{name}.txt").write_text("".join(f"{value:.12g}\n" for value in curve(overrides)))
