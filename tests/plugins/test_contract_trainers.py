"""What every trainer that is found must keep, and every combination of plugins in training."""

import itertools

import pytest
import torch
from contract import trainers
from contract.combinations import cover, covering, slow_but
from contract.readme import REGISTRY
from contract.trainers import by_optimizer, moving_bowl, purely, start

TRAINERS = {name: REGISTRY.get("trainer", name).load() for name in REGISTRY.names("trainer")}
PURE = [name for name, made in TRAINERS.items() if trainers.is_pure(made)]
VARIANTS = [(name, values) for name in TRAINERS for values in trainers.variants(REGISTRY.get("trainer", name))]
EVERY_TWO = covering(REGISTRY.names("dataset"), REGISTRY.names("model"), list(TRAINERS))

every_trainer = pytest.mark.parametrize("name", TRAINERS)
every_pure_trainer = pytest.mark.parametrize("name", PURE)
every_variant = pytest.mark.parametrize(("name", "values"), VARIANTS, ids=str)
every_pure_variant = pytest.mark.parametrize(("name", "values"), [v for v in VARIANTS if v[0] in PURE], ids=str)
decayed = pytest.mark.parametrize("weight_decay", [0.0, 0.1])


@every_trainer
@decayed
def test_the_optimizer_takes_lr_and_weight_decay_from_the_trainer(name, weight_decay):
    optimizer = TRAINERS[name](lr=0.003, weight_decay=weight_decay).optimizer([torch.nn.Parameter(torch.ones(2))])
    assert [(g["lr"], g["weight_decay"]) for g in optimizer.param_groups] == [(0.003, weight_decay)]


@every_trainer
def test_the_optimizer_moves_the_weights_at_every_step(name):
    path = [first := start(), *by_optimizer(TRAINERS[name](), first)]
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(path))


@every_variant
def test_a_bowl_is_descended(name, values):
    trainers.descends_a_bowl(TRAINERS[name], **values)


@every_pure_variant
@decayed
def test_the_pure_update_is_that_of_torchs_own_optimiser(name, values, weight_decay):
    trainers.updates_purely_as_torchs_own_optimiser(TRAINERS[name], weight_decay=weight_decay, **values)


@every_pure_trainer
@decayed
def test_the_pure_update_changes_nothing_in_place(name, weight_decay):
    trainer, weights = TRAINERS[name](), start()
    state = trainer.init(weights)
    for step in range(1, 4):
        grads = moving_bowl(weights, step)
        given = [weights, grads, *state.values()]
        before, versions = [t.clone() for t in given], [t._version for t in given]
        weights, state = trainer.update(weights, grads, state, step, lr=0.01, weight_decay=weight_decay)
        assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))
        assert [t._version for t in given] == versions


@every_pure_trainer
def test_the_learning_rate_given_to_the_update_counts_and_not_the_trainers_own(name):
    first = start()
    ends = [purely(TRAINERS[name](lr=lr), first, lr=0.01, weight_decay=0.0)[-1] for lr in (1e-9, 1.0)]
    assert torch.equal(*ends)


@every_pure_trainer
def test_many_weights_as_one_with_a_rate_for_each_are_updated_as_each_alone(name):
    trainer, first = TRAINERS[name](), start(3)
    rates = torch.tensor([[0.001], [0.01], [0.1]], dtype=torch.float64)
    decays = torch.tensor([[0.0], [0.01], [0.1]], dtype=torch.float64)
    together = purely(trainer, first, lr=rates, weight_decay=decays)
    for k in range(3):
        alone = purely(trainer, first[k], lr=rates[k].item(), weight_decay=decays[k].item())
        for one, other in zip(together, alone, strict=True):
            torch.testing.assert_close(one[k], other, rtol=1e-12, atol=1e-12)


@every_pure_trainer
def test_the_state_is_made_of_tensors_of_the_weights_shape_and_precision(name):
    weights = start(3).float()
    state = TRAINERS[name]().init(weights)
    _, after = TRAINERS[name]().update(weights, weights, state, 1, lr=0.1, weight_decay=0.0)
    assert state.keys() == after.keys()
    assert {(t.shape, t.dtype) for t in [*state.values(), *after.values()]} <= {((3, 30), torch.float32)}


@pytest.mark.parametrize(("dataset", "model", "trainer"), slow_but(cover(EVERY_TWO, 1), EVERY_TWO))
def test_every_two_plugins_train_together_and_leave_global_generators_alone(
    make_lane, undrawn, dataset, model, trainer
):
    overrides = f"dataset={dataset}", f"model={model}", f"trainer={trainer}", "trainer.max_steps=3"
    with undrawn():
        lane = make_lane(*overrides, plugins=REGISTRY)
        before = lane.weights.vector.clone()
        rows = lane.advance(3)
        result = lane.evaluate("val") | lane.evaluate("test")
    assert (rows.first, len(rows)) == (1, 3)
    assert not torch.equal(lane.weights.vector, before)
    assert set(rows.row(3)) | set(result) == set(lane.columns)
