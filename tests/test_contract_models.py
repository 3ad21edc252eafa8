"""What every model that is found must keep, on every dataset that is found and on each kind of data."""

from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from nnexp.registry import Plugin, discover
from nnexp.seeding import generator, seeded
from nnexp.spec import DataSpec

REGISTRY = discover()
MODELS = [REGISTRY.get("model", name) for name in REGISTRY.names("model")]
DATASETS = REGISTRY.names("dataset")
SHAPES = {
    "a vector": DataSpec(kind="vector", shape=(5,), outputs=3),
    "a sequence": DataSpec(kind="sequence", shape=(6, 3), outputs=2),
    "tokens": DataSpec(kind="tokens", shape=(7,), outputs=4, vocab=5),
    "an image": DataSpec(kind="image", shape=(3, 8, 10), outputs=3),
    "tokens, each followed by another": DataSpec(kind="tokens", shape=(7,), outputs=5, vocab=5, per_step=True),
    "one value": DataSpec(kind="sequence", shape=(6, 1), target="value", outputs=1),
}

every_model = pytest.mark.parametrize("plugin", MODELS, ids=lambda p: p.name)
every_data = pytest.mark.parametrize("name", [*SHAPES, *DATASETS])


@cache
def _spec(name: str) -> DataSpec:
    return SHAPES[name] if name in SHAPES else REGISTRY.get("dataset", name).load()(generator(0, "data")).spec


def _inputs(data: DataSpec, num_rows: int = 4, lanes: tuple[int, ...] = ()) -> Tensor:
    shape = (*lanes, num_rows, *data.shape)
    return torch.randint(data.vocab, shape) if data.kind == "tokens" else torch.randn(shape)


def _output_shape(data: DataSpec, num_rows: int = 4) -> tuple[int, ...]:
    return (num_rows, *data.shape[:1], data.outputs) if data.per_step else (num_rows, data.outputs)


def _model(plugin: Plugin, data: DataSpec, seed: int = 0, **values: object) -> nn.Module:
    with seeded(seed):
        return plugin.load()(data, **values)


def _close(one: Tensor, other: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@every_model
@every_data
def test_the_output_has_one_number_per_class_or_value_and_is_finite(plugin, name):
    data = _spec(name)
    output = _model(plugin, data)(_inputs(data))
    assert output.shape == _output_shape(data)
    assert output.isfinite().all()


CHOICES = [
    (plugin, {key: choice})
    for plugin in MODELS
    for key, parameter in plugin.parameters.items()
    for option in parameter.options
    for choice in (option.choices or ((None,) if option.type is type(None) else ()))
]


@pytest.mark.parametrize(("plugin", "values"), CHOICES, ids=lambda v: v.name if isinstance(v, Plugin) else str(v))
@pytest.mark.parametrize("name", SHAPES)
def test_every_choice_of_a_model_works_on_every_kind_of_data(plugin, values, name):
    data = SHAPES[name]
    output = _model(plugin, data, **values)(_inputs(data))
    assert output.shape == _output_shape(data)
    assert output.isfinite().all()


@every_model
@every_data
def test_every_parameter_gets_a_gradient(plugin, name):
    data = _spec(name)
    model = _model(plugin, data)
    model(_inputs(data, num_rows=16)).square().sum().backward()
    assert [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@every_model
@every_data
def test_the_global_seed_decides_the_weights(plugin, name):
    data = _spec(name)
    first, same, other = (_model(plugin, data, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@every_model
@every_data
def test_a_rows_output_depends_neither_on_other_rows_nor_on_their_order(plugin, name):
    data = _spec(name)
    model, x = _model(plugin, data).eval(), _inputs(data, num_rows=6)
    whole, order = model(x), torch.tensor([3, 0, 5, 1, 4, 2])
    _close(model(x[order]), whole[order])
    _close(model(x[2:3]), whole[2:3])
    assert not torch.equal(whole[0], whole[1])


@every_model
@every_data
def test_weights_saved_and_loaded_give_the_same_output(plugin, name, tmp_path):
    data = _spec(name)
    model, other, x = _model(plugin, data).eval(), _model(plugin, data, seed=1).eval(), _inputs(data)
    assert not torch.equal(other(x), model(x))
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    other.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    assert torch.equal(other(x), model(x))


def _stack(plugin: Plugin, data: DataSpec) -> tuple[list[nn.Module], tuple[dict, dict]]:
    models = [_model(plugin, data, seed).eval() for seed in range(3)]
    for model in models:
        if hasattr(model, "fused"):
            model.fused = False
    return models, stack_module_state(models)


@every_model
@every_data
@pytest.mark.parametrize("lanes", [(), (3,)], ids=["one batch for all", "a batch for each"])
def test_three_models_stacked_give_what_each_gives_alone(plugin, name, lanes):
    data = _spec(name)
    models, stacked = _stack(plugin, data)
    x = _inputs(data, lanes=lanes)
    together = vmap(lambda state, rows: functional_call(models[0], state, (rows,)), in_dims=(0, 0 if lanes else None))
    alone = [model(x[k] if lanes else x) for k, model in enumerate(models)]
    _close(together(stacked, x), torch.stack(alone))


@every_model
@every_data
def test_three_models_stacked_have_the_gradients_that_each_has_alone(plugin, name):
    data = _spec(name)
    models, stacked = _stack(plugin, data)
    x = _inputs(data)
    output = vmap(lambda state: functional_call(models[0], state, (x,)))(stacked)
    output.square().sum().backward()
    for k, model in enumerate(models):
        model(x).square().sum().backward()
        for key, p in model.named_parameters():
            _close(stacked[0][key].grad[k], p.grad, 1e-4)


@pytest.mark.parametrize("plugin", [p for p in MODELS if hasattr(p.load(), "fused")], ids=lambda p: p.name)
@every_data
def test_the_fused_path_gives_what_the_loop_gives(plugin, name):
    data = _spec(name)
    model, x = _model(plugin, data).double().eval(), _inputs(data)
    x = x.double() if x.is_floating_point() else x
    assert model.fused
    with torch.no_grad():
        fused = _in_double(model, x)
        model.fused = False
        _close(_in_double(model, x), fused, 1e-12)


def _in_double(model: nn.Module, x: Tensor) -> Tensor:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return model(x)
    finally:
        torch.set_default_dtype(before)


@every_model
@pytest.mark.parametrize("name", [name for name in [*SHAPES, *DATASETS] if _spec(name).per_step])
def test_a_prediction_at_each_position_reads_nothing_that_comes_after_it(plugin, name):
    data = _spec(name)
    model, x = _model(plugin, data).eval(), _inputs(data)
    changed = x.clone()
    changed[:, 4:] = _inputs(data)[:, 4:]
    one, other = model(x), model(changed)
    _close(one[:, :4], other[:, :4])
    assert not torch.equal(one[:, 4:], other[:, 4:])


@every_model
@pytest.mark.parametrize("name", ["a sequence", "tokens", "tokens, each followed by another", "pattern"])
def test_what_stands_in_the_padding_changes_no_output(plugin, name):
    data = _spec(name)
    model, x, lengths = _model(plugin, data).eval(), _inputs(data), torch.tensor([3, 1, data.max_length, 5])
    valid = torch.arange(data.max_length) < lengths.unsqueeze(1)
    changed = torch.where(valid.view(*valid.shape, *[1] * (x.ndim - 2)), x, _inputs(data))
    assert not torch.equal(x, changed)
    one, other = model(x, lengths), model(changed, lengths)
    _close(one[valid] if data.per_step else one, other[valid] if data.per_step else other)
