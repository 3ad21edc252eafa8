"""SGD and Adam against their papers' formulas, and the base that all trainers share."""

import pytest
import torch
from contract.registry import REGISTRY, plugin

from nnexp import Trainer

SGD, Adam = plugin("trainer", "sgd"), plugin("trainer", "adam")
WEIGHTS = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
GRADS = torch.tensor([0.3, -4.0, 1e-3], dtype=torch.float64)


def _steps(trainer, count: int, lr: float, weight_decay: float = 0.0) -> torch.Tensor:
    weights, state = WEIGHTS, trainer.init(WEIGHTS)
    for step in range(1, count + 1):
        weights, state = trainer.update(weights, GRADS, state, step, lr=lr, weight_decay=weight_decay)
    return weights


@pytest.mark.parametrize("weight_decay", [0, 0.0, 0.5])
def test_sgd_goes_straight_down_the_gradient(weight_decay):
    expected = [w - 0.1 * (g + weight_decay * w) for w, g in zip(WEIGHTS.tolist(), GRADS.tolist(), strict=True)]
    assert _steps(SGD(), 1, 0.1, weight_decay).tolist() == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
def test_momentum_adds_each_gradient_whole_to_what_is_left_of_those_before(weight_decay):
    w, v = WEIGHTS.tolist(), [0.0] * 3
    for _ in range(4):
        for i, g in enumerate(GRADS.tolist()):
            v[i] = 0.9 * v[i] + g + weight_decay * w[i]
            w[i] -= 0.1 * v[i]
    assert _steps(SGD(momentum=0.9), 4, 0.1, weight_decay).tolist() == pytest.approx(w, rel=1e-12)


def test_sgd_without_momentum_keeps_no_state():
    assert SGD().init(WEIGHTS) == {}


def test_weight_decay_alone_shrinks_weights_by_a_constant_factor():
    zero = torch.zeros_like(WEIGHTS)
    after, _ = SGD().update(WEIGHTS, zero, {}, 1, lr=0.1, weight_decay=0.5)
    torch.testing.assert_close(after, 0.95 * WEIGHTS, rtol=1e-15, atol=0)


@pytest.mark.parametrize("count", [1, 2, 50])
def test_adam_moves_by_the_learning_rate_a_step_where_the_gradient_is_constant(count):
    moved = WEIGHTS - _steps(Adam(), count, 0.01)
    torch.testing.assert_close(moved, 0.01 * count * GRADS.sign(), rtol=2e-5, atol=0)


@pytest.mark.parametrize("values", [{}, {"beta1": 0.5, "beta2": 0.7, "eps": 0.1}, {"beta1": 0.0, "beta2": 0.0}])
@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
def test_adam_is_algorithm_1_of_the_paper(values, weight_decay):
    trainer = Adam(**values)
    b1, b2, eps = trainer.beta1, trainer.beta2, trainer.eps
    w, grad = WEIGHTS.tolist(), GRADS.tolist()
    m, v = [0.0] * 3, [0.0] * 3
    for t in range(1, 8):
        for i in range(3):
            g = grad[i] + weight_decay * w[i]
            m[i], v[i] = b1 * m[i] + (1 - b1) * g, b2 * v[i] + (1 - b2) * g * g
            w[i] -= 0.01 * (m[i] / (1 - b1**t)) / ((v[i] / (1 - b2**t)) ** 0.5 + eps)
    assert _steps(trainer, 7, 0.01, weight_decay).tolist() == pytest.approx(w, rel=1e-12)


@pytest.mark.parametrize("values", [{}, {"beta1": 0.5, "beta2": 0.7, "eps": 0.1}])
def test_adams_own_parameters_reach_torchs_optimiser(values):
    trainer = Adam(**values)
    (group,) = trainer.optimizer([torch.nn.Parameter(WEIGHTS)]).param_groups
    assert group["betas"] == (trainer.beta1, trainer.beta2)
    assert group["eps"] == trainer.eps


def test_adam_with_a_gradient_of_zero_stays_where_it_is():
    zero = torch.zeros_like(WEIGHTS)
    after, _ = Adam().update(WEIGHTS, zero, Adam().init(WEIGHTS), 1, lr=0.01, weight_decay=0.0)
    assert torch.equal(after, WEIGHTS)


def test_the_base_says_what_a_trainer_must_define():
    with pytest.raises(TypeError, match=r"Trainer must define optimizer\(params\)"):
        Trainer().optimizer([])


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_trainer_has_all_parameters_of_the_base_with_its_own_defaults(name):
    trainer = REGISTRY.get("trainer", name)
    base = {"max_steps", "batch_size", "lr", "weight_decay", "clip_norm", "eval_every"}
    assert base <= set(trainer.parameters)
    made = trainer.load()()
    assert {key: getattr(made, key) for key in trainer.defaults} == trainer.defaults


@pytest.mark.parametrize("key", ["lr", "weight_decay", "clip_norm"])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_rates_may_differ_between_lanes_and_the_number_of_steps_may_not(name, key):
    parameters = REGISTRY.get("trainer", name).parameters
    assert parameters[key].per_lane
    assert not parameters["max_steps"].per_lane
