"""What a model must keep on any data: its output, its weights, and that nothing else counts."""

import io
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from nnexp.data.data_spec import DataSpec
from nnexp.data.seeding import seeded


def inputs(data: DataSpec, *leading: int) -> Tensor:
    shape = (*leading, *data.shape)
    return torch.randint(data.vocab, shape) if data.kind == "tokens" else torch.randn(shape)


def make(cls: type[nn.Module], data: DataSpec, seed: int = 0, **values: object) -> Any:
    with seeded(seed):
        return cls(data, **values)


def close(one: Tensor, other: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def gives_one_finite_number_per_class_or_value(cls, data, **values):
    output = make(cls, data, **values)(inputs(data, 4))
    assert output.shape == (4, *[data.max_length] * data.per_step, data.outputs)
    assert output.isfinite().all()


def every_parameter_gets_a_gradient(cls, data, **values):
    model = make(cls, data, **values)
    model(inputs(data, 16)).square().sum().backward()
    assert [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def the_global_seed_decides_the_weights(cls, data, **values):
    first, same, other = (make(cls, data, seed, **values).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def seeds_no_global_generator(cls, data, **values):
    """What is drawn after a model was made, and after it was called, differs from seed to seed."""
    drawn = []
    for seed in (0, 1):
        with seeded(seed):
            model = cls(data, **values)
            drawn.append((torch.rand(()).item(), np.random.rand(), random.random()))
            model(inputs(data, 2))
            drawn.append((torch.rand(()).item(), np.random.rand(), random.random()))
    assert [len(set(each)) for each in zip(*drawn, strict=True)] == [4, 4, 4]


def a_row_depends_neither_on_other_rows_nor_on_their_order(cls, data, **values):
    model, x = make(cls, data, **values).eval(), inputs(data, 6)
    whole, order = model(x), torch.tensor([3, 0, 5, 1, 4, 2])
    close(model(x[order]), whole[order])
    close(model(x[2:3]), whole[2:3])
    assert not torch.equal(whole[0], whole[1])


def an_output_depends_on_no_batch_before(cls, data, **values):
    model, x, other = make(cls, data, **values).eval(), inputs(data, 4), inputs(data, 3)
    first = model(x)
    model(other)
    assert torch.equal(model(x), first)


def all_that_changes_in_training_is_in_the_state(cls, data, **values):
    model, x = make(cls, data, **values).train(), inputs(data, 4)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    with seeded(0):
        first = model(x)
    model(inputs(data, 4))
    model.load_state_dict(state)
    with seeded(0):
        assert torch.equal(model(x), first)


def weights_saved_and_loaded_give_the_same_output(cls, data, **values):
    model, other = (make(cls, data, seed, **values).eval() for seed in (0, 1))
    x, file = inputs(data, 4), io.BytesIO()
    assert not torch.equal(other(x), model(x))
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), model(x))


def stack(cls, data, **values) -> tuple[list[Any], tuple[dict, dict]]:
    models = [make(cls, data, seed, **values).eval() for seed in range(3)]
    for model in models:
        if hasattr(model, "fused"):
            model.fused = False
    return models, stack_module_state(models)


def three_models_stacked_give_what_each_gives_alone(cls, data, **values):
    models, stacked = stack(cls, data, **values)
    for lanes in ((), (3,)):  # one batch for all, a batch for each
        x = inputs(data, *lanes, 4)
        dims = (0, 0 if lanes else None)
        together = vmap(lambda state, rows: functional_call(models[0], state, (rows,)), in_dims=dims)(stacked, x)
        close(together, torch.stack([model(x[k] if lanes else x) for k, model in enumerate(models)]))


def three_models_stacked_have_the_gradients_that_each_has_alone(cls, data, **values):
    models, stacked = stack(cls, data, **values)
    x = inputs(data, 4)
    output = vmap(lambda state: functional_call(models[0], state, (x,)))(stacked)
    output.square().sum().backward()
    for k, model in enumerate(models):
        model(x).square().sum().backward()
        for key, p in model.named_parameters():
            close(stacked[0][key].grad[k], p.grad, 1e-4)
