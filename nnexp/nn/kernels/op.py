"""The recurrent layer as a custom torch operation with its own rules for vmap and gradients.

Tracing records the loop over time as one node. The C++ kernel computes it where there is one, else the torch kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.library import define, impl, register_autograd, register_fake, register_vmap

from nnexp.nn.kernels import compiled, plain
from nnexp.nn.kernels.build import library
from nnexp.nn.kernels.layer import Layer

NAME, BACK = "nnexp::recurrent", "nnexp::recurrent_backward"
_ARGUMENTS = "Tensor x, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor? lengths"
_OPTIONS = "str mode, bool reverse, bool whole"


def recurrent(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    lengths: Tensor | None,
    mode: str,
    reverse: bool = False,
    whole: bool = True,
) -> Tensor:
    """Return the states (B, T, H) of one direction of one layer, or the last states (B, H) unless `whole`.

    The initial state is zero. With K lanes every tensor, the result included, has K as its first axis;
    `torch.func.vmap` calls it once with all lanes.

    Args:
        x: inputs (B, T, C).
        w_ih: input weights (G * H, C) of G gates, in torch's order.
        w_hh: recurrent weights (G * H, H).
        b_ih: input biases (G * H,); None if and only if `b_hh` is.
        b_hh: recurrent biases (G * H,).
        lengths: (B,) integers; at positions from there on the state does not change. None: no padding.
        mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".
        reverse: read from the last position to the first.
        whole: return the states at all positions instead of the last one.

    Raises:
        ValueError: shapes, types or devices do not fit together.
    """
    states: Tensor = torch.ops.nnexp.recurrent(x, w_ih, w_hh, b_ih, b_hh, lengths, mode, reverse, whole)[0]
    return states


def _layer(*arguments: Any) -> tuple[Layer, bool]:
    """Return the layer, and whether its arguments had no lane axis."""
    is_unbatched = arguments[0].dim() == 3
    x, *weights, lengths = [t.unsqueeze(0) if is_unbatched and t is not None else t for t in arguments[:6]]
    weights = [w if w is None or w[0].is_contiguous() else w.contiguous() for w in weights]
    tensors: list[Any] = [x.contiguous(), *weights, None if lengths is None else lengths.contiguous()]
    return Layer(*tensors, *arguments[6:]), is_unbatched


_without_compiled: list[bool] = []  # one entry per nested `without_compiled_kernels`


@contextmanager
def without_compiled_kernels() -> Iterator[None]:
    """Use torch operations instead of C++ inside the block, for runs that began so: rounding differs between them."""
    _without_compiled.append(True)
    try:
        yield
    finally:
        _without_compiled.pop()


def is_compiled(device: torch.device) -> bool:
    """Check whether operations on this device use the C++ kernels. The first call compiles them."""
    return not _without_compiled and device.type == "cpu" and library()[0] is not None


def _kernel(layer: Layer) -> Any:
    return compiled if is_compiled(layer.x.device) else plain


def _forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    layer, is_unbatched = _layer(*arguments)
    kernel = _kernel(layer)
    kept = layer.x.new_empty(kernel.kept_size(layer))
    with torch.autocast(layer.x.device.type, enabled=False):
        states = kernel.forward(layer, kept)
    return states.squeeze(0) if is_unbatched else states, kept


def _backward(grad: Tensor, kept: Tensor, *arguments: Any) -> list[Tensor]:
    layer, is_unbatched = _layer(*arguments[:-1])
    grad = (grad.unsqueeze(0) if is_unbatched else grad).contiguous()
    kernel = _kernel(layer)
    if kept.numel() != kernel.kept_size(layer):
        # C++ would read beyond the end of what the torch kernel saved.
        raise RuntimeError("the forward pass was computed by another kernel than the backward pass")
    with torch.autocast(layer.x.device.type, enabled=False):
        grads = kernel.backward(layer, kept, grad, arguments[-1])
    given = [grad for grad in grads if grad is not None]
    return [grad.squeeze(0) for grad in given] if is_unbatched else given


def _fake(*arguments: Any) -> tuple[Tensor, Tensor]:
    layer, is_unbatched = _layer(*arguments)
    states = layer.new_states()
    kept = layer.x.new_empty(_kernel(layer).kept_size(layer))
    return states.squeeze(0) if is_unbatched else states, kept


def _fake_backward(grad: Tensor, kept: Tensor, *arguments: Any) -> list[Tensor]:
    weights = [t for t in arguments[1:5] if t is not None]
    return [t.new_empty(t.shape) for t in ([arguments[0]] if arguments[-1] else []) + weights]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1], *inputs[:6])
    ctx.options = inputs[6:]
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    kept, *tensors = ctx.saved_tensors
    nothing = (None,) * len(ctx.needs_input_grad)
    if grad is None:
        return nothing
    needs_x = ctx.needs_input_grad[0]
    grads = iter(torch.ops.nnexp.recurrent_backward(grad, kept, *tensors, *ctx.options, needs_x))
    of_x = next(grads) if needs_x else None
    return (of_x, *(None if w is None else next(grads) for w in tensors[1:5]), *nothing[5:])


def never(*_: Any) -> None:
    """Raise NotImplementedError, as the gradient of an operation that has none."""
    raise NotImplementedError("second derivatives of this operation are not implemented")


def _lanes(
    info: Any, in_dims: tuple[int | None, ...], *arguments: Any
) -> tuple[tuple[Tensor, Tensor], tuple[int, None]]:
    return torch.ops.nnexp.recurrent(*with_lanes(info.batch_size, in_dims, arguments)), (0, None)


def with_lanes(lanes: int, in_dims: tuple[int | None, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """Return the arguments of a vmap rule with the lane axis first; tensors that all lanes share are expanded.

    Args:
        lanes: K.
        in_dims: lane axis of each argument, None for arguments without one.
        arguments: tensors and options.
    """
    pairs = zip(arguments, in_dims, strict=True)
    return [
        a if not isinstance(a, Tensor) else a.expand(lanes, *a.shape) if dim is None else a.movedim(dim, 0)
        for a, dim in pairs
    ]


define(NAME, f"({_ARGUMENTS}, {_OPTIONS}) -> (Tensor states, Tensor kept)")
define(BACK, f"(Tensor grad, Tensor kept, {_ARGUMENTS}, {_OPTIONS}, bool needs_x) -> Tensor[]")
impl(NAME, "CompositeExplicitAutograd", _forward)
impl(BACK, "CompositeExplicitAutograd", _backward)
register_fake(NAME, _fake)
register_fake(BACK, _fake_backward)
register_autograd(NAME, _gradients, setup_context=_save)
register_autograd(BACK, never)
register_vmap(NAME, _lanes)
