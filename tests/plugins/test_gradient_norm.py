"""Norms by layer against those of autograd and of the update that is made, and units that are dead by construction."""

import math

import pytest
import torch

JOB = ("dataset=moons", "model=mlp", "model.activation=relu", "model.hidden_size=8")


@pytest.fixture
def look(registry, view_of):
    def see(*overrides: str, step: int = 3):
        view = view_of(*overrides, step=step)
        return view, registry.get("probe", "gradient_norm").load()()(view)

    return see


def test_norms_are_those_of_the_next_gradient_by_layer_and_in_all(look) -> None:
    view, seen = look(*JOB)
    named = dict(zip(view.weights.names, view.update.gradient.split(view.weights.sizes), strict=True))
    for layer in ("hidden.0", "head"):
        own = torch.cat([named[f"{layer}.weight"], named[f"{layer}.bias"]])
        assert seen.scalars[f"before_clipping/{layer}"] == pytest.approx(own.norm().item(), rel=1e-5)
    assert seen.scalars["before_clipping/total"] == pytest.approx(view.update.gradient.norm().item(), rel=1e-5)
    assert seen.scalars["after_clipping/total"] == pytest.approx(seen.scalars["before_clipping/total"])


def test_after_clipping_the_norm_is_at_most_what_is_allowed(look) -> None:
    _, seen = look(*JOB, "trainer.clip_norm=0.01")
    assert seen.scalars["before_clipping/total"] > 0.011
    assert seen.scalars["after_clipping/total"] == pytest.approx(0.01, rel=1e-3)


def test_of_plain_gradient_descent_the_ratio_is_rate_times_gradient_over_weights(look) -> None:
    view, seen = look(*JOB, "trainer=sgd", "trainer.lr=0.1", "trainer.momentum=0")
    for name in ("total", "head"):
        norm = (
            view.weights.vector.norm()
            if name == "total"
            else torch.cat([p.flatten() for p in view.module.head.parameters()]).norm()
        )
        expected = 0.1 * seen.scalars[f"before_clipping/{name}"] / norm.item()
        assert seen.scalars[f"update_ratio/{name}"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("num_dead", [0, 3, 8])
def test_units_that_no_row_turns_on_are_dead(registry, view_of, num_dead: int) -> None:
    view = view_of(*JOB)
    with torch.no_grad():
        view.module.hidden[0].weight.normal_(generator=torch.Generator().manual_seed(0))
        view.module.hidden[0].bias.fill_(0.0)
        view.module.hidden[0].bias[:num_dead] = -100.0
    seen = registry.get("probe", "gradient_norm").load()()(view)
    assert seen.scalars["dead_units/hidden.1"] == pytest.approx(num_dead / 8)
    assert seen.scalars["dead_units/hidden.0"] == 0.0
    assert all(math.isfinite(value) for value in seen.scalars.values())


def test_a_channel_of_a_convolution_is_a_unit(look, registry, view_of) -> None:
    view = view_of("dataset=edges", "model=cnn")
    with torch.no_grad():
        view.module.layers[0].weight[:2] = 0.0
    seen = registry.get("probe", "gradient_norm").load()()(view)
    assert seen.scalars["dead_units/layers.0"] == pytest.approx(2 / 8)
