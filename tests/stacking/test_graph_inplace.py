"""Results written into memory that nobody reads any more, and into no other."""

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from nnexp.stacking.graph_codegen import function_of
from nnexp.stacking.graph_inplace import reuse_memory
from nnexp.stacking.graph_simplify import simplify

CONSTANT = torch.arange(16.0)


def _reused(function, *inputs: Tensor) -> list[str]:
    """The names of the operations; they give the same bits twice, and leave their inputs as they are."""
    graph = make_fx(function)(*inputs)
    simplify(graph)
    reuse_memory(graph)
    run, kept, wanted = function_of(graph), [t.clone() for t in inputs], function(*inputs)
    for _ in range(2):
        assert all(torch.equal(one, other) for one, other in zip(run(*inputs), wanted, strict=True))
        assert all(torch.equal(one, other) for one, other in zip(inputs, kept, strict=True))
    names = [node.target.__name__ for node in graph.graph.nodes if node.op == "call_function"]
    return [name for name in names if not name.startswith(("view", "_unsafe_view", "transpose", "slice", "expand"))]


def _gelu(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(torch.nn.functional.gelu(x * 2), x, y * 3)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x, y: (((x + y) * 3).exp(),), ["add.Tensor", "mul_.Tensor", "exp_.default"]),
        (lambda x, y: (y - (x + y),), ["add.Tensor", "sub.Tensor"]),  # there is none that writes into the second
        (lambda x, y: (y + (x * y),), ["mul.Tensor", "add_.Tensor"]),
        (lambda x, y: (y[:1] + (x * y),), ["mul.Tensor", "add_.Tensor"]),  # the smaller is spread
        (lambda x, y: ((x @ y).view(4, 4).exp(),), ["mm.default", "exp_.default"]),  # through a view
        (lambda x, y: _gelu(x, y), ["mul.Tensor", "mul.Tensor", "gelu_backward.grad_input", "mul_.Tensor"]),
    ],
)
def test_a_result_takes_the_place_of_what_is_read_for_the_last_time(function, names):
    assert _reused(function, torch.randn(4, 4), torch.randn(4, 4)) == names


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x.exp(), y.neg()),  # inputs
        lambda x, y: ((z := x @ y), z.exp()),  # given back
        lambda x, y: ((z := x @ y).exp(), z.neg().sum(), z.abs().sum()),  # read later, which the first must leave
        lambda x, y: ((z := x @ y).exp() + z.mT.sum(0),),  # a view of it is read later
        lambda x, y: ((z := x @ y).mT + z,),  # the other input is the same memory in another order
        lambda x, y: ((z := x @ y) * z.flatten()[0],),  # and a part of it
        lambda x, y: ((x @ y)[:1] + y,),  # larger
        lambda x, y: ((x @ y) > 0,),  # of another type
        lambda x, y: (torch.where(x > 0, x @ y, y),),  # there is none that works in place
        lambda x, y: ((p := torch.unsafe_chunk(z := x @ y, 2))[0] + z.tanh()[:2] * p[1],),  # views that do not say so
        lambda x, y: (CONSTANT.view(4, 4).neg(), x),  # what every step reads
        lambda x, y: ((z := x @ y).real.exp() + torch.view_as_real(torch.complex(z, z))[..., 1],),
    ],
)
def test_what_is_still_read_stays(function):
    names = _reused(function, torch.randn(4, 4), torch.randn(4, 4))
    first = names[names.index("mm.default") + 1] if "mm.default" in names else names[0]
    assert "_." not in first, names


def test_a_result_that_took_a_place_lives_on_in_it():
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        changed = (x @ y).exp()
        return changed * 2, changed + 1

    assert _reused(step, torch.randn(4, 4), torch.randn(4, 4)) == [
        "mm.default",
        "exp_.default",
        "mul.Tensor",
        "add_.Tensor",
    ]
