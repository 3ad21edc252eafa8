"""The graph: what reads what, of any model, and that TensorBoard shows it."""

from __future__ import annotations

import pytest
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext

from nnexp.rundir.figures import Figures
from nnexp.rundir.probe_result import ProbeResult
from nnexp.tensorboard.event_file import EventFile

HIDDEN = "Sequential[hidden]/"
STRANGE = '''"""A model of a kind that nobody has seen. Our own."""
import torch
from torch import nn
from nnexp import DataSpec, model


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.from_numpy(2 * x.detach().numpy())

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class Inner(nn.Module):
    def forward(self, parts, *, extra):
        return {"sum": Twice.apply(parts[0] + extra)}


@model
class Strange(nn.Module):
    """Three layers, one called twice, a function of its own, a weight that two layers share, a buffer."""

    def __init__(self, data: DataSpec):
        super().__init__()
        self.inner, self.tied = Inner(), nn.Linear(4, 4)
        self.also = nn.Linear(4, 4)
        self.also.weight = self.tied.weight
        self.first, self.head = nn.Linear(data.features, 4), nn.Linear(4, data.outputs)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x, lengths=None):
        state = self.tied(self.tied(self.first(x))) + self.shift
        filled = torch.zeros(len(x), 4)
        filled[:, :] = self.also(state)
        return self.head(self.inner([state], extra=filled)["sum"])
'''


@pytest.fixture
def nodes_of(registry, view_of):
    def look(*overrides: str, plugins=registry) -> dict[str, NodeDef]:
        seen = registry.get("probe", "graph").load()()(view_of(*overrides, plugins=plugins))
        nodes = GraphDef.FromString(seen.graph).node
        assert len({node.name for node in nodes}) == len(nodes)
        assert {name for node in nodes for name in node.input} <= {node.name for node in nodes}
        return {node.name: node for node in nodes}

    return look


def _ancestors(nodes: dict[str, NodeDef], name: str) -> set[str]:
    found: set[str] = set()
    left = [name]
    while left:
        new = set(nodes[left.pop()].input) - found
        found |= new
        left += new
    return found


def _shapes(node: NodeDef) -> list[list[int]]:
    return [[size.size for size in shape.dim] for shape in node.attr["_output_shapes"].list.shape]


def test_operations_read_weights_and_each_other_as_in_the_code(nodes_of) -> None:
    nodes = nodes_of("dataset=moons", "model=mlp")
    linear = nodes[f"{HIDDEN}Linear[0]/linear"]
    assert linear.op == "linear"
    assert linear.input[1:] == [f"{HIDDEN}Linear[0]/weight", f"{HIDDEN}Linear[0]/bias"]
    assert list(nodes[f"{HIDDEN}Tanh[1]/tanh"].input) == [linear.name]
    assert nodes["Linear[head]/linear"].input[0] == f"{HIDDEN}Tanh[1]/tanh"
    assert list(nodes["output"].input) == ["Linear[head]/linear"]
    assert _shapes(linear) == [[2, 16]]
    assert _shapes(nodes[f"{HIDDEN}Linear[0]/weight"]) == [[16, 2]]
    assert nodes[f"{HIDDEN}Linear[0]/weight"].op == "Parameter"


@pytest.mark.parametrize(
    ("overrides", "operation"),
    [
        (("dataset=pattern", "model=rnn"), "RNN[core]/rnn_tanh"),
        (("dataset=pattern", "model=lstm", "model.bidirectional=true", "model.num_layers=2"), "LSTM[core]/lstm"),
        (("dataset=chartext", "model=gru"), "GRU[core]/gru"),
        (("dataset=edges", "model=vit"), "ModuleList[blocks]/Block[1]/Linear[qkv]/linear"),
        (("dataset=edges", "model=cnn"), "ModuleList[layers]/Filters2d[1]/conv2d"),
        (("dataset=pattern", "model=cnn", "precision=bf16"), "ModuleList[layers]/Filters1d[1]/conv1d"),
    ],
)
def test_the_output_comes_of_the_input_and_of_every_weight(nodes_of, overrides, operation: str) -> None:
    nodes = nodes_of(*overrides)
    weights = {name for name, node in nodes.items() if node.op == "Parameter"}
    assert {"input/x", operation} | weights <= _ancestors(nodes, "output")


def test_all_weights_are_there(nodes_of, make_lane) -> None:
    nodes = nodes_of("dataset=edges", "model=vit")
    num_weights = len(make_lane("dataset=edges", "model=vit").weights.names)
    assert sum(node.op == "Parameter" for node in nodes.values()) == num_weights


def test_a_model_never_seen_is_followed_through_what_it_does_itself(nodes_of, registry_of) -> None:
    plugins = registry_of("strange", model=STRANGE)
    nodes = nodes_of("dataset=moons", "model=strange", plugins=plugins)
    assert nodes["Linear[tied]/linear_1"].input[0] == "Linear[tied]/linear"
    assert "Linear[tied]/weight" in nodes["Linear[also]/linear"].input  # shared
    assert nodes["shift"].op == "Buffer"
    assert set(nodes["setitem"].input) == {"zeros", "Linear[also]/linear"}
    assert set(nodes["Inner[inner]/add"].input) == {"add", "setitem"}
    own = nodes["Inner[inner]/TwiceBackward"]  # what torch is not told of reads what its layer was given
    assert set(own.input) == {"add", "setitem"}
    assert nodes["Linear[head]/linear"].input[0] == own.name


def test_a_graph_is_cut_where_it_is_too_large_to_be_seen(registry, view_of, monkeypatch) -> None:
    probe = registry.get("probe", "graph").load()
    view = view_of("dataset=edges", "model=vit")
    monkeypatch.setitem(probe.__call__.__globals__, "MAX_NODES", 20)
    nodes = {node.name: node for node in GraphDef.FromString(probe()(view).graph).node}
    assert len(nodes) == 22
    assert list(nodes["output"].input) == ["more"]


def test_at_a_later_step_it_is_the_same(registry, view_of) -> None:
    graphs = {
        registry.get("probe", "graph").load()()(view_of("dataset=moons", "model=mlp", step=step)).graph
        for step in (0, 1)
    }
    assert len(graphs) == 1


@pytest.mark.filterwarnings("ignore:html5lib's sanitizer is deprecated")
def test_tensorboard_shows_it(registry, view_of, make_job, tmp_path) -> None:
    from tensorboard.plugins.graph.graphs_plugin import GraphsPlugin  # which warns

    seen = registry.get("probe", "graph").load()()(view_of("dataset=moons", "model=mlp"))
    (choice,) = make_job("dataset=moons", "model=mlp", "probe=[graph]").probes
    figures, events = Figures(tmp_path), EventFile(tmp_path)
    events.figures(figures.save(ProbeResult(choice, 0, seen), "nobody"), figures)
    events.flush()
    multiplexer = EventMultiplexer().AddRun(str(tmp_path), "run")
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(tmp_path))
    plugin, context = GraphsPlugin(TBContext(data_provider=provider)), RequestContext()
    assert plugin.info_impl(context, "")["run"]["run_graph"]
    told, kind = plugin.graph_impl(context, "run", None, False, "")
    assert 'name: "Linear[head]/linear"' in told
    assert kind == "text/x-protobuf"
