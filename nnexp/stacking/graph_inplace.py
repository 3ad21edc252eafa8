"""Graph pass that makes pointwise operations write into an input that is read for the last time.

This allocates no memory and writes to what is in the cache already. The numbers are the same: a pointwise operation
computes them alike in place. Which tensors share memory is found by running the graph once on fake tensors, because
some operations do not declare that their output is a view.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from nnexp.stacking.graph_simplify import aten, layout

# Operations without an in-place form, and their overloads that take the output tensor as `grad_input`.
WITH_OUTPUT_ARGUMENT = {
    getattr(aten, name).default: getattr(aten, name).grad_input
    for name in ("gelu_backward", "sigmoid_backward", "tanh_backward", "threshold_backward")
}
COMMUTE = {aten.add.Tensor, aten.mul.Tensor}


def reuse_memory(module: GraphModule) -> None:
    """Rewrite pointwise operations of a graph to work in place, where their input is not read afterwards.

    Args:
        module: a graph from `graph_simplify.simplify`; it is modified.
    """
    try:
        _find_memory(module)
    except Exception:  # an operation that fake tensors do not support
        return
    reuse = _Reuse(module.graph)
    for number, node in enumerate(module.graph.nodes):
        for index, source in enumerate(node.args[:2]):
            if reuse.is_free(source, node, number) and _write_into(node, index):
                reuse.join(node, source)
                break
    module.recompile()


def _find_memory(module: GraphModule) -> None:
    """Replace the recorded value of each node by a fake tensor whose storage shows what shares memory."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    values = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    with mode:
        inputs = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device) for v in values]
    FakeTensorProp(module, mode).propagate_dont_convert_inputs(*inputs)


class _Reuse:
    """Storage of each node's result, and the number of the node that reads it last."""

    def __init__(self, graph: Graph) -> None:
        self.memory = {
            node: value.untyped_storage()._cdata for node in graph.nodes if (value := _value(node)) is not None
        }
        self.external = {self.memory.get(node) for node in graph.nodes if node.op in ("placeholder", "get_attr")}
        self.last_read: dict[Any, float] = {}
        for number, node in enumerate(graph.nodes):
            for source in node.all_input_nodes:
                self.last_read[self.memory.get(source)] = math.inf if node.op == "output" else number

    def is_free(self, source: Any, node: Node, number: int) -> bool:
        """Return whether a node may write its result into the memory of one of its inputs.

        The input must have the result's layout, belong to the graph, and not be read again; no other input of the node
        may share its memory.

        Args:
            source: the input.
            node: the node.
            number: its index in the graph.
        """
        if not isinstance(source, Node) or _value(source) is None or _value(node) is None:
            return False
        storage = self.memory[source]
        others = [other for other in node.all_input_nodes if other is not source]
        is_last = storage not in self.external and self.last_read[storage] == number
        return is_last and layout(source) == layout(node) and all(self.memory.get(other) != storage for other in others)

    def join(self, node: Node, source: Node) -> None:
        """Record that the result of a node, and its views, lie in the memory of an input."""
        old, new = self.memory[node], self.memory[source]
        self.memory.update({other: new for other, memory in self.memory.items() if memory == old})
        self.last_read[new] = self.last_read.pop(old, self.last_read[new])


def _value(node: Node) -> Tensor | None:
    value = node.meta.get("val")
    return value if isinstance(value, Tensor) else None


def _write_into(node: Node, index: int) -> bool:
    """Make a node write into one of its inputs; return False where no operation does that."""
    if node.target in WITH_OUTPUT_ARGUMENT:
        node.kwargs = {**node.kwargs, "grad_input": node.args[index]}
        node.target = WITH_OUTPUT_ARGUMENT[node.target]
        return True
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.pointwise not in target.tags or node.kwargs:
        return False
    packet = getattr(aten, target.overloadpacket.__name__ + "_", None)
    if packet is None or target._overloadname not in packet.overloads() or (index and target not in COMMUTE):
        return False
    node.target = getattr(packet, target._overloadname)
    if index:
        node.args = (node.args[1], node.args[0])
    return True
