"""The model as a graph, for TensorBoard's Graphs tab (Abadi et al., 2016, arXiv:1603.04467, whose nodes are operations
in boxes of names).

    a node is an operation, weight, buffer or input;  an edge a -> b says that b reads a tensor that a gave

Departs from `torch.utils.tensorboard`, which compiles the model (0.5 s, with warnings of torch, and not all models),
in watching one forward pass: operations stand as they are written, in the boxes of the layers that call them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor, nn

from nnexp import Observation, Probe, Range, probe
from nnexp.probing import Operation, View, operations_of
from nnexp.tensorboard import GraphNode, graph

MOST_NODES = 1000  # the browser lays them out
ROWS = 2
REST = GraphNode("more", "NotShown")


@probe
@dataclass(kw_only=True)
class Graph(Probe):
    """What the model computes from what: the graph of one forward pass; TensorBoard shows that of the first look."""

    every: Annotated[int, Range(min=1)] | Literal["log", "ends"] = "ends"

    def __call__(self, view: View) -> Observation:
        x, _, *lengths = view.rows("val", ROWS)
        operations, output = operations_of(view.module, x, *lengths)
        builder = _Builder(view.module, dict(zip(("x", "lengths"), (x, *lengths), strict=False)))
        for operation in operations:
            builder.add(operation)
        return Observation(
            graph=graph([*builder.nodes, GraphNode("output", "Output", builder.read([output], ""), [output.shape])])
        )


class _Builder:
    """Nodes, and which of them gave each tensor."""

    def __init__(self, module: nn.Module, inputs: dict[str, Tensor]) -> None:
        self.boxes = _boxes(module)
        self.nodes: list[GraphNode] = []
        self._givers: dict[int, str] = {}
        self._counts: dict[str, int] = {}
        self._fixed = {id(tensor): (self._box(name), "Parameter") for name, tensor in module.named_parameters()}
        self._fixed |= {id(tensor): (self._box(name), "Buffer") for name, tensor in module.named_buffers()}
        self._fixed |= {id(tensor): (f"input/{name}", "Input") for name, tensor in inputs.items()}

    def add(self, operation: Operation) -> None:
        inputs = self.read(operation.inputs, operation.scope)
        self._node(self.boxes[operation.scope] + operation.name, operation.name, inputs, operation.outputs)

    def read(self, tensors: list[Tensor], scope: str) -> list[str]:
        """The nodes that gave some tensors, each once; of those that no operation gave, made now."""
        for tensor in tensors:
            if id(tensor) not in self._givers:
                name, op = self._fixed.get(id(tensor), (f"{self.boxes[scope]}constant", "Const"))
                self._node(name, op, [], [tensor])
        return list(dict.fromkeys(self._givers[id(tensor)] for tensor in tensors))

    def _node(self, name: str, op: str, inputs: list[str], outputs: list[Tensor]) -> None:
        if len(self.nodes) < MOST_NODES:
            count = self._counts[name] = self._counts.get(name, -1) + 1
            node = GraphNode(f"{name}_{count}" if count else name, op, inputs, [tensor.shape for tensor in outputs])
            self.nodes.append(node)
        elif len(self.nodes) == MOST_NODES:
            self.nodes.append(REST)
        self._givers.update((id(tensor), self.nodes[-1].name) for tensor in outputs)

    def _box(self, name: str) -> str:
        path, _, leaf = name.rpartition(".")
        return self.boxes[path] + leaf


def _boxes(module: nn.Module) -> dict[str, str]:
    """What the names in each layer begin with: in `hidden.0` with Sequential[hidden]/Linear[0]/."""
    boxes = {"": ""}
    for path, layer in module.named_modules():
        if path:
            parent, _, leaf = path.rpartition(".")
            boxes[path] = f"{boxes[parent]}{type(layer).__name__}[{leaf}]/"
    return boxes
