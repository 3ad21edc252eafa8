"""Results put into the memory of an input that is read for the last time.

It lies in the caches already, and nothing is allocated. The numbers are the same: operations of one number each are
carried out alike in place. What shares memory is not read off what operations say of themselves, for some do not say
it: the graph is run once on tensors without numbers.
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

# Those that have no form that works in place have one that is told where to write.
TOLD = {
    getattr(aten, name).default: getattr(aten, name).grad_input
    for name in ("gelu_backward", "sigmoid_backward", "tanh_backward", "threshold_backward")
}
COMMUTE = {aten.add.Tensor, aten.mul.Tensor}


def reuse_memory(module: GraphModule) -> None:
    """Change, in place, a graph of `nnexp.stacking.graph_simplify`."""
    try:
        _find_memory(module)
    except Exception:  # an operation that needs numbers
        return
    reuse = _Reuse(module.graph)
    for number, node in enumerate(module.graph.nodes):
        for place, source in enumerate(node.args[:2]):
            if reuse.is_free(source, node, number) and _write_into(node, place):
                reuse.join(node, source)
                break
    module.recompile()


def _find_memory(module: GraphModule) -> None:
    """Give the value of each node the memory that it has in a run."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    values = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    with mode:
        inputs = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device) for v in values]
    FakeTensorProp(module, mode).propagate_dont_convert_inputs(*inputs)


class _Reuse:
    """Which memory each node's result lies in, and by which node, counted through, it is last read."""

    def __init__(self, graph: Graph) -> None:
        self.memory = {
            node: value.untyped_storage()._cdata for node in graph.nodes if (value := _value(node)) is not None
        }
        self.given = {self.memory.get(node) for node in graph.nodes if node.op in ("placeholder", "get_attr")}
        self.last: dict[Any, float] = {}
        for number, node in enumerate(graph.nodes):
            for source in node.all_input_nodes:
                self.last[self.memory.get(source)] = math.inf if node.op == "output" else number

    def is_free(self, source: Any, node: Node, number: int) -> bool:
        """Whether the result of a node fits into the memory of an input, which is the graph's own and not read again,
        nor in another order by another input.
        """
        if not isinstance(source, Node) or _value(source) is None or _value(node) is None:
            return False
        mine = self.memory[source]
        others = [other for other in node.all_input_nodes if other is not source]
        is_last = mine not in self.given and self.last[mine] == number
        return is_last and layout(source) == layout(node) and all(self.memory.get(other) != mine for other in others)

    def join(self, node: Node, source: Node) -> None:
        """The result now lies there, and so do its views."""
        mine, taken = self.memory[node], self.memory[source]
        self.memory.update({other: taken for other, memory in self.memory.items() if memory == mine})
        self.last[taken] = self.last.pop(mine, self.last[taken])


def _value(node: Node) -> Tensor | None:
    value = node.meta.get("val")
    return value if isinstance(value, Tensor) else None


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
