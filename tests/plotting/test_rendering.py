"""Pictures are the same bytes for the same numbers, whatever the user's settings, and leave these as they were."""

from __future__ import annotations

import sys

import matplotlib as mpl
import pytest

from nnexp.plotting.charts import dots, lines
from nnexp.plotting.images import heatmap
from nnexp.plotting.rendering import render
from nnexp.registry.observation import Picture

pytestmark = pytest.mark.slow


KINDS = {
    "lines": lambda figure, n: lines(figure.subplots(), {"a": n["y"], "b": n["y"][::-1]}, "x (steps)", "y"),
    "dots": lambda figure, n: dots(figure.subplots(), ["one", "two", "three"], {"a": n["y"]}, "y (log10)"),
    "heatmap": lambda figure, n: heatmap(figure.subplots(), [n["y"], n["y"]], "x", "y", "value"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("values", [[1.0, 2.0, 4.0], [0.0, 0.0, 0.0], [None, 1.0, None], [None, None, None]], ids=str)
def test_a_picture_is_the_same_under_every_setting_and_changes_none(kind: str, values: list) -> None:
    picture = Picture("A title", {}, KINDS[kind])
    first = render(picture, {"y": values}, "mlp on moons, step 1,200")
    with mpl.rc_context({"font.size": 40, "axes.grid": True, "savefig.dpi": 30, "svg.fonttype": "none"}):
        before = dict(mpl.rcParams)
        assert render(picture, {"y": values}, "mlp on moons, step 1,200") == first
        assert dict(mpl.rcParams) == before
    assert first["png"][:8] == b"\x89PNG\r\n\x1a\n"
    assert b"</svg>" in first["svg"]


def test_whose_it_is_stands_in_the_title() -> None:
    one, other = (
        render(Picture("A title", {}, KINDS["lines"]), {"y": [1.0]}, whose)["png"] for whose in ("step 1", "step 2")
    )
    assert one != other


def test_the_state_of_pyplot_is_not_touched() -> None:
    pyplot = sys.modules.get("matplotlib.pyplot")
    render(Picture("A title", {}, KINDS["lines"]), {"y": [1.0]}, "step 1")
    assert sys.modules.get("matplotlib.pyplot") is pyplot
    assert pyplot is None or pyplot.get_fignums() == []
