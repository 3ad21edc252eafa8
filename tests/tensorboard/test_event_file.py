"""The event file, read back with TensorBoard's own reader and its HParams backend."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import ListSessionGroupsRequest, Status
from tensorboard.plugins.hparams.backend_context import Context
from tensorboard.plugins.hparams.list_session_groups import Handler
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from nnexp.rundir.metrics_csv import read_rows
from nnexp.tensorboard.event_file import EventFile, write_session_end


def read(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return accumulator


def hparams(folder: Path, tag: str) -> HParamsPluginData:
    content = read(folder).summary_metadata[tag].plugin_data.content
    return HParamsPluginData.FromString(content)


def test_scalars_come_back(tmp_path: Path) -> None:
    events = EventFile(tmp_path)
    events.scalars([(1, {"train/loss": 0.5, "lr": 0.01}), (7, {"train/loss": 0.25})])
    events.flush()
    events.scalars([(300, {"train/loss": 1e300})])
    events.flush()
    points = [(p.step, p.value) for p in read(tmp_path).Scalars("train/loss")]
    assert points == [(1, 0.5), (7, 0.25), (300, math.inf)]


def test_a_second_writer_replaces_the_file(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        events = EventFile(tmp_path)
        events.scalars([(1, {"x": value})])
        events.flush()
    assert len(list(tmp_path.glob("events*"))) == 1
    assert [p.value for p in read(tmp_path).Scalars("x")] == [2.0]


def test_hparams_keep_their_types_and_null_is_left_out(tmp_path: Path) -> None:
    events = EventFile(tmp_path)
    events.session_start({"model": "lstm", "lr": 0.5, "n": 3, "yes": True, "none": None, "pattern": (1, 0, 1)}, 0.0)
    events.flush()
    values = hparams(tmp_path, metadata.SESSION_START_INFO_TAG).session_start_info.hparams
    assert {name: value.WhichOneof("kind") for name, value in values.items()} == {
        "model": "string_value",
        "lr": "number_value",
        "n": "number_value",
        "yes": "bool_value",
        "pattern": "string_value",
    }
    assert values["pattern"].string_value == "[1, 0, 1]"


@pytest.mark.parametrize(
    ("overrides", "status", "expected"),
    [([], "finished", "STATUS_SUCCESS"), (["trainer.lr=1e38"], "diverged", "STATUS_FAILURE")],
)
def test_a_run_shows_its_true_status_real_metrics_and_few_points(train, overrides, status, expected) -> None:
    run = train("dataset=moons", "model=mlp", "model.activation=relu", "trainer.max_steps=1500", *overrides)
    assert run.status == status
    assert len(list(run.path.glob("events*"))) == 1
    end = hparams(run.path, metadata.SESSION_END_INFO_TAG).session_end_info
    assert end.status == Status.Value(expected)
    accumulator = read(run.path)
    tags = accumulator.Tags()["scalars"]
    assert not [tag for tag in tags if "hp_metric" in tag]
    rows = dict(read_rows(run.path / "metrics.csv"))
    for tag in (tag for tag in tags if not tag.startswith("Final/")):
        points = accumulator.Scalars(tag)
        assert 1 <= len(points) <= 500
        assert all(p.value == pytest.approx(rows[p.step][tag], rel=1e-6, nan_ok=True) for p in points)


def test_a_finished_run_has_every_column_as_a_tag(train) -> None:
    run = train("dataset=moons", "model=mlp", "trainer.max_steps=300")
    columns = (run.path / "metrics.csv").read_text().splitlines()[0].split(",")[1:]
    accumulator = read(run.path)
    final = run.read()["metrics"]
    assert set(accumulator.Tags()["scalars"]) == {*columns, *(f"Final/{name}" for name in final)}
    for name, value in final.items():
        assert accumulator.Scalars(f"Final/{name}")[-1].value == pytest.approx(value)
    assert accumulator.Scalars("test/accuracy")[-1].value == pytest.approx(run.read()["metrics"]["test/accuracy"])
    steps = [p.step for p in accumulator.Scalars("train/loss")]
    assert (steps[0], steps[-1]) == (1, 300)
    assert [p.step for p in accumulator.Scalars("val/loss")] == [0, 100, 200, 300]


def test_an_end_is_added_to_a_torn_file_or_to_a_new_one(tmp_path: Path) -> None:
    torn, new = tmp_path / "torn", tmp_path / "new"
    for folder in (torn, new):
        folder.mkdir()
    events = EventFile(torn)
    events.session_start({"model": "mlp"}, 0.0)
    events.scalars([(1, {"train/loss": 0.5}), (2, {"train/loss": 0.25})])
    events.flush()
    events.path.write_bytes(events.path.read_bytes()[:-5])
    for folder in (torn, new):
        write_session_end(folder, {"model": "mlp"}, "failed", 1, "killed")
        assert len(list(folder.glob("events*"))) == 1
        start = hparams(folder, metadata.SESSION_START_INFO_TAG).session_start_info
        assert start.hparams["model"].string_value == "mlp"
        end = hparams(folder, metadata.SESSION_END_INFO_TAG).session_end_info
        assert end.status == Status.Value("STATUS_FAILURE")
    assert [p.step for p in read(torn).Scalars("train/loss")] == [1]


def session_groups(folder: Path) -> tuple[set[str], list]:
    """The columns and rows of the HParams tab, through TensorBoard's own backend."""
    multiplexer = EventMultiplexer(tensor_size_guidance={})
    multiplexer.AddRunsFromDirectory(str(folder))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(folder))
    backend = Context(TBContext(data_provider=provider))
    tags = backend.hparams_metadata(RequestContext(), "")
    experiment = backend.experiment_from_metadata(RequestContext(), "", True, tags, [])
    statuses = [0, 1, 2, 3]  # all, as the tab asks for at first
    request = ListSessionGroupsRequest(start_index=0, slice_size=10, allowed_statuses=statuses)
    for info in experiment.metric_infos:
        request.col_params.add().metric.CopyFrom(info.name)
    handler = Handler(RequestContext(), backend, "", request)
    return {info.name for info in experiment.hparam_infos}, list(handler.run().session_groups)


def test_the_hparams_table_of_two_models_has_a_row_for_each(train, tmp_path: Path) -> None:
    finals = {}
    for model in ("mlp", "lstm"):
        run = train("dataset=moons", f"model={model}", "trainer.max_steps=20")
        finals[model] = run.read()["metrics"]["test/accuracy"]
    names, groups = session_groups(tmp_path / "runs")
    assert {"model", "model.activation", "model.forget_bias", "trainer.lr"} <= names
    shown = {}
    for group in groups:
        values = {value.name.tag: value.value for value in group.metric_values}
        assert -1 not in values.values()
        shown[group.hparams["model"].string_value] = values["test/accuracy"]
        assert [session.status for session in group.sessions] == [Status.Value("STATUS_SUCCESS")]
    assert shown == pytest.approx(finals)
