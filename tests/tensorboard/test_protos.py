"""What TensorBoard's own reader makes of texts, pictures, histograms, graphs and the layout of charts."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as custom_scalar
from tensorboard.util import tensor_util

from nnexp.tensorboard import protos
from nnexp.tensorboard.framing import frame_records


def read(folder: Path, *events: Event) -> EventAccumulator:
    contents = [Event(file_version="brain.Event:2"), *events]
    (folder / "events.out.tfevents.1.host").write_bytes(
        frame_records([event.SerializeToString() for event in contents])
    )
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return accumulator


def of(value: Summary.Value, step: int = 3) -> Event:
    return Event(step=step, wall_time=1.0, summary=Summary(value=[value]))


def test_a_text_comes_back(tmp_path: Path) -> None:
    (event,) = read(tmp_path, of(protos.text("said", "**so** ä"))).Tensors("said")
    assert event.step == 3
    assert tensor_util.make_ndarray(event.tensor_proto)[0].decode() == "**so** ä"


def test_a_picture_comes_back_with_its_size(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.new("RGB", (7, 5)).save(content, format="png")
    value = protos.image("seen", content.getvalue())
    assert value is not None
    (image,) = read(tmp_path, of(value)).Images("seen")
    assert (image.width, image.height, image.encoded_image_string) == (7, 5, content.getvalue())


@pytest.mark.parametrize("content", [None, b"", b"GIF89a" + bytes(30), protos.PNG_SIGNATURE])
def test_what_is_no_png_is_no_picture(content: bytes | None) -> None:
    assert protos.image("seen", content) is None


def test_a_histogram_comes_back_as_its_rows(tmp_path: Path) -> None:
    rows = [(-1.0, 0.0, 3.0), (0.0, 2.5, 4.0)]
    (event,) = read(tmp_path, of(protos.histogram("spread", rows))).Tensors("spread")
    assert [tuple(row) for row in tensor_util.make_ndarray(event.tensor_proto).tolist()] == rows


def test_a_graph_comes_back_with_its_nodes(tmp_path: Path) -> None:
    nodes = [protos.GraphNode("x", "input"), protos.GraphNode("body/layer", "Linear", ["x"], [[4, 2]])]
    graph = read(tmp_path, Event(wall_time=1.0, graph_def=protos.graph(nodes))).Graph()
    assert [(node.name, node.op, list(node.input)) for node in graph.node] == [
        ("x", "input", []),
        ("body/layer", "Linear", ["x"]),
    ]


def test_the_layout_names_charts_whose_tags_are_whole_names(tmp_path: Path) -> None:
    accumulator = read(tmp_path, of(protos.layout({"loss": ("train/loss", "val/loss")})))
    (event,) = accumulator.Tensors(custom_scalar.CONFIG_SUMMARY_TAG)
    layout = layout_pb2.Layout.FromString(tensor_util.make_ndarray(event.tensor_proto).item())
    (category,) = layout.category
    (chart,) = category.chart
    assert (chart.title, list(chart.multiline.tag)) == ("loss", ["^train/loss$", "^val/loss$"])
