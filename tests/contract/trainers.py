"""What a trainer must keep, as one function for each rule: of its class and values of its own parameters.

They raise AssertionError where a trainer breaks the rule, as those for models do.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields

import torch
from torch import Tensor

from nnexp import Trainer
from nnexp.registry.plugin_source import Plugin
from nnexp.training.trainer_base import PureTrainer

STEPS = 20
Gradient = Callable[[Tensor, int], Tensor]


def is_pure(cls: type[Trainer]) -> bool:
    return hasattr(cls, "init") and hasattr(cls, "update")


def variants(plugin: Plugin) -> Iterator[dict[str, object]]:
    """The defaults, and each parameter that the base does not have at another value: a 0 may hide a whole term."""
    yield {}
    of_the_base = {field.name for field in fields(Trainer)}
    for name in plugin.parameters:
        if name not in of_the_base:
            yield {name: _another_value(plugin, name)}


def _another_value(plugin: Plugin, name: str) -> object:
    parameter = plugin.parameters[name]
    choices = [choice for option in parameter.options for choice in option.choices]
    for value in (*choices, 0.5, 2, True, False):
        try:
            if parameter.check(value) != parameter.default:
                return value
        except ValueError:
            continue
    raise AssertionError(f"{plugin.name}.{name}: find a value for it that is not its default")


def moving_bowl(weights: Tensor, step: int) -> Tensor:
    """Gradient of a bowl whose middle moves: large and small, of both signs."""
    slopes = torch.logspace(-3, 2, weights.shape[-1], dtype=torch.float64)
    return slopes * (weights - 0.1 * step) + torch.linspace(-1, 1, weights.shape[-1], dtype=torch.float64)


def bowl(weights: Tensor, _step: int = 0) -> Tensor:
    """Gradient of half the sum of slope * weight^2."""
    return torch.linspace(0.5, 2, weights.shape[-1], dtype=torch.float64) * weights


def start(*lanes: int) -> Tensor:
    return torch.randn(*lanes, 30, dtype=torch.float64)


def purely(
    trainer: PureTrainer, weights: Tensor, gradient: Gradient = moving_bowl, steps: int = STEPS, **rates: float | Tensor
) -> list[Tensor]:
    """The weights after each update through `init` and `update`."""
    state, path = trainer.init(weights), []
    for step in range(1, steps + 1):
        weights, state = trainer.update(weights, gradient(weights, step), state, step, **rates)
        path.append(weights)
    return path


def by_optimizer(
    trainer: Trainer, weights: Tensor, gradient: Gradient = moving_bowl, steps: int = STEPS
) -> list[Tensor]:
    """The weights after each update through torch's optimiser."""
    p, path = torch.nn.Parameter(weights.clone()), []
    optimizer = trainer.optimizer([p])
    for step in range(1, steps + 1):
        p.grad = gradient(p.detach(), step)
        optimizer.step()
        path.append(p.detach().clone())
    return path


def descends_a_bowl(cls, **values):
    """Towards the middle at the first update, and nearer to it in every weight after 50."""
    trainer, weights = cls(**values), torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(15)
    paths = [by_optimizer(trainer, weights, bowl, 50)]
    if is_pure(cls):
        paths.append(purely(trainer, weights, bowl, 50, lr=trainer.lr, weight_decay=trainer.weight_decay))
    for path in paths:
        for after in (path[0], path[-1]):
            assert (after.abs() < weights.abs()).all(), "the weights must go down the gradient"


def updates_purely_as_torchs_own_optimiser(cls, **values):
    trainer, weights = cls(**{"lr": 0.01, **values}), start()
    pure = purely(trainer, weights, lr=trainer.lr, weight_decay=trainer.weight_decay)
    for one, other in zip(pure, by_optimizer(trainer, weights), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
