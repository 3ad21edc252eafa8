"""Linear model: it is one matrix and one vector of biases, on a whole input or on the positions up to each."""

import pytest
import torch
from contract.registry import plugin
from torch import Tensor, nn
from torch.nn.functional import one_hot

from nnexp import DataSpec
from nnexp.data.seeding import seeded

Linear = plugin("model", "linear")
KINDS = {
    "vector": DataSpec(kind="vector", shape=(5,), outputs=3),
    "sequence": DataSpec(kind="sequence", shape=(4, 3), outputs=2),
    "tokens": DataSpec(kind="tokens", shape=(6,), vocab=4, outputs=2),
    "image": DataSpec(kind="image", shape=(3, 4, 5), outputs=2),
}
PER_STEP = DataSpec(kind="sequence", shape=(9, 3), outputs=2, per_step=True)
TOKENS_PER_STEP = DataSpec(kind="tokens", shape=(9,), vocab=4, outputs=4, per_step=True)

every_kind = pytest.mark.parametrize("kind", KINDS)
with_and_without_bias = pytest.mark.parametrize("bias", [True, False], ids=["biases", "no biases"])


def _flat(x: Tensor, data: DataSpec) -> Tensor:
    return one_hot(x, data.vocab).float().flatten(1) if data.kind == "tokens" else x.flatten(1)


def _inputs(data: DataSpec) -> Tensor:
    return torch.randint(data.vocab, (7, *data.shape)) if data.kind == "tokens" else torch.randn(7, *data.shape)


@every_kind
@with_and_without_bias
def test_the_output_is_a_matrix_times_the_input_and_a_bias(kind, bias):
    data = KINDS[kind]
    model, x = Linear(data, bias=bias), _inputs(data)
    weights = dict(model.named_parameters())
    assert {name: tuple(p.shape) for name, p in weights.items()} == {
        "head.weight": (data.outputs, data.features),
        **({"head.bias": (data.outputs,)} if bias else {}),
    }
    expected = _flat(x, data) @ weights["head.weight"].T + weights.get("head.bias", torch.zeros(()))
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tokens"])
def test_the_output_of_a_sum_is_the_sum_of_outputs_without_biases(kind):
    data = KINDS[kind]
    model, x, y = Linear(data, bias=False).double(), _inputs(data).double(), _inputs(data).double()
    torch.testing.assert_close(model(3 * x - 2 * y), 3 * model(x) - 2 * model(y), rtol=0, atol=1e-12)


@pytest.mark.parametrize("context", [1, 4, 9, 20])
@pytest.mark.parametrize("data", [PER_STEP, TOKENS_PER_STEP], ids=["sequence", "tokens"])
def test_per_step_the_same_matrix_stands_on_the_last_positions_and_zeros_before_the_first(data, context):
    model, x = Linear(data, context=context), _inputs(data)
    sequence = _flat(x, data).unflatten(1, (9, data.channels))
    before = torch.zeros(7, context, data.channels)
    seen = [torch.cat([before, sequence[:, : t + 1]], dim=1)[:, -context:] for t in range(9)]
    windows = [each.transpose(1, 2).flatten(1) for each in seen]  # one channel after the other
    torch.testing.assert_close(model(x), torch.stack([model.head(window) for window in windows], dim=1))


@pytest.mark.parametrize("context", [1, 4, 20])
def test_per_step_each_output_depends_on_its_context_alone(context):
    model, x = Linear(PER_STEP, context=context), torch.randn(1, 9, 3, requires_grad=True)
    for position in range(9):
        (grad,) = torch.autograd.grad(model(x)[0, position].sum(), x)
        seen = grad[0].abs().sum(1).nonzero().flatten().tolist()
        assert seen == list(range(max(0, position - context + 1), position + 1))


@pytest.mark.parametrize(
    ("data", "values", "num_weights"),
    [
        (KINDS["vector"], {}, 5 * 3 + 3),
        (KINDS["image"], {"bias": False}, 60 * 2),
        (KINDS["sequence"], {"context": 2}, 12 * 2 + 2),
        (PER_STEP, {"context": 5}, 5 * 3 * 2 + 2),
        (TOKENS_PER_STEP, {}, 8 * 4 * 4 + 4),
    ],
)
def test_the_number_of_weights_depends_on_the_context_only_per_step(data, values, num_weights):
    assert sum(p.numel() for p in Linear(data, **values).parameters()) == num_weights


def test_pytorchs_own_draw_is_kept():
    with seeded(0):
        model = Linear(KINDS["vector"])
    with seeded(0):
        expected = nn.Linear(5, 3).state_dict()
    assert all(torch.equal(model.head.state_dict()[name], expected[name]) for name in expected)


def test_normal_draws_a_matrix_of_variance_one_over_fan_in_and_biases_of_zero():
    head = Linear(DataSpec(kind="vector", shape=(200,), outputs=50), init="normal").head
    assert head.weight.std().item() == pytest.approx(200**-0.5, rel=0.05)
    assert not head.bias.any()
