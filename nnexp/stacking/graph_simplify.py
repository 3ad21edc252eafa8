"""A traced graph of ATen operations made smaller, and run with little time between its operations.

Of many small models trained as one, a step is some hundred operations of a few microseconds: what stands between them
counts as much as they do. Nothing here changes a number.

A graph is one of `torch.fx.experimental.proxy_tensor.make_fx`, traced with tensors of the shapes that it is run with,
none of which requires a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

aten = torch.ops.aten
SAME = {aten.view.default, aten._unsafe_view.default, aten.expand.default, aten.permute.default, aten.detach.default}
VIEWS = {aten.view.default, aten._unsafe_view.default}
# Views that do not say so.
UNSAID = {aten._unsafe_view.default, aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default, aten.lift.default}
FILLED = {aten.ones_like.default: 1, aten.zeros_like.default: 0, aten.new_zeros.default: 0, aten.new_ones.default: 1}
MOST_KEPT = 2**16  # numbers in a tensor that is kept from step to step
Step = Callable[..., Any]  # returns a tensor, or a tuple of tensors


def simplify(module: GraphModule) -> None:
    """Take out, in place, operations that give their input or the same as another, and compute constants once."""
    graph = module.graph
    _drop_identities(graph)
    _join_views(graph)
    _drop_identities(graph)
    written = {_root(value) for node in graph.nodes for value in _written_by(node)}
    _merge_equal(graph, written)
    _keep_constants(module, written)
    graph.eliminate_dead_code()
    module.recompile()


def reshapes_in_place(module: GraphModule) -> bool:
    """Whether an operation gives a tensor another shape: two names of one tensor then differ from two tensors."""
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
    """Whether it gives the same each time, and changes nothing."""
    is_pure = _is_aten(node) and not _written_by(node)
    return is_pure and torch.Tag.nondeterministic_seeded not in node.target.tags  # type: ignore[union-attr]  # an operation, as just checked


def _root(value: Any) -> Any:
    """The node whose memory a view reads; of what is no view, itself."""
    while isinstance(value, Node) and value.op == "call_function" and value.args and _may_alias(value):
        value = value.args[0]
    return value


def _may_alias(node: Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload) or node.target in UNSAID:
        return True  # an element of a tuple, or a view that does not say so
    return any(argument.alias_info is not None for argument in node.target._schema.arguments)


def layout(node: Node) -> tuple[Any, ...]:
    value = node.meta["val"]
    return value.shape, value.stride(), value.dtype


def _drop_identities(graph: Graph) -> None:
    for node in graph.nodes:
        if not _is_aten(node) or not node.args or not isinstance(node.args[0], Node):
            continue
        is_same = node.target in SAME and layout(node) == layout(node.args[0])
        is_product_with_one = node.target is aten.mul.Scalar and type(node.args[1]) is int and node.args[1] == 1
        if is_same or (is_product_with_one and layout(node) == layout(node.args[0])):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _join_views(graph: Graph) -> None:
    """A view of a view is one view, where memory allows it."""
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
    """Of operations that are the same, on inputs that are and stay the same, one is left."""
    first: dict[tuple[Any, ...], Node] = {}
    for node in graph.nodes:
        reads_written = any(_root(source) in written for source in node.all_input_nodes)
        if not _is_repeatable(node) or reads_written or node in written:
            continue
        key = (node.target, repr(node.args), repr(node.kwargs))
        if first.setdefault(key, node) is not node:
            node.replace_all_uses_with(first[key])
            graph.erase_node(node)


def _keep_constants(module: GraphModule, written: set[Any]) -> None:
    """What depends on no input becomes an attribute, where it is small."""
    graph, values = module.graph, {}
    for node in graph.nodes:
        like = node.meta.get("val")
        if not _is_repeatable(node) or not isinstance(like, Tensor) or _root(node) in written:
            continue
        if math.prod(like.shape) > MOST_KEPT or any(user.op == "output" for user in node.users):
            continue
        if node.target in FILLED:
            empty = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
            values[node] = empty.fill_(FILLED[node.target])
        elif all(source in values for source in node.all_input_nodes):
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
    for number, (node, value) in enumerate(values.items()):
        name = f"constant{number}"
        module.register_buffer(name, value)
        with graph.inserting_before(node):
            kept = graph.get_attr(name)
        node.replace_all_uses_with(kept)
        graph.erase_node(node)


def function_of(module: GraphModule) -> Step:
    """The graph as one function in which each operation is called by a name of its own.

    That leaves out the three attributes that torch.fx looks up for each call, and the call of a Python function.
    """
    writer = _Writer(module)
    for node in module.graph.nodes:
        writer.add(node)
    return writer.function()


class _Writer:
    """Source of a function, line by line, and what its names are bound to."""

    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.names: dict[Node, str] = {}
        self.scope: dict[str, Any] = {}
        self.inputs: list[str] = []
        self.lines: list[str] = []
        self.last_reads = _last_reads(module.graph)

    def add(self, node: Node) -> None:
        name = self.names[node] = f"v{len(self.names)}"
        if node.op == "placeholder":
            self.inputs.append(name)
        elif node.op == "get_attr":
            self.names[node] = self.bound(getattr(self.module, str(node.target)))
        elif node.op == "output":
            self.lines.append(f"return {self.said(node.args[0])}")
        else:
            arguments = [self.said(value) for value in node.args]
            arguments += [f"{key}={self.said(value)}" for key, value in node.kwargs.items()]
            called = self.bound(getattr(node.target, "_op", node.target))
            freed = [self.names[read] for read in self.last_reads.get(node, ()) if read.op != "get_attr"]
            self.lines.append(
                "; ".join([f"{name} = {called}({', '.join(arguments)})", *(f"{v} = None" for v in freed)])
            )

    def bound(self, value: Any) -> str:
        name = f"k{len(self.scope)}"
        self.scope[name] = value
        return name

    def said(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.names[value]
        if isinstance(value, list | tuple):
            return f"({''.join(self.said(item) + ', ' for item in value)})"
        return repr(value) if value is None or type(value) in (int, bool) else self.bound(value)

    def function(self) -> Step:
        exec(f"def step({', '.join(self.inputs)}):\n    " + "\n    ".join(self.lines), self.scope)  # noqa: S102  # only names of our own
        step: Step = self.scope["step"]
        return step


def _last_reads(graph: Graph) -> dict[Node, list[Node]]:
    """What each node is the last to read, which can then be freed."""
    seen: set[Node] = set()
    result: dict[Node, list[Node]] = {}
    for node in reversed(graph.nodes):
        result[node] = [source for source in node.all_input_nodes if source not in seen]
        seen.update(result[node])
    return result
