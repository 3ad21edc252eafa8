"""Computation graph of a model, for TensorBoard's Graphs tab (Abadi et al., 2016, arXiv:1603.04467: nodes are
operations, grouped by name scope).

    a node is an operation, weight, buffer or input;  an edge a -> b means that b reads an output of a

Departs from `torch.utils.tensorboard`, which compiles the model (0.5 s, with warnings, and not every model), in tracing
one forward pass: operations appear as the model calls them, in the scope of the layer that calls them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor, nn

from nnexp import GraphNode, Observation, Probe, Range, graph, probe
from nnexp.probing import Operation, View, trace_operations

MAX_NODES = 1000  # more are slow to lay out in a browser
ROWS = 2
REST = GraphNode("more", "NotShown")


@probe
@dataclass(kw_only=True)
class Graph(Probe):
    """Graph of the operations in one forward pass; TensorBoard shows that of the first observation."""

    every: Annotated[int, Range(min=1)] | Literal["log", "ends"] = "ends"

    def __call__(self, view: View) -> Observation:
        """Return the graph of one forward pass on validation rows."""
        x, _, *lengths = view.rows("val", ROWS)
        operations, output = trace_operations(view.module, x, *lengths)
        builder = _Builder(view.module, dict(zip(("x", "lengths"), (x, *lengths), strict=False)))
        for operation in operations:
            builder.add(operation)
        return Observation(
            graph=graph([*builder.nodes, GraphNode("output", "Output", builder.read([output], ""), [output.shape])])
        )


class _Builder:
    """Collects nodes, and the node that made each tensor."""

    def __init__(self, module: nn.Module, inputs: dict[str, Tensor]) -> None:
        self.scopes = _scopes(module)
        self.nodes: list[GraphNode] = []
        self._makers: dict[int, str] = {}
        self._counts: dict[str, int] = {}
        self._fixed = {id(tensor): (self._scoped(name), "Parameter") for name, tensor in module.named_parameters()}
        self._fixed |= {id(tensor): (self._scoped(name), "Buffer") for name, tensor in module.named_buffers()}
        self._fixed |= {id(tensor): (f"input/{name}", "Input") for name, tensor in inputs.items()}

    def add(self, operation: Operation) -> None:
        """Add an operation, and the inputs that have no node yet."""
        inputs = self.read(operation.inputs, operation.scope)
        self._node(self.scopes[operation.scope] + operation.name, operation.name, inputs, operation.outputs)

    def read(self, tensors: list[Tensor], scope: str) -> list[str]:
        """Return the names of the nodes that made some tensors, after adding weights, inputs and constants."""
        for tensor in tensors:
            if id(tensor) not in self._makers:
                name, op = self._fixed.get(id(tensor), (f"{self.scopes[scope]}constant", "Const"))
                self._node(name, op, [], [tensor])
        return list(dict.fromkeys(self._makers[id(tensor)] for tensor in tensors))

    def _node(self, name: str, op: str, inputs: list[str], outputs: list[Tensor]) -> None:
        if len(self.nodes) < MAX_NODES:
            count = self._counts[name] = self._counts.get(name, -1) + 1
            node = GraphNode(f"{name}_{count}" if count else name, op, inputs, [tensor.shape for tensor in outputs])
            self.nodes.append(node)
        elif len(self.nodes) == MAX_NODES:
            self.nodes.append(REST)
        self._makers.update((id(tensor), self.nodes[-1].name) for tensor in outputs)

    def _scoped(self, name: str) -> str:
        path, _, leaf = name.rpartition(".")
        return self.scopes[path] + leaf


def _scopes(module: nn.Module) -> dict[str, str]:
    """Return the name scope of each layer, for `hidden.0` for example `Sequential[hidden]/Linear[0]/`."""
    scopes = {"": ""}
    for path, layer in module.named_modules():
        if path:
            parent, _, leaf = path.rpartition(".")
            scopes[path] = f"{scopes[parent]}{type(layer).__name__}[{leaf}]/"
    return scopes
