"""Results put into the memory of an input that is read for the last time.

It lies in the caches already, and nothing is allocated. The numbers are the same: operations of one number each are
carried out alike in place.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from nnexp.graph import aten, layout, root

# Those that have no form that works in place have one that is told where to write.
TOLD = {
    getattr(aten, name).default: getattr(aten, name).grad_input
    for name in ("gelu_backward", "sigmoid_backward", "tanh_backward", "threshold_backward")
}
COMMUTE = {aten.add.Tensor, aten.mul.Tensor}


def reuse_memory(module: GraphModule) -> None:
    """Change, in place, a graph of `nnexp.graph`."""
    graph = module.graph
    last = _last_reads(graph)
    for number, node in enumerate(graph.nodes):
        for place, source in enumerate(node.args[:2]):
            is_free = _can_hold(source, node) and last[root(source)] == number and _is_apart(source, node)
            if is_free and _write_into(node, place):
                last[root(source)] = last.pop(node, number)
                break
    module.recompile()


def _last_reads(graph: Graph) -> dict[Any, float]:
    """By whom what lies in a node's memory is last read: its number, or infinity for what is given back."""
    last: dict[Any, float] = {}
    for number, node in enumerate(graph.nodes):
        for source in node.all_input_nodes:
            last[root(source)] = math.inf if node.op == "output" else number
    return last


def _can_hold(source: Any, node: Node) -> bool:
    """Whether the result fits, into memory that is the graph's own."""
    if not isinstance(source, Node) or root(source).op != "call_function":
        return False
    values = (source.meta.get("val"), node.meta.get("val"))
    return all(isinstance(value, torch.Tensor) for value in values) and layout(source) == layout(node)


def _is_apart(source: Node, node: Node) -> bool:
    """Whether no other input reads the same memory in another order."""
    return all(other is source or root(other) is not root(source) for other in node.all_input_nodes)


def _write_into(node: Node, place: int) -> bool:
    """Have the result written into an input, if there is an operation that does it."""
    if node.target in TOLD:
        node.kwargs = {**node.kwargs, "grad_input": node.args[place]}
        node.target = TOLD[node.target]
        return True
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.pointwise not in target.tags or node.kwargs:
        return False
    packet = getattr(aten, target.overloadpacket.__name__ + "_", None)
    if packet is None or target._overloadname not in packet.overloads() or (place and target not in COMMUTE):
        return False
    node.target = getattr(packet, target._overloadname)
    if place:
        node.args = (node.args[1], node.args[0])
    return True
