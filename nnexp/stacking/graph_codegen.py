"""Compilation of a traced graph into one Python function.

Each operation becomes one line that calls a local name. This avoids the attribute lookups and the extra function call
that torch.fx makes for each operation, which for small models cost as much as the operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Graph, GraphModule, Node

Step = Callable[..., Any]  # returns a tensor, or a tuple of tensors


def function_of(module: GraphModule) -> Step:
    """Return a graph as a function of its inputs.

        step = function_of(traced)
        losses, *gradients = step(*tensors)

    Intermediate tensors are freed after their last use.
    """
    writer = _Writer(module)
    for node in module.graph.nodes:
        writer.add(node)
    return writer.function()


class _Writer:
    """Collects the source lines of a function and the objects that its names refer to."""

    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.names: dict[Node, str] = {}
        self.scope: dict[str, Any] = {}
        self.inputs: list[str] = []
        self.lines: list[str] = []
        self.last_reads = _last_reads(module.graph)

    def add(self, node: Node) -> None:
        """Add the line of one node."""
        name = self.names[node] = f"v{len(self.names)}"
        if node.op == "placeholder":
            self.inputs.append(name)
        elif node.op == "get_attr":
            self.names[node] = self.bind(getattr(self.module, str(node.target)))
        elif node.op == "output":
            self.lines.append(f"return {self.source_of(node.args[0])}")
        else:
            arguments = [self.source_of(value) for value in node.args]
            arguments += [f"{key}={self.source_of(value)}" for key, value in node.kwargs.items()]
            called = self.bind(getattr(node.target, "_op", node.target))
            freed = [self.names[read] for read in self.last_reads.get(node, ()) if read.op != "get_attr"]
            self.lines.append(
                "; ".join([f"{name} = {called}({', '.join(arguments)})", *(f"{v} = None" for v in freed)])
            )

    def bind(self, value: Any) -> str:
        """Return a new name that refers to a value."""
        name = f"k{len(self.scope)}"
        self.scope[name] = value
        return name

    def source_of(self, value: Any) -> str:
        """Return the expression for an argument."""
        if isinstance(value, Node):
            return self.names[value]
        if isinstance(value, list | tuple):
            return f"({''.join(self.source_of(item) + ', ' for item in value)})"
        return repr(value) if value is None or type(value) in (int, bool) else self.bind(value)

    def function(self) -> Step:
        """Compile the collected lines."""
        exec(f"def step({', '.join(self.inputs)}):\n    " + "\n    ".join(self.lines), self.scope)  # noqa: S102  # generated names only
        step: Step = self.scope["step"]
        return step


def _last_reads(graph: Graph) -> dict[Node, list[Node]]:
    """Return for each node the inputs that it is the last to read, which can be freed after it."""
    seen: set[Node] = set()
    result: dict[Node, list[Node]] = {}
    for node in reversed(graph.nodes):
        result[node] = [source for source in node.all_input_nodes if source not in seen]
        seen.update(result[node])
    return result
