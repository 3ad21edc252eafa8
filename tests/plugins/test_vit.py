"""ViT: its blocks against torch's own, the order of patches, causality, padding and images that do not divide."""

from typing import Any

import pytest
import torch
from contract.registry import plugin
from torch import Tensor, nn
from torch.nn import functional as F

from nnexp import DataSpec
from nnexp.data.seeding import seeded

ViT = plugin("model", "vit")
EDGES = DataSpec(kind="image", shape=(1, 12, 12), outputs=4)
SEQUENCE = DataSpec(kind="sequence", shape=(9, 3), outputs=2)
PER_STEP = DataSpec(kind="sequence", shape=(9, 3), outputs=2, per_step=True)
SMALL = {"hidden_size": 12, "num_layers": 1, "num_heads": 2, "mlp_ratio": 2, "patch_size": 3}
LENGTHS = torch.tensor([9, 1, 4, 6])


def test_the_small_one_on_the_images_of_edges_has_1672_weights():
    assert sum(p.numel() for p in ViT(EDGES, **SMALL).parameters()) == 1672


def _model(data: DataSpec, **values) -> Any:
    """In 64 bits, with every weight, gain and bias drawn."""
    model = ViT(data, **{**SMALL, **values}).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn_like(p) + (p == 1.0))
    return model


def _torchs(block: Any, num_heads: int) -> nn.TransformerEncoderLayer:
    """A layer of torch's transformer with the weights of a block."""
    size, units = block.out.in_features, block.mlp[0].out_features
    options: dict[str, Any] = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
    layer = nn.TransformerEncoderLayer(size, num_heads, units, **options).double()
    pairs = [(layer.self_attn.out_proj, block.out), (layer.linear1, block.mlp[0]), (layer.linear2, block.mlp[2])]
    for theirs, mine in [*pairs, (layer.norm1, block.norm1), (layer.norm2, block.norm2)]:
        theirs.load_state_dict(mine.state_dict())
    weights = {"in_proj_weight": block.qkv.weight, "in_proj_bias": block.qkv.bias}
    layer.self_attn.load_state_dict(weights, strict=False)
    return layer


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["whole rows", "padded rows"])
@pytest.mark.parametrize("data", [SEQUENCE, PER_STEP], ids=["last", "per step"])
@pytest.mark.parametrize(("num_layers", "num_heads"), [(1, 1), (2, 3), (3, 4)])
def test_the_output_is_that_of_torchs_transformer_layers(data, num_layers, num_heads, lengths):
    model = _model(data, num_layers=num_layers, num_heads=num_heads)
    x = torch.randn(4, 9, 3, dtype=torch.float64)
    is_padding = torch.arange(9) >= (torch.full((4,), 9) if lengths is None else LENGTHS).unsqueeze(1)
    later = torch.ones(9, 9, dtype=torch.bool).triu(1) if data.per_step else None
    tokens = model.embed(x.masked_fill(is_padding.unsqueeze(-1), 0)) + model.positions
    for block in model.blocks:
        tokens = _torchs(block, num_heads)(tokens, src_mask=later, src_key_padding_mask=is_padding)
    tokens, counted = model.norm(tokens), ~is_padding
    mean = torch.stack([row[: int(c.sum())].mean(0) for row, c in zip(tokens, counted, strict=True)])
    given, expected = model(x, lengths), model.head(tokens if data.per_step else mean)
    pair = (given[counted], expected[counted]) if data.per_step else (given, expected)
    torch.testing.assert_close(*pair, rtol=0, atol=1e-12)


def _attended(model: Any, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """What the first attention adds to tokens, for the MLP gives nothing; and what it reads."""
    block = model.blocks[0]
    nn.init.zeros_(block.mlp[2].weight)
    nn.init.zeros_(block.mlp[2].bias)
    return block(tokens, model._attention(tokens, None)) - tokens, block.norm1(tokens)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "unfused"])
