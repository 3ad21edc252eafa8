"""attention: weights against torch's own and against closed forms, in models that nobody knows."""

import json
import math
from functools import partial

import pytest
import torch
from contract.registry import plugin
from torch import nn
from torch.nn import functional as F

from nnexp import DataSpec
from nnexp.plotting.rendering import render
from nnexp.registry.observation import to_plain

HEADS, SIZE = 2, 8


class Unknown(nn.Module):
    """One attention over the positions of a sequence, computed in one of many ways."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.embed, self.head = nn.Linear(2, SIZE), nn.Linear(SIZE, 2)
        self.look = nn.MultiheadAttention(SIZE, HEADS, batch_first=way != "positions first")
        self.layer = nn.TransformerEncoderLayer(SIZE, HEADS, 8, dropout=0.0, batch_first=True)

    def forward(self, x, lengths=None):
        tokens = self.embed(x)
        if self.way in ("torch's", "positions first"):
            given = tokens if self.way == "torch's" else tokens.transpose(0, 1)
            mixed = self.look(given, given, given, need_weights=False)[0]
            return self.head(mixed.mean(1 if self.way == "torch's" else 0))
        if self.way == "encoder":
            return self.head(self.layer(tokens).mean(1))
        return self.head(WAYS[self.way](*self.heads(tokens)).transpose(1, 2).flatten(2).mean(1))

    def heads(self, tokens):
        """(B, heads, N, size): queries, keys, values."""
        qkv = tokens @ self.look.in_proj_weight.T
        return qkv.unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)

    def expected(self, x):
        """(heads, N, N), by the equation, of one row."""
        layer = self.layer.self_attn if self.way == "encoder" else self.look
        tokens = self.embed(x)
        given = tokens if layer.batch_first else tokens.transpose(0, 1)
        weights = layer(given, given, given, average_attn_weights=False)[1][0]
        if self.way == "fused, causal":
            q, k, _ = self.heads(tokens)
            later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
            weights = (q @ k.mT / math.sqrt(SIZE // HEADS)).masked_fill(later, -torch.inf).softmax(-1)[0]
        return weights


def _scores(q, k):
    return q @ k.mT / math.sqrt(q.shape[-1])


def _normalised(scores):
    weights = scores.exp()
    return weights / weights.sum(-1, keepdim=True)


WAYS = {
    "fused": F.scaled_dot_product_attention,
    "fused, causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "softmax": lambda q, k, v: _scores(q, k).softmax(-1) @ v,
    "exponentials": lambda q, k, v: _normalised(_scores(q, k)) @ v,
    "einsum": lambda q, k, v: torch.einsum("bhij,bhjd->bhid", torch.softmax(_scores(q, k), dim=-1), v),
    "weights on the right": lambda q, k, v: (v.mT @ F.softmax(_scores(q, k), dim=-1).mT).mT,
}


IMAGE = DataSpec(kind="image", shape=(1, 12, 12), outputs=4)
SEQUENCE = DataSpec(kind="sequence", shape=(16, 2))
PER_STEP = DataSpec(kind="sequence", shape=(16, 2), per_step=True)
TOKENS = DataSpec(kind="tokens", shape=(5,), vocab=5, per_step=True, outputs=5)


@pytest.fixture
def made(view_on):
    return partial(view_on, 6)


@pytest.fixture
def look():
    return plugin("probe", "attention")()


def _layers(seen):
    return json.loads(json.dumps(to_plain(seen.pictures["maps"].numbers)))["layers"]


def _entropy(weights):
    return float(-(weights * weights.clamp_min(1e-30).log2()).sum(-1).mean())


@pytest.mark.parametrize("way", ["torch's", "positions first", "encoder", *WAYS])
def test_weights_of_an_unknown_model_are_those_that_it_uses(made, look, way):
    view = made(SEQUENCE, Unknown(way))
    x, *_ = view.rows("val", 4)
    with torch.no_grad():
        expected = torch.stack([view.module.expected(row[None]) for row in x])
    seen = look(view)
    (layer,) = _layers(seen)
    torch.testing.assert_close(torch.tensor(layer["weights"]), expected[0], rtol=0, atol=1e-3)
    name = {"torch's": "look", "positions first": "look", "encoder": "layer.self_attn"}.get(way, "model")
    assert seen.scalars == {f"entropy_bits/{name}": pytest.approx(_entropy(expected), abs=1e-4)}


def _alike(weights, expected):
    torch.testing.assert_close(torch.tensor(weights), expected, rtol=0, atol=1e-3)


def test_each_row_of_vits_weights_sums_to_1_in_each_layer_and_head(made, look):
    layers = _layers(look(made(IMAGE, "vit", init_scale=3.0)))
    assert [layer["name"] for layer in layers] == ["blocks.0", "blocks.1"]
    sums = torch.tensor([layer["weights"] for layer in layers]).sum(-1)
    torch.testing.assert_close(sums, torch.ones(2, 4, 9), rtol=0, atol=5e-3)


@pytest.mark.parametrize(("data", "size"), [(IMAGE, 9), (SEQUENCE, 16)], ids=["in our own softmax", "in torch's"])
def test_equal_queries_and_keys_look_everywhere_alike(made, look, data, size):
    view = made(data, "vit")
    view.module.blocks[0].qkv.weight.data.zero_()
    seen = look(view)
    _alike(_layers(seen)[0]["weights"], torch.full((4, size, size), 1 / size))
    assert seen.scalars["entropy_bits/blocks.0"] == pytest.approx(math.log2(size), abs=1e-5)
    assert seen.scalars["entropy_bits/blocks.1"] < math.log2(size) - 1e-5


def test_where_each_position_is_predicted_no_later_one_is_looked_at(made, look):
    view = made(PER_STEP, "vit")
    view.module.blocks[0].qkv.weight.data.zero_()
    seen = look(view)
    expected = torch.ones(16, 16).tril() / torch.arange(1, 17).unsqueeze(1)
    _alike(_layers(seen)[0]["weights"], expected.expand(4, 16, 16))
    mean = sum(math.log2(number) for number in range(1, 17)) / 16
    assert seen.scalars["entropy_bits/blocks.0"] == pytest.approx(mean, abs=1e-5)


def test_padding_is_left_out_and_the_longest_rows_are_taken(made, look):
    view = made(SEQUENCE, "vit", torch.tensor([1, 7, 2, 7, 7, 7]))
    view.module.blocks[0].qkv.weight.data.zero_()
    seen = look(view)
    _alike(_layers(seen)[0]["weights"], torch.full((4, 7, 7), 1 / 7))
    assert seen.scalars["entropy_bits/blocks.0"] == pytest.approx(math.log2(7), abs=1e-5)


def test_layers_and_heads_that_are_left_out_are_counted_in_the_title(made, look):
    seen = look(made(IMAGE, "vit", num_layers=5, num_heads=8))
    assert seen.pictures["maps"].title == "Attention in one row, first 4 of 5 layers, first 4 of 8 heads"
    assert len(seen.scalars) == 5


def test_nothing_of_torch_is_left_changed(made, look):
    view = made(IMAGE, "vit")
    before = (torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled())
    look(view)
    assert (torch.backends.mha.get_fastpath_enabled(), torch.backends.cuda.flash_sdp_enabled()) == before
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in view.module.modules())


def test_it_says_nothing_where_there_is_no_attention(made, look):
    cases = [(IMAGE, "cnn"), (SEQUENCE, "lstm"), (SEQUENCE, "mlp"), (TOKENS, "gru"), (TOKENS, "cnn"), (TOKENS, "mlp")]
    assert [case for case in cases if look(made(*case)) is not None] == []


def test_it_is_drawn_of_a_real_run(view_of, look):
    picture = look(view_of("dataset=edges", "model=vit")).pictures["maps"]
    assert render(picture, json.loads(json.dumps(to_plain(picture.numbers))), "step 0")["png"]
