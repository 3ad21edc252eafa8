"""CNN: what it computes against torch's layers, how much each filter sees, shortcuts, causality and padding."""

from typing import Any

import pytest
import torch
from contract.registry import plugin
from torch import Tensor, nn

from nnexp import DataSpec

CNN = plugin("model", "cnn")
IMAGE = DataSpec(kind="image", shape=(1, 12, 12), outputs=4)
SEQUENCE = DataSpec(kind="sequence", shape=(17, 3), outputs=2)
PER_STEP = DataSpec(kind="sequence", shape=(17, 3), outputs=2, per_step=True)
VARIANTS: list[dict[str, Any]] = [
    {},
    {"channels": (5,)},
    {"channels": (8, 8, 12), "residual": True},
    {"kernel_size": 4, "pooling": 3},
    {"dilation": 2},
    {"stride": 2, "residual": True},
    {"stride": 3, "dilation": 2, "pooling": 1},
]

every_variant = pytest.mark.parametrize(
    "values", VARIANTS, ids=lambda v: ", ".join(f"{k}={v[k]}" for k in v) or "plain"
)


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_two_layers_on_the_image_of_edges_have_1316_weights():
    assert _count(CNN(IMAGE, channels=(8, 16), kernel_size=3)) == 1316


def test_64_filters_of_3_by_3_on_colours_have_1792_weights():
    assert _count(CNN(DataSpec(kind="image", shape=(3, 32, 32)), channels=(64,)).layers[0]) == 1792


def test_a_filter_on_a_sequence_has_one_dimension():
    assert _count(CNN(SEQUENCE, channels=(8,), kernel_size=5)) == 3 * 8 * 5 + 8 + 8 * 2 + 2


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("kernel_size", [1, 3, 4])
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("data", [IMAGE, SEQUENCE], ids=["image", "sequence"])
def test_the_output_is_that_of_torchs_layers(data, dilation, kernel_size):
    model = CNN(data, channels=(5, 7), kernel_size=kernel_size, dilation=dilation).double()
    dimensions = 2 if data.kind == "image" else 1
    conv, pool = ((nn.Conv1d, nn.MaxPool1d), (nn.Conv2d, nn.MaxPool2d))[dimensions - 1]
    options = {"padding": "same", "dilation": dilation}
    first, second = (
        conv(data.shape[0] if dimensions == 2 else 3, 5, kernel_size, **options),
        conv(5, 7, kernel_size, **options),
    )
    reference = nn.Sequential(first, nn.ReLU(), pool(2, ceil_mode=True), second, nn.ReLU(), nn.Flatten(2)).double()
    for mine, torchs in zip(model.layers, (first, second), strict=True):
        torchs.load_state_dict(mine.state_dict())
    x = torch.randn(4, *data.shape, dtype=torch.float64)
    expected = model.head(reference(x if dimensions == 2 else x.transpose(1, 2)).amax(-1))
    torch.testing.assert_close(model(x), expected, rtol=1e-12, atol=1e-12)


def _states(model: Any, x: Tensor) -> Tensor:
    """(B, C, ...): what the last layer gives before it is bent."""
    seen = []
    hook = model.layers[-1].register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    model(x)
    hook.remove()
    return seen[0]


@pytest.mark.parametrize("size", [7, 12])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_the_size_of_the_output_is_that_of_torchs_formula(kernel_size, stride, dilation, size):
    options = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
    states = _states(
        CNN(DataSpec(kind="image", shape=(1, size, size)), channels=(2,), **options), torch.randn(1, 1, size, size)
    )
    padding = (kernel_size - 1) * dilation // 2
    expected = nn.Conv2d(1, 2, padding=padding, **options)(torch.randn(1, 1, size, size))
    assert states.shape == expected.shape
    assert (
        states.shape[-1] == (size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1 == -(-size // stride)
    )


def _seen(values: dict, axis: int, size: int = 24) -> list[int]:
    """Rows or columns of the image that a filter of the last layer reads, by a change of each; no sum is below zero."""
    model = CNN(DataSpec(kind="image", shape=(1, size, size)), **values).double()
    with torch.no_grad():
        for p in model.layers.parameters():
            p.copy_(p.abs() + 0.1)
    x = torch.rand(1, 1, size, size, dtype=torch.float64)
    changes = 10 * torch.eye(size, dtype=torch.float64).view(size, 1, 1, size)
    images = x + (changes if axis == 3 else changes.transpose(2, 3))
    middle = _states(model, x).shape[-1] // 2
    moved = (_states(model, images) - _states(model, x))[:, 0, middle, middle]
    return (moved.abs() > 1e-9).nonzero().flatten().tolist()


both_axes = pytest.mark.parametrize("axis", [2, 3], ids=["rows", "columns"])


@both_axes
@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"channels": (4,)}, 3),
        ({"channels": (4, 4), "pooling": 1}, 5),
        ({"channels": (4, 4, 4), "pooling": 1}, 7),
        ({"channels": (4, 4), "pooling": 2}, 8),
        ({"channels": (4, 4), "pooling": 1, "stride": 2}, 7),
        ({"channels": (4, 4), "pooling": 1, "residual": True}, 5),
        ({"channels": (4, 4), "pooling": 1, "kernel_size": 5}, 9),
    ],
)
def test_a_filter_of_the_last_layer_sees_a_square_of(values, field, axis):
    seen = _seen(values, axis)
    assert seen == list(range(seen[0], seen[0] + field))


