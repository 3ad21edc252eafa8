"""Rendering of pictures to PNG and SVG; matplotlib is imported only when something is drawn."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from nnexp.plotting.charts import STYLE
from nnexp.registry import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150  # of PNG
SUBTITLE_HEIGHT = 0.2  # inches


def render(picture: Picture, numbers: dict[str, Any], subtitle: str) -> dict[str, bytes]:
    """Render a picture in each format.

    The same numbers give the same bytes, under any user settings. No global state of matplotlib is changed.

    Args:
        picture: what to draw.
        numbers: its numbers as plain values, as they are written to JSON.
        subtitle: second line of the title: model, dataset and step.

    Returns:
        File contents by format, "png" and "svg".
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    png, svg = io.BytesIO(), io.BytesIO()
    with figure_of(picture, numbers, subtitle) as figure:  # not `savefig`, which draws everything twice
        FigureCanvasAgg(figure).print_png(png, metadata={"Software": None})
        _fix_layout(figure)
        FigureCanvasSVG(figure).print_svg(svg, metadata={"Date": None})
    return {"png": png.getvalue(), "svg": svg.getvalue()}


def _fix_layout(figure: Figure) -> None:
    """Keep the layout of the first format for the second, rounded: its last digits differ between calls."""
    if figure.get_layout_engine() is not None:
        figure.set_layout_engine("none")
        for axes in figure.axes:
            left, bottom, width, height = (round(number, 6) for number in axes.get_position().bounds)
            axes.set_position((left, bottom, width, height))


@contextmanager
def figure_of(picture: Picture, numbers: dict[str, Any], subtitle: str) -> Iterator[Figure]:
    """Yield the picture as a matplotlib figure, to be saved within the block, where the style is active.

    Args:
        picture: what to draw.
        numbers: its numbers as plain values.
        subtitle: second line of the title.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_rc_params()):
        width, height = picture.size
        figure = Figure(figsize=(width, height + SUBTITLE_HEIGHT), dpi=DPI, layout="constrained")
        picture.draw(figure, numbers)
        figure.suptitle(f"{picture.title}\n{subtitle}")
        yield figure


@cache
def _rc_params() -> Any:
    """Return matplotlib's defaults with the style; the user's settings are ignored."""
    from matplotlib import rcParamsDefault

    excluded = ("backend", "date.epoch", "timezone")
    return {name: value for name, value in rcParamsDefault.items() if not name.startswith(excluded)} | STYLE
