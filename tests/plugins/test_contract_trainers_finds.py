"""The trainers' contract finds faults: copies of SGD with one planted in each fail the rule that it breaks."""

import pytest
from contract import trainers

from nnexp.registry.discovery import Registry, discover

SOURCE = discover().get("trainer", "sgd").path.read_text(encoding="utf-8")
DOWN, SAME = trainers.descends_a_bowl, trainers.updates_purely_as_torchs_own_optimiser
FAULTS = {
    "the pure update climbs": (DOWN, {}, "weights - lr * grads", "weights + lr * grads"),
    "the optimizer climbs": (DOWN, {}, "weight_decay=self.weight_decay)", "maximize=True)"),
    "momentum climbs": (DOWN, {"momentum": 0.5}, "weights - lr * velocity", "weights + lr * velocity"),
    "momentum is a mean of gradients": (SAME, {"momentum": 0.5}, "+ grads\n", "+ (1 - self.momentum) * grads\n"),
    "weight decay pushes away": (SAME, {"weight_decay": 0.1}, "grads + weight_decay", "grads - weight_decay"),
}


@pytest.fixture
def load(write_plugin):
    """The class of a trainer, from its source."""

    def made(name: str, source: str) -> type:
        folder = write_plugin(name, source, kind="trainer").parents[1]
        return Registry([folder]).get("trainer", name).load()

    return made


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(load, name):
    rule, values, old, new = FAULTS[name]
    assert SOURCE.count(old) == 1, f"to be replaced, this must be there once: {old}"
    rule(load("copy", SOURCE), **values)
    faulty = load("faulty", SOURCE.replace(old, new))
    with pytest.raises(AssertionError):
        rule(faulty, **values)
