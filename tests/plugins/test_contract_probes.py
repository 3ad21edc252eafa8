"""What every probe that is found must keep, on every dataset with every model, so that a new one is tested as it is."""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from contract.combinations import cover, slow_but
from contract.compose import jobs_of
from contract.readme import REGISTRY
from contract.registry import EVERY_KIND
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from nnexp.config.job import Job
from nnexp.data.dataset_cache import DatasetCache
from nnexp.plotting.rendering import figure_of, render
from nnexp.probing.runner import ProbeLanes, ProbeRunner
from nnexp.rundir.checkpoint import digest
from nnexp.rundir.figures import Figures
from nnexp.training.lane import Lane

pytestmark = pytest.mark.slow


PROBES = REGISTRY.names("probe")
PAIRS = [(dataset, model) for dataset in EVERY_KIND for model in REGISTRY.names("model")]
OTHERS = [
    ("pattern", "lstm", "model.num_layers=2", "model.bidirectional=true"),
    ("pattern", "gru", "dataset.min_length=8"),
    ("edges", "cnn", "precision=bf16"),
    ("chartext", "vit", "precision=64"),
    ("moons", "mlp", "model.num_layers=0"),
]
DRAWN = [("edges", "cnn"), ("pattern", "lstm"), ("moons", "mlp"), ("chartext", "rnn"), ("edges", "vit")]
FEW = [(pair,) for pair in cover(PAIRS, 1)]
DATASETS = DatasetCache()


@cache
def job_of(*overrides: str) -> Job:
    return jobs_of([*overrides, f"probe=[{','.join(PROBES)}]"], REGISTRY)[0]


def build(job: Job) -> Lane:
    return Lane(job, REGISTRY, torch.device("cpu"), lambda: False, DATASETS)


def looked(pair: tuple[str, ...], step: int) -> tuple[Lane, str, list]:
    """A lane, its digest before it was looked into, and what all probes saw."""
    dataset, model, *more = pair
    lane = build(job_of(f"dataset={dataset}", f"model={model}", *more))
    lane.advance(step)
    before = digest([lane.state(), lane.splits])
    sights = [*ProbeRunner(lane.job, REGISTRY, ProbeLanes(build), lambda: True).observe(lane, is_end=True)]
    return lane, before, sights


@pytest.fixture(autouse=True)
def undrawn_pictures(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Pictures take longest: they are drawn for a few pairs alone."""
    if "drawn" not in request.keywords:
        monkeypatch.setattr("nnexp.probing.runner.render", lambda *_: {})


@pytest.mark.parametrize("pair", slow_but(FEW, [(pair,) for pair in [*PAIRS, *OTHERS]]), ids="-".join)
def test_every_probe_says_what_it_sees_or_nothing_and_leaves_the_lane_as_it_was(pair, tmp_path: Path, undrawn) -> None:
    with undrawn():
        lane, before, sights = looked(pair, 2)
    assert digest([lane.state(), lane.splits]) == before
    assert [sight.message() for sight in sights if sight.error] == []
    assert [sight.choice.name for sight in sights] == PROBES
    for sight in sights:
        record = Figures(tmp_path).save(sight, "test")
        assert all(value is None or isinstance(value, float) for value in record.get("scalars", {}).values())
        json.dumps(sight.numbers, allow_nan=False)
    assert [record["probe"] for record in Figures(tmp_path).records()] == PROBES


@pytest.mark.slow
@pytest.mark.parametrize("pair", [("moons", "mlp"), ("edges", "cnn"), ("pattern", "lstm")], ids="-".join)
def test_what_is_seen_is_the_same_when_it_is_looked_at_again(pair) -> None:
    first, again = (looked(pair, 1)[2] for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert one.numbers == other.numbers
        assert (one.observation is None) == (other.observation is None)
        if one.observation is not None:
            assert dict(one.observation.scalars) == pytest.approx(
                dict(other.observation.scalars), rel=0, abs=0, nan_ok=True
            )
            assert dict(one.observation.texts) == dict(other.observation.texts)


@pytest.mark.drawn
@pytest.mark.parametrize("pair", slow_but([(("moons", "mlp"),)], [(pair,) for pair in DRAWN]), ids="-".join)
def test_every_picture_is_labelled_and_can_be_read_and_is_the_same_from_the_numbers_as_json(
    pair, tmp_path: Path
) -> None:
    for sight in looked(pair, 1)[2]:
        Figures(tmp_path).save(sight, "test")
        for name, picture in sight.observation.pictures.items() if sight.observation else ():
            stem = Figures(tmp_path).folder / f"{sight.choice.name}-{name.replace('/', '_')}-0000001"
            content = json.loads(stem.with_suffix(".json").read_text())
            assert content["title"] == picture.title
            assert (
                render(picture, content["numbers"], f"{pair[1]} on {pair[0]}, step 1")["png"]
                == stem.with_suffix(".png").read_bytes()
            )
            assert b"<svg" in stem.with_suffix(".svg").read_bytes()
            with figure_of(picture, content["numbers"], "model on data, step 1,000") as figure:
                check(figure)


def check(figure: Figure) -> None:
    """Raises AssertionError where axes have no label, or where text lies upon text or outside of the picture."""
    FigureCanvasAgg(figure).draw()
    for axes in figure.axes:
        assert not axes.axison or axes.get_xlabel() or axes.get_ylabel() or axes.get_title()
    boxes = {text: text.get_window_extent() for text in texts_of(figure)}
    for text, box in boxes.items():
        assert figure.bbox.padded(2).contains(box.x0, box.y0), text
        assert figure.bbox.padded(2).contains(box.x1, box.y1), text
    for one, other in itertools.combinations(boxes, 2):
        assert Bbox.intersection(boxes[one].padded(-1), boxes[other].padded(-1)) is None, (one, other)


def texts_of(figure: Any) -> list[Text]:
    """All that is written in a picture; of an axis the numbers within its limits."""
    found = [figure._suptitle]
    for axes in figure.axes:
        shown = [axes.xaxis, axes.yaxis] if axes.axison else []
        found += [axes.title, *axes.texts, *(axis.label for axis in shown)]
        found += [tick.label1 for axis in shown for tick in axis._update_ticks()]
        found += [tick.label2 for axis in shown for tick in axis._update_ticks()]
        found += axes.get_legend().get_texts() if axes.get_legend() else []
    for legend in figure.legends:
        found += legend.get_texts()
    return [text for text in found if text.get_visible() and text.get_text().strip()]
