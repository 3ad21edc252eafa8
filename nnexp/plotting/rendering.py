"""Pictures made: the one place where the plotting library is imported, and only when something is drawn."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from nnexp.plotting.charts import RULES
from nnexp.registry import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150  # of PNG
TITLE = 0.2  # inches that the second line of a title takes
FORMATS: dict[str, dict[str, Any]] = {
    "png": {"dpi": DPI, "metadata": {"Software": None}},
    "svg": {"metadata": {"Date": None}},
}


def render(picture: Picture, numbers: dict[str, Any], whose: str) -> dict[str, bytes]:
    """A picture in each format, the same bytes for the same numbers; nothing global is changed.

    Args:
        numbers: the picture's own, as they are written.
        whose: the model, data and step, below the title.
    """
    result = {}
    with figure_of(picture, numbers, whose) as figure:
        for name, options in FORMATS.items():
            content = io.BytesIO()
            figure.savefig(content, format=name, **options)
            result[name] = content.getvalue()
            _fix_layout(figure)
    return result


def _fix_layout(figure: Figure) -> None:
    """As the first format has made it, for all; rounded, since its last digits differ from time to time."""
    if figure.get_layout_engine() is not None:
        figure.set_layout_engine("none")
        for axes in figure.axes:
            left, bottom, width, height = (round(number, 6) for number in axes.get_position().bounds)
            axes.set_position((left, bottom, width, height))


@contextmanager
def figure_of(picture: Picture, numbers: dict[str, Any], whose: str) -> Iterator[Figure]:
    """The picture as a figure of the library, to be written within the block, where our style holds."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_rules()):
        width, height = picture.size
        figure = Figure(figsize=(width, height + TITLE), layout="constrained")
        picture.draw(figure, numbers)
        figure.suptitle(f"{picture.title}\n{whose}")
        yield figure


@cache
def _rules() -> Any:
    """The library's own defaults, whatever a user's settings are, and our style."""
    from matplotlib import rcParamsDefault

    left_alone = ("backend", "date.epoch", "timezone")
    return {name: value for name, value in rcParamsDefault.items() if not name.startswith(left_alone)} | RULES