@pytest.mark.parametrize("data", [SEQUENCE, PER_STEP], ids=["all", "causal"])
@pytest.mark.parametrize("num_heads", [1, 2, 4])
def test_attention_is_torchs_scaled_dot_product(num_heads, data, fused):
    model = _model(data, num_heads=num_heads)
    model.fused = fused
    added, read = _attended(model, torch.randn(5, 7, 12, dtype=torch.float64))
    block = model.blocks[0]
    q, k, v = (part.unflatten(-1, (num_heads, -1)).transpose(1, 2) for part in block.qkv(read).chunk(3, dim=-1))
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=data.per_step)
    torch.testing.assert_close(added, block.out(heads.transpose(1, 2).flatten(2)), rtol=0, atol=1e-12)


def _permuted(images: Tensor, size: int, order: Tensor) -> Tensor:
    """The same squares of `size` pixels in another order."""
    side = images.shape[-1]
    return F.fold(F.unfold(images, size, stride=size)[..., order], side, size, stride=size)


@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_order_of_patches_counts_only_with_positions(num_layers):
    x, order = torch.randn(4, 1, 12, 12, dtype=torch.float64), torch.randperm(16)
    changed = _permuted(x, 3, order)
    assert not torch.equal(changed, x)
    for positions in (False, True):
        model = ViT(EDGES, **{**SMALL, "num_layers": num_layers}, positions=positions).double()
        moved = (model(changed) - model(x)).abs().amax(1)
        assert (moved > 1e-4).all() if positions else (moved < 1e-12).all()


def test_an_order_within_patches_counts_without_positions():
    model, x = ViT(EDGES, **SMALL, positions=False), torch.randn(4, 1, 12, 12)
    assert ((model(x.flip(3)) - model(x)).abs().amax(1) > 1e-4).all()


@pytest.mark.parametrize("num_layers", [1, 3])
def test_with_one_prediction_per_step_each_reads_all_positions_up_to_it(num_layers):
    model, x = _model(PER_STEP, num_layers=num_layers), torch.randn(1, 9, 3, dtype=torch.float64, requires_grad=True)
    for position in range(9):
        (grad,) = torch.autograd.grad(model(x)[0, position].sum(), x)
        assert grad[0].abs().sum(1).nonzero().flatten().tolist() == list(range(position + 1))


def test_a_padded_row_gives_what_it_gives_alone():
    model, x = _model(SEQUENCE, positions=False), torch.randn(4, 9, 3, dtype=torch.float64)
    output = model(x, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(output[row], model(x[row : row + 1, :length])[0], rtol=0, atol=1e-12)
    assert not torch.allclose(output, model(x))


@pytest.mark.parametrize("lengths", [[1, 4], [3, 10]])
def test_lengths_of_images_count_rows_of_pixels_and_the_others_are_black(lengths):
    data = DataSpec(kind="image", shape=(2, 10, 7))
    model, x = _model(data), torch.randn(2, 2, 10, 7, dtype=torch.float64)
    black = x.clone()
    for row, length in enumerate(lengths):
        black[row, :, length:] = 0.0
    assert torch.equal(model(x, torch.tensor(lengths)), model(black))


@pytest.mark.parametrize(("shape", "whole"), [((3, 10, 7), (3, 12, 9)), ((1, 2, 2), (1, 3, 3)), ((2, 3, 4), (2, 3, 6))])
def test_an_image_that_is_no_whole_number_of_patches_gets_zeros_to_the_right_and_below(shape, whole):
    model, larger = (ViT(DataSpec(kind="image", shape=s), **SMALL) for s in (shape, whole))
    larger.load_state_dict(model.state_dict())
    x = torch.randn(4, *shape)
    padded = F.pad(x, (0, whole[2] - shape[2], 0, whole[1] - shape[1]))
    assert torch.equal(model(x), larger(padded))


def test_a_hidden_size_that_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match=r"model\.hidden_size=12 is not a multiple of model\.num_heads=5"):
        ViT(EDGES, **{**SMALL, "num_heads": 5})


@pytest.mark.parametrize("init", ["torch", "normal"])
def test_the_scale_multiplies_all_matrices_but_the_heads_and_leaves_positions(init):
    models = []
    for scale in (1.0, 2.0):
        with seeded(0):
            models.append(ViT(EDGES, **SMALL, init=init, init_scale=scale).state_dict())
    plain, scaled = models
    for name, value in plain.items():
        is_scaled = value.ndim > 1 and not name.startswith(("head", "positions"))
        assert torch.equal(scaled[name], (2.0 if is_scaled else 1.0) * value), name
