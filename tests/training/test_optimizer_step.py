"""One update through pure functions or through an optimiser of torch, and clipping."""

import copy
import math

import pytest
import torch
from torch import nn

from nnexp.base import NnexpError
from nnexp.training.flat_weights import FlatWeights
from nnexp.training.optimizer_step import PureUpdate, TorchUpdate, clip_gradient, make_update
from nnexp.training.trainer_base import Trainer


class RootMeanSquare(Trainer):
    """A trainer that only has an optimiser, with a state of its own."""

    def optimizer(self, params):
        return torch.optim.RMSprop(params, lr=self.lr, momentum=0.9, weight_decay=self.weight_decay)


class Heavy(Trainer):
    """A trainer with pure functions, a state, and a use of the step."""

    def init(self, weights):
        return {"speed": torch.zeros_like(weights)}

    def update(self, weights, grads, state, step, *, lr, weight_decay):
        speed = 0.9 * state["speed"] + grads + weight_decay * weights
        return weights - lr / step * speed, {"speed": speed}


TRAINERS = [RootMeanSquare(lr=0.01, weight_decay=0.1), Heavy(lr=0.01, weight_decay=0.1)]
by_trainer = pytest.mark.parametrize("trainer", TRAINERS, ids=lambda t: type(t).__name__)


def _weights() -> FlatWeights:
    torch.manual_seed(0)
    return FlatWeights(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double())


def _train(weights: FlatWeights, update: PureUpdate | TorchUpdate, first: int, last: int) -> None:
    for step in range(first, last + 1):
        update.step(weights.vector.detach() * 0.5 + 0.01 * step, step)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("clip_norm", [0.1, 1.0, 50.0])
def test_clipping_is_that_of_torch(scale, clip_norm):
    weights = _weights()
    grads = [torch.randn_like(p) * scale for p in weights.params]
    flat = torch.cat([g.flatten() for g in grads])
    clipped = clip_gradient(flat, torch.linalg.vector_norm(flat), clip_norm)
    for p, grad in zip(weights.params, grads, strict=True):
        p.grad = grad.clone()
    nn.utils.clip_grad_norm_(weights.params, clip_norm)
    expected = torch.cat([p.grad.flatten() for p in weights.params])
    torch.testing.assert_close(clipped, expected, rtol=1e-12, atol=0)


def test_clipping_leaves_a_small_gradient_and_the_given_one_alone():
    grads = torch.tensor([3.0, 4.0])
    assert torch.equal(clip_gradient(grads, grads.norm(), 100.0), grads)
    assert clip_gradient(grads, grads.norm(), 1.0).norm().item() == pytest.approx(1.0, rel=1e-5)
    assert grads.tolist() == [3.0, 4.0]


def test_no_clip_norm_does_not_clip():
    grads = torch.full((4,), 1e30)
    assert clip_gradient(grads, grads.norm(), None) is grads


def test_a_trainer_with_pure_functions_is_trained_through_them_and_any_other_through_its_optimiser():
    assert isinstance(make_update(Heavy(), _weights()), PureUpdate)
    assert isinstance(make_update(RootMeanSquare(), _weights()), TorchUpdate)


@pytest.mark.parametrize("missing", ["init", "update"])
def test_half_of_the_pure_functions_is_refused(missing):
    half = {"init": Heavy.init, "update": Heavy.update, "optimizer": RootMeanSquare.optimizer}
    del half[missing]
    with pytest.raises(NnexpError, match=r"trainer Half defines `.*`: it takes both `init` and `update`"):
        make_update(type("Half", (Trainer,), half)(), _weights())


def test_an_optimiser_of_torch_moves_the_vector_as_it_moves_the_parameters():
    weights, reference = _weights(), _weights()
    _train(weights, make_update(TRAINERS[0], weights), 1, 10)
    optimizer = TRAINERS[0].optimizer(reference.params)
    for step in range(1, 11):
        flat = reference.vector.detach() * 0.5 + 0.01 * step
        for p, part in zip(reference.params, flat.split([p.numel() for p in reference.params]), strict=True):
            p.grad = part.view(p.shape).clone()
        optimizer.step()
    assert torch.equal(weights.vector, reference.vector)
    assert torch.equal(weights.vector, torch.cat([p.detach().flatten() for p in weights.params]))


def test_pure_functions_get_weights_gradient_and_step():
    weights = _weights()
    before = weights.vector.clone()
    make_update(Heavy(lr=0.5, weight_decay=0.1), weights).step(torch.ones_like(before), 2)
    torch.testing.assert_close(weights.vector, before - 0.5 / 2 * (1 + 0.1 * before), rtol=1e-14, atol=1e-14)


@by_trainer
def test_an_update_moves_the_weights_and_keeps_the_parameters_views(trainer):
    weights = _weights()
    before = weights.vector.clone()
    _train(weights, make_update(trainer, weights), 1, 1)
    assert not torch.equal(weights.vector, before)
    assert torch.equal(weights.vector, torch.cat([p.detach().flatten() for p in weights.params]))


