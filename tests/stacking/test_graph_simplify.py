"""A graph made smaller, and as a function: the same numbers to the last bit, and what must stay in it."""

import pytest
import torch
from contract.registry import plugin
from torch import Tensor
from torch.func import functional_call, vmap
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from nnexp import DataSpec
from nnexp.data.losses import loss
from nnexp.stacking.graph_codegen import function_of
from nnexp.stacking.graph_simplify import MAX_CONSTANT_SIZE, simplify

pytestmark = pytest.mark.slow


IMAGE = DataSpec(kind="image", shape=(1, 6, 6), outputs=3)
PER_STEP = DataSpec(kind="tokens", shape=(7,), vocab=4, outputs=4, per_step=True)
CASES = [
    ("mlp", IMAGE, {}),
    ("linear", PER_STEP, {}),
    ("cnn", IMAGE, {"residual": True}),
    ("cnn", PER_STEP, {}),
    ("vit", IMAGE, {"patch_size": 2}),
]


def _gradients(model: torch.nn.Module, data: DataSpec):
    """Of the losses of models stacked."""

    def step(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        weights = {name: value.detach().requires_grad_() for name, value in weights.items()}
        losses = vmap(lambda w, x, y: loss(functional_call(model, w, (x,)), y, data))(weights, x, y)
        return losses.detach(), *torch.autograd.grad(losses.sum(), list(weights.values()))

    return step


def _stacked(name: str, data: DataSpec, values: dict, num_lanes: int) -> tuple:
    cls = plugin("model", name)
    models = [cls(data, **values) for _ in range(num_lanes)]
    models[0].fused = False
    weights = {key: torch.stack([m.state_dict()[key] for m in models]) for key in models[0].state_dict()}
    shape = (num_lanes, 4, *data.shape)
    x = torch.randint(data.vocab, shape) if data.kind == "tokens" else torch.randn(shape)
    y = torch.randint(data.outputs, (num_lanes, 4, 7) if data.per_step else (num_lanes, 4))
    return _gradients(models[0], data), (weights, x, y)


def _flat(arguments: tuple) -> list[Tensor]:
    return torch.utils._pytree.tree_leaves(arguments)


def _equal(first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("num_lanes", [2, 5])
@pytest.mark.parametrize(("name", "data", "values"), CASES, ids=str)
def test_a_step_of_a_stack_gives_the_same_bits_from_fewer_operations(name, data, values, num_lanes):
    step, arguments = _stacked(name, data, values, num_lanes)
    names = list(arguments[0])

    def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
        return step(dict(zip(names, tensors, strict=False)), *tensors[-2:])

    graph = make_fx(flat)(*_flat(arguments))
    expected, before = graph(*_flat(arguments)), len(graph.graph.nodes)
    simplify(graph)
    assert len(graph.graph.nodes) < 0.85 * before
    function = function_of(graph)
    for _ in range(2):
        assert _equal(graph(*_flat(arguments)), expected)
        assert _equal(function(*_flat(arguments)), expected)


def _simplified(function, *inputs: Tensor) -> tuple[GraphModule, list[str]]:
    """And the names of the operations that are left."""
    graph = make_fx(function)(*inputs)
    simplify(graph)
    return graph, [node.target.__name__ for node in graph.graph.nodes if node.op == "call_function"]


def test_equal_operations_are_one_and_views_that_change_nothing_none():
    _, left = _simplified(lambda x: x.view(3, 2).expand(3, 2).exp() + x.exp().view(2, 3).view(3, 2), torch.randn(3, 2))
    assert left == ["exp.default", "add.Tensor"]


def test_numbers_that_are_drawn_stay_apart():
    graph, left = _simplified(lambda x: torch.rand_like(x) - torch.rand_like(x), torch.zeros(5))
    assert left.count("rand_like.default") == 2
    assert (function_of(graph)(torch.zeros(5)) != 0).all()


def test_memory_that_is_written_is_neither_shared_nor_kept():
    def step(x: Tensor) -> Tensor:
        first, second = x.new_zeros(4), x.new_zeros(4)
        before = first.sum()
        first[1:] += x
        return torch.stack([before, first.sum(), second.sum()])

    x = torch.arange(1.0, 4.0)
    function = function_of(_simplified(step, x)[0])
    for _ in range(2):
        assert function(x).tolist() == [0, 6, 0]


@pytest.mark.parametrize("factory", [torch.ones_like, torch.zeros_like], ids=["ones", "zeros"])
def test_small_constants_are_kept_and_large_ones_are_made_at_each_step(factory):
    for size, kept in ((MAX_CONSTANT_SIZE, True), (MAX_CONSTANT_SIZE + 1, False)):
        x = torch.randn(size)
        graph, left = _simplified(lambda x: x * factory(x).neg(), x)
        assert (left == ["mul.Tensor"]) == kept
        assert torch.equal(function_of(graph)(x), x * factory(x).neg())


def test_a_constant_that_is_given_back_is_a_new_one_each_time():
    function = function_of(_simplified(torch.ones_like, torch.zeros(3))[0])
    function(torch.zeros(3)).add_(1)
    assert function(torch.zeros(3)).tolist() == [1, 1, 1]


def test_a_graph_with_several_parts_of_a_tuple():
    def step(x: Tensor) -> Tensor:
        low, high = x.split(2)
        value, index = low.max(0)
        return value * high.sum() + index

    x = torch.randn(4)
    assert torch.equal(function_of(_simplified(step, x)[0])(x), step(x))
