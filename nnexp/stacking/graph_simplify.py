"""Graph pass that removes identities, duplicates and constants from a traced training step.

A step of a stack of small models is a few hundred operations of a few microseconds each, so every operation counts. No
number changes.

Graphs come from `torch.fx.experimental.proxy_tensor.make_fx`, traced with tensors of the shapes that they are run with,
none of which requires a gradient.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

aten = torch.ops.aten
POSSIBLE_IDENTITIES = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.expand.default,
    aten.permute.default,
    aten.detach.default,
}
VIEWS = {aten.view.default, aten._unsafe_view.default}
# Views whose schema does not declare an alias.
UNDECLARED_VIEWS = {
    aten._unsafe_view.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.lift.default,
}
FILL_VALUES = {
    aten.ones_like.default: 1,
    aten.zeros_like.default: 0,
    aten.new_zeros.default: 0,
    aten.new_ones.default: 1,
}
MAX_CONSTANT_SIZE = 2**16  # numbers in a tensor that is kept between steps


def simplify(module: GraphModule) -> None:
    """Remove operations that return their input or repeat another, and compute constants once.

    Args:
        module: the traced graph; it is modified.
    """
    graph = module.graph
    _drop_identities(graph)
    _join_views(graph)
    _drop_identities(graph)
    written = {_root(value) for node in graph.nodes for value in _written_by(node)}
    _merge_equal(graph, written)
    _fold_constants(module, written)
    graph.eliminate_dead_code()
    module.recompile()


def reshapes_in_place(module: GraphModule) -> bool:
    """Return whether an operation changes the shape of its input in place, so that `simplify` must not be applied.

    Aliases of that tensor would change their shape too.
    """
    targets = [node.target for node in module.graph.nodes]
    return any(torch.Tag.inplace_view in target.tags for target in targets if isinstance(target, torch._ops.OpOverload))


def _is_aten(node: Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "namespace", "") == "aten"


def _written_by(node: Node) -> list[Any]:
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    arguments = node.target._schema.arguments
    values = [*node.args, *(node.kwargs.get(argument.name) for argument in arguments[len(node.args) :])]
    return [v for a, v in zip(arguments, values, strict=True) if a.alias_info is not None and a.alias_info.is_write]


def _is_repeatable(node: Node) -> bool:
    """Return whether a node is a deterministic operation without side effects."""
    is_pure = _is_aten(node) and not _written_by(node)
    return is_pure and torch.Tag.nondeterministic_seeded not in node.target.tags  # type: ignore[union-attr]  # an operation, as just checked


def _root(value: Any) -> Any:
    """Return the node whose memory a view reads; the node itself where it is no view."""
    while isinstance(value, Node) and value.op == "call_function" and value.args and _may_alias(value):
        value = value.args[0]
    return value


def _may_alias(node: Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or node.target in UNDECLARED_VIEWS:
        return True  # an element of a tuple, or an undeclared view
    return any(argument.alias_info is not None for argument in node.target._schema.arguments)


def layout(node: Node) -> tuple[Any, ...]:
    """Return shape, strides and dtype of a node's result."""
    value = node.meta["val"]
    return value.shape, value.stride(), value.dtype


def _drop_identities(graph: Graph) -> None:
    for node in graph.nodes:
        if not _is_aten(node) or not node.args or not isinstance(node.args[0], Node):
            continue
        is_same = node.target in POSSIBLE_IDENTITIES and layout(node) == layout(node.args[0])
        is_product_with_one = node.target is aten.mul.Scalar and type(node.args[1]) is int and node.args[1] == 1
        if is_same or (is_product_with_one and layout(node) == layout(node.args[0])):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _join_views(graph: Graph) -> None:
    """Replace a view of a view by one view, where the memory layout allows it."""
    for node in graph.nodes:
        source = node.args[0] if node.target in VIEWS else None
        if isinstance(source, Node) and source.target in VIEWS and isinstance(source.args[0], Node):
            first, shape = source.args[0], list(node.meta["val"].shape)
            try:
                joined = first.meta["val"].view(shape)
            except RuntimeError:
                continue
            if joined.stride() == node.meta["val"].stride():
                node.target, node.args = aten.view.default, (first, shape)
    graph.eliminate_dead_code()


def _merge_equal(graph: Graph, written: set[Any]) -> None:
    """Keep one of several equal operations on the same inputs, unless an input or output is written to."""
    first: dict[tuple[Any, ...], Node] = {}
    for node in graph.nodes:
        reads_written = any(_root(source) in written for source in node.all_input_nodes)
        if not _is_repeatable(node) or reads_written or node in written:
            continue
        key = (node.target, repr(node.args), repr(node.kwargs))
        if first.setdefault(key, node) is not node:
            node.replace_all_uses_with(first[key])
            graph.erase_node(node)


def _fold_constants(module: GraphModule, written: set[Any]) -> None:
    """Replace small tensors that depend on no input by buffers of the module."""
    graph, values = module.graph, {}
    for node in graph.nodes:
        like = node.meta.get("val")
        if not _is_repeatable(node) or not isinstance(like, Tensor) or _root(node) in written:
            continue
        if math.prod(like.shape) > MAX_CONSTANT_SIZE or any(user.op == "output" for user in node.users):
            continue
        if node.target in FILL_VALUES:
            empty = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
            values[node] = empty.fill_(FILL_VALUES[node.target])
        elif all(source in values for source in node.all_input_nodes):
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
    for number, (node, value) in enumerate(values.items()):
        name = f"constant{number}"
        module.register_buffer(name, value)
        with graph.inserting_before(node):
            constant = graph.get_attr(name)
        node.replace_all_uses_with(constant)
        graph.erase_node(node)
