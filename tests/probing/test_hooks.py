"""The calls of a model's layers, and inputs of which a gradient can be asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from nnexp.data.data_spec import DataSpec
from nnexp.probing.hooks import accepts_one_hot, detached_embeddings, differentiable_input, forward_calls


def test_calls_are_in_the_order_in_which_layers_return_and_no_hook_stays() -> None:
    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer, nn.Tanh(), layer)
    calls = forward_calls(model, torch.randn(2, 3))
    assert [call.name for call in calls] == ["0", "1", "0", ""]
    assert torch.equal(calls[-1].output, calls[-2].output)
    assert calls[1].inputs[0] is calls[0].output
    assert not any(module._forward_hooks for module in model.modules())


def test_of_a_recurrent_layer_the_states_are_what_it_gives() -> None:
    (core, _) = forward_calls(nn.Sequential(nn.LSTM(2, 4, batch_first=True)), torch.randn(3, 5, 2))
    assert core.output.shape == (3, 5, 4)


def test_hooks_are_taken_off_where_the_model_raises() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(RuntimeError):
        forward_calls(model, torch.randn(2, 4))
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("model", ["mlp", "cnn", "rnn", "vit"])
def test_one_hot_rows_of_tokens_are_the_same_input_with_a_gradient(view_of, model: str) -> None:
    view = view_of("dataset=chartext", f"model={model}")
    x, *_ = view.rows("train", 3)
    rows = differentiable_input(x, view.data)
    assert torch.equal(view.module(rows), view.module(x))
    assert accepts_one_hot(view.module, view.data, x)
    (gradient,) = torch.autograd.grad(view.module(rows).sum(), rows)
    assert gradient.shape == (*x.shape, view.data.vocab)
    assert gradient.any()


def test_a_model_with_an_embedding_has_a_gradient_at_its_embeddings() -> None:
    data = DataSpec(kind="tokens", shape=(4,), vocab=5)
    model: Any = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(12, 2))
    x = torch.randint(5, (6, 4))
    assert not accepts_one_hot(model, data, x)
    with detached_embeddings(model, x) as leaves:
        output = model(x)
    (gradient,) = torch.autograd.grad(output.sum(), leaves)
    torch.testing.assert_close(gradient, model[2].weight.sum(0).view(4, 3).expand(6, 4, 3))
