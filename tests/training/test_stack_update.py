"""The optimiser step of many lanes together is that of each lane alone, whatever rates they differ in."""

import pytest
import torch
from torch import nn

from nnexp import plugin
from nnexp.training.flat_weights import FlatWeights
from nnexp.training.optimizer_step import PureUpdate, StackUpdate, clip_gradient

SGD = plugin("trainer", "sgd")
RATES: dict[str, list[dict[str, float | None]]] = {
    "none": [{}, {}, {}],
    "lr": [{"lr": 0.1}, {"lr": 0.01}, {"lr": 1.0}],
    "weight_decay": [{"weight_decay": 0.0}, {"weight_decay": 0.5}, {"weight_decay": 0.01}],
    "clip_norm": [{"clip_norm": 0.1}, {"clip_norm": None}, {"clip_norm": 3.0}],
    "all": [{"lr": 0.1, "clip_norm": 0.1}, {"weight_decay": 0.5}, {"lr": 1.0, "weight_decay": 0.1, "clip_norm": 1.0}],
}


@pytest.fixture(params=RATES)
def updates(request) -> list[PureUpdate]:
    """Of three lanes, with a learning rate that rises and falls."""
    fixed = {"momentum": 0.9, "warmup_steps": 3, "schedule": "cosine", "max_steps": 10}
    return [PureUpdate(SGD(**fixed, **rates), FlatWeights(nn.Linear(3, 2).double())) for rates in RATES[request.param]]


def _stacked(updates: list[PureUpdate]) -> StackUpdate:
    return StackUpdate(updates, torch.stack([update.weights.vector.detach() for update in updates]))


def _gradients(step: int) -> torch.Tensor:
    return torch.linspace(-3, 5, 24, dtype=torch.float64).view(3, 8) / step


def _advance(updates: list[PureUpdate], together: StackUpdate) -> None:
    for step in range(1, 8):
        grads = _gradients(step)
        norms = torch.linalg.vector_norm(grads, dim=1)
        together.step(grads, norms, step)
        for update, g, norm in zip(updates, grads, norms, strict=True):
            update.step(clip_gradient(g, norm, update.trainer.clip_norm), step)


def test_weights_states_and_rates_are_those_of_each_lane_alone(updates):
    together = _stacked(updates)
    _advance(updates, together)
    for k, update in enumerate(updates):
        torch.testing.assert_close(together.weights[k], update.weights.vector.detach(), rtol=1e-12, atol=0)
        torch.testing.assert_close(together.row(k), update.state(), rtol=1e-12, atol=0)
        assert together.lr(8)[k].tolist() == pytest.approx([update.lr(8)], rel=1e-15)


def test_trial_updates_are_those_of_each_lane_alone_and_are_forgotten(updates):
    together = _stacked(updates)
    _advance(updates, together)
    before = together.weights.clone(), {name: value.clone() for name, value in together.state.items()}
    tried = together.trial_update(_gradients(8), 8)
    for update, mine, g in zip(updates, tried, _gradients(8), strict=True):
        torch.testing.assert_close(mine, update.trial_update(g, 8), rtol=1e-12, atol=0)
    torch.testing.assert_close((together.weights, together.state), before, rtol=0, atol=0)


def test_a_row_of_the_state_is_a_copy(updates):
    together = _stacked(updates)
    together.row(1)["velocity"].fill_(7)
    assert not together.state["velocity"].any()