@both_axes
def test_dilation_leaves_gaps_between_what_a_filter_sees(axis):
    seen = _seen({"channels": (4,), "dilation": 3}, axis)
    assert [place - seen[0] for place in seen] == [0, 3, 6]


def test_a_feature_counts_wherever_it_is():
    model, x = CNN(IMAGE, pooling=1), torch.zeros(1, 1, 12, 12)
    x[..., 4:7, 4:7] = torch.randn(3, 3)
    torch.testing.assert_close(model(x.roll((2, -1), (2, 3))), model(x))
    assert not torch.allclose(model(x.transpose(2, 3)), model(x))


@pytest.mark.parametrize("pooling", [1, 2])
@pytest.mark.parametrize("data", [DataSpec(kind="image", shape=(3, 8, 9)), SEQUENCE], ids=["image", "sequence"])
def test_with_shortcuts_and_weights_of_zero_a_layer_gives_its_input(data, pooling):
    model = CNN(data, channels=(3, 3), residual=True, pooling=pooling)
    model.head = nn.Identity()
    for p in model.layers.parameters():
        nn.init.zeros_(p)
    x = torch.rand(2, *data.shape)
    assert torch.equal(model(x), x.amax((2, 3) if data.kind == "image" else 1))


def test_a_shortcut_has_weights_only_where_sizes_differ():
    plain, same, other, strided = (
        _count(CNN(SEQUENCE, channels=channels, **values))
        for channels, values in (
            ((3, 5), {}),
            ((3, 3), {"residual": True}),
            ((3, 5), {"residual": True}),
            ((3, 5), {"residual": True, "stride": 2}),
        )
    )
    assert same == _count(CNN(SEQUENCE, channels=(3, 3)))
    assert (other - plain, strided - plain) == (3 * 5, 3 * 5 + 3 * 3)


@every_variant
def test_a_padded_row_gives_what_it_gives_alone(values):
    model, lengths = CNN(SEQUENCE, **values).double(), torch.tensor([17, 1, 2, 5, 9, 12, 16])
    x = torch.randn(7, 17, 3, dtype=torch.float64)
    output = model(x, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(x[row : row + 1, :length])
        torch.testing.assert_close(output[row], alone[0], rtol=0, atol=1e-12)
    assert not torch.allclose(output, model(x))


def _outputs_and_gradients(model: nn.Module, x: Tensor, lengths: Tensor | None) -> list[Tensor]:
    output = model(x, lengths)
    return [
        output,
        *torch.autograd.grad(
            (output * torch.linspace(1, 2, output.numel()).view_as(output)).sum(), [x, *model.parameters()]
        ),
    ]


TALL = DataSpec(kind="image", shape=(2, 17, 9))
BOTH_WAYS = [
    (data, v) for data in (SEQUENCE, PER_STEP, TALL) for v in VARIANTS if not (data.per_step and "stride" in v)
]


@pytest.mark.parametrize("lengths", [None, torch.tensor([17, 1, 2, 9])], ids=["whole rows", "padded rows"])
@pytest.mark.parametrize(("data", "values"), BOTH_WAYS, ids=str)
def test_products_of_matrices_give_what_convolutions_give(data, lengths, values):
    model, x = CNN(data, **values).double(), torch.randn(4, *data.shape, dtype=torch.float64, requires_grad=True)
    expected = _outputs_and_gradients(model, x, lengths)
    model.fused = False
    torch.testing.assert_close(_outputs_and_gradients(model, x, lengths), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("values", [v for v in VARIANTS if "stride" not in v], ids=str)
@pytest.mark.parametrize(
    "data", [PER_STEP, DataSpec(kind="image", shape=(2, 17, 3), per_step=True)], ids=["sequence", "image"]
)
def test_a_prediction_per_step_depends_on_no_later_position(data, values):
    model, x = CNN(data, **values), torch.randn(4, *data.shape)
    changed = x.clone()
    changed[:, ..., 9:, :] += torch.randn(8, 3)
    assert torch.equal(model(x)[:, :9], model(changed)[:, :9])
    assert (model(x)[:, 9] != model(changed)[:, 9]).any()


def test_a_stride_is_refused_where_each_position_is_predicted():
    with pytest.raises(ValueError, match=r"Set model\.stride=1"):
        CNN(PER_STEP, stride=2)


def test_no_layer_at_all_is_refused():
    with pytest.raises(ValueError, match=r"model\.channels is empty"):
        CNN(IMAGE, channels=())