@by_trainer
def test_a_state_is_a_snapshot_from_which_training_goes_on_bit_for_bit(trainer):
    weights = _weights()
    update = make_update(trainer, weights)
    _train(weights, update, 1, 10)
    state, middle = update.state(), weights.vector.clone()
    kept = copy.deepcopy(state)
    _train(weights, update, 11, 20)
    fresh = _weights()
    fresh.set(middle)
    again = make_update(trainer, fresh)
    again.restore(state)
    _train(fresh, again, 11, 20)
    assert torch.equal(fresh.vector, weights.vector)
    _assert_same(state, kept)


@by_trainer
def test_an_update_can_go_back_to_its_own_earlier_state(trainer):
    weights = _weights()
    update = make_update(trainer, weights)
    _train(weights, update, 1, 5)
    state, middle = update.state(), weights.vector.clone()
    ends = []
    for _ in range(2):
        weights.set(middle)
        update.restore(state)
        _train(weights, update, 6, 12)
        ends.append(weights.vector.clone())
    assert torch.equal(*ends)


def _assert_same(one: dict, other: dict) -> None:
    for value, expected in zip(_tensors(one), _tensors(other), strict=True):
        assert torch.equal(value, expected)


def _tensors(state: object) -> list[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return [state]
    return [t for value in state.values() for t in _tensors(value)] if isinstance(state, dict) else []


@by_trainer
def test_the_learning_rate_is_the_trainers(trainer):
    assert make_update(trainer, _weights()).lr(1) == 0.01


class Halves(Trainer):
    """Its rate is halved at each update; `init` and `update` are added in a test."""

    def lr_factor(self, step):
        return 0.5**step

    def optimizer(self, params):
        return torch.optim.SGD(params, lr=self.lr)


class HalvesPurely(Halves):
    def init(self, weights):
        return {}

    def update(self, weights, grads, state, step, *, lr, weight_decay):
        return weights - lr * grads, state


@pytest.mark.parametrize("kind", [Halves, HalvesPurely])
def test_the_trainers_own_schedule_is_what_moves_the_weights_and_what_is_shown(kind):
    weights = _weights()
    update, before = make_update(kind(lr=0.8), weights), weights.vector.clone()
    for step in (1, 2, 3):
        update.step(torch.ones_like(before), step)
        assert update.lr(step) == 0.8 * 0.5**step
    torch.testing.assert_close(weights.vector, before - 0.8 * (0.5 + 0.25 + 0.125))


@pytest.mark.parametrize("answer", [None, "0.1", float("nan"), torch.tensor(0.5)])
@pytest.mark.parametrize("kind", [Halves, HalvesPurely])
def test_a_schedule_that_returns_no_number_is_refused(kind, answer):
    update = make_update(type("Own", (kind,), {"lr_factor": lambda self, step: answer})(), _weights())
    with pytest.raises(NnexpError, match=r"trainer Own: lr_factor\(3\) returned .*, which is not a finite number"):
        update.step(torch.ones_like(update.weights.vector), 3)


def test_an_optimiser_that_changes_its_rate_itself_is_refused():
    def optimizer(self, params):
        made = torch.optim.SGD(params, lr=self.lr)
        schedule = torch.optim.lr_scheduler.ExponentialLR(made, 0.5)
        made.register_step_post_hook(lambda *_: schedule.step())
        return made

    update = make_update(type("Own", (Trainer,), {"optimizer": optimizer})(), _weights())
    with pytest.raises(NnexpError, match=r"at update 1 from \[0.01\] to \[0.005\].* Override lr_factor"):
        update.step(torch.ones_like(update.weights.vector), 1)


def test_a_trainer_without_an_optimiser_says_what_it_must_define():
    with pytest.raises(TypeError, match=r"Bare must define optimizer\(params\)"):
        make_update(type("Bare", (Trainer,), {})(), _weights())


class TorchDescent(Trainer):
    def optimizer(self, params):
        return torch.optim.SGD(params, lr=self.lr)


class PureDescent(Trainer):
    def init(self, weights):
        return {}

    def update(self, weights, grads, state, step, *, lr, weight_decay):
        return weights - lr * grads, state


HALF = 0.25 * 2**0.5


@pytest.mark.parametrize(
    ("settings", "factors"),
    [
        ({}, [1.0] * 8),
        ({"warmup_steps": 4}, [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ({"schedule": "cosine"}, [0.5 + 0.5 * math.cos(math.pi * k / 8) for k in range(8)]),
        ({"warmup_steps": 4, "schedule": "cosine"}, [0.25, 0.5, 0.75, 1.0, 1.0, 0.5 + HALF, 0.5, 0.5 - HALF]),
    ],
)
@pytest.mark.parametrize("trainer", [TorchDescent, PureDescent])
def test_the_learning_rate_follows_the_schedule_and_so_do_the_steps(trainer, settings, factors):
    update = make_update(trainer(max_steps=8, lr=0.5, **settings), _weights())
    for step, factor in enumerate(factors, 1):
        before = update.weights.vector.clone()
        assert update.lr(step) == pytest.approx(0.5 * factor)
        update.step(torch.ones_like(before), step)
        torch.testing.assert_close(update.weights.vector, before - 0.5 * factor, rtol=0, atol=1e-12)
