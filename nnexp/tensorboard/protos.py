"""Protocol buffers of TensorBoard's event files: text, images, histograms, graphs and the layout of charts."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DataType
from tensorboard.compat.proto.versions_pb2 import VersionDef
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as custom_scalar

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHARTS = {
    "loss": ("train/loss", "val/loss", "test/loss"),
    "accuracy": ("val/accuracy", "test/accuracy"),
    "gradient norm": ("grad_norm",),
    "learning rate": ("lr",),
    "gradient norm by layer": ("grad_norm/.+",),
}


@dataclass(frozen=True)
class GraphNode:
    """Node of a graph for the Graphs tab.

    Attributes:
        name: path such as "body/layer/linear"; TensorBoard groups nodes by its parts.
        op: name of the operation.
        inputs: names of the nodes that it reads.
        shapes: shapes of its output tensors.
    """

    name: str
    op: str
    inputs: Sequence[str] = ()
    shapes: Sequence[Sequence[int]] = ()


def graph(nodes: Iterable[GraphNode]) -> bytes:
    """Return a serialised GraphDef for the Graphs tab.

    content = graph([GraphNode("x", "input"), GraphNode("body/layer", "Linear", ["x"], [[4, 2]])])
    """
    content: bytes = GraphDef(node=[*map(_node, nodes)], versions=VersionDef(producer=22)).SerializeToString()
    return content


def _node(node: GraphNode) -> NodeDef:
    shapes = AttrValue(list=AttrValue.ListValue(shape=[_shape(*sizes) for sizes in node.shapes]))
    return NodeDef(name=node.name, op=node.op, input=node.inputs, attr={"_output_shapes": shapes})


def text(tag: str, markdown: str) -> Summary.Value:
    """Return a text in Markdown for the Text tab."""
    tensor = TensorProto(dtype=DataType.DT_STRING, tensor_shape=_shape(1), string_val=[markdown.encode()])
    return _value(tag, "text", tensor)


def image(tag: str, png: bytes | None) -> Summary.Value | None:
    """Return an image for the Images tab, or None if the bytes are not a PNG."""
    if png is None or png[:8] != PNG_SIGNATURE or len(png) < 24:
        return None
    width, height = struct.unpack(">II", png[16:24])
    return Summary.Value(
        tag=tag, image=Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=png)
    )


def histogram(tag: str, rows: Sequence[Sequence[float]]) -> Summary.Value:
    """Return a histogram for the Histograms and Distributions tabs, from rows (left edge, right edge, count)."""
    numbers = [number for row in rows for number in row]
    tensor = TensorProto(dtype=DataType.DT_DOUBLE, tensor_shape=_shape(len(rows), 3), double_val=numbers)
    return _value(tag, "histograms", tensor)


def layout(charts: Mapping[str, Sequence[str]]) -> Summary.Value:
    """Return the layout of the Custom Scalars tab.

    Args:
        charts: tags of each chart by its title, as regular expressions for whole tags.
    """
    items = [layout_pb2.Chart(title=title, multiline=_multiline(tags)) for title, tags in charts.items()]
    content = layout_pb2.Layout(category=[layout_pb2.Category(title="runs compared", chart=items)])
    tensor = TensorProto(dtype=DataType.DT_STRING, tensor_shape=_shape(), string_val=[content.SerializeToString()])
    return _value(custom_scalar.CONFIG_SUMMARY_TAG, custom_scalar.PLUGIN_NAME, tensor)


def _multiline(tags: Sequence[str]) -> layout_pb2.MultilineChartContent:
    return layout_pb2.MultilineChartContent(tag=[f"^{tag}$" for tag in tags])


def _shape(*sizes: int) -> TensorShapeProto:
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])


def _value(tag: str, plugin: str, tensor: TensorProto) -> Summary.Value:
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin))
    return Summary.Value(tag=tag, metadata=metadata, tensor=tensor)
