"""Line, dot, bar, histogram and scatter charts on matplotlib axes, and the style that all pictures share.

Colours are those of Okabe and Ito (2008), which readers with colour blindness can tell apart; each series also has its
own marker and dash pattern. Font sizes are readable at half a page. None stands for a missing value and leaves a gap.
See `nnexp.plotting.images` for heat maps and images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":")
MAX_SERIES = len(COLOURS)
MAX_MARKED = 40  # points; longer lines have no markers
STYLE = {
    "font.size": 9,
    "figure.titlesize": 10,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.grid": False,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "image.interpolation": "nearest",
    "svg.hashsalt": "nnexp",
    "svg.fonttype": "path",
}


def lines(
    axes: Axes, series: Mapping[str, Sequence[float | None]], xlabel: str, ylabel: str, x: Sequence[float] | None = None
) -> None:
    """Draw a line for each series, and a legend where there are several.

        lines(figure.subplots(), {"train": numbers["train"], "val": numbers["val"]}, "step", "loss (log10)")

    Pass logarithms and say so in the label instead of setting a logarithmic scale, which drops values of 0.

    Args:
        axes: axes to draw on.
        series: values by name, for at most `MAX_SERIES` names.
        xlabel: label of the x axis, with its unit.
        ylabel: label of the y axis, with its unit.
        x: x values that all series share, by default 0, 1, 2, ...
    """
    for number, (name, values) in enumerate(series.items()):
        axes.plot(
            range(len(values)) if x is None else x,
            [math.nan if value is None else value for value in values],
            color=COLOURS[number % len(COLOURS)],
            linestyle=DASHES[number % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)] if len(values) <= MAX_MARKED else None,
            label=name,
        )
    axes.grid(True)
    label(axes, xlabel, ylabel)
    legend(axes, len(series))


def trend(axes: Axes, x: Sequence[float], values: Sequence[float], name: str) -> None:
    """Add a dotted grey line to those of `lines`, for a fit to one of them."""
    axes.plot(x, values, color="0.35", linestyle=":", linewidth=2, label=name)
    legend(axes, len(axes.lines))


def dots(axes: Axes, names: Sequence[str], series: Mapping[str, Sequence[float | None]], xlabel: str) -> None:
    """Draw a dot plot: a row for each name, from top to bottom, with one point for each series.

        dots(figure.subplots(), ["conv", "head"], {"before": [0.1, 2.0], "after": [0.1, 1.0]}, "gradient norm")

    Dots suit scales without a meaningful zero, such as logarithms; see `bars` for others.

    Args:
        axes: axes to draw on.
        names: names of the rows.
        series: values by series name, one per row.
        xlabel: label of the x axis, with its unit.
    """
    for number, (series_name, values) in enumerate(series.items()):
        shift = (number - (len(series) - 1) / 2) * 0.18
        axes.plot(
            [value for value in values if value is not None],
            [row + shift for row, value in enumerate(values) if value is not None],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=6,
            linestyle="none",
            label=series_name,
        )
    _name_rows(axes, names)
    axes.locator_params(axis="x", nbins=5)  # more tick labels overlap in a panel of half the width
    label(axes, xlabel, "")
    legend(axes, len(series))


def bars(axes: Axes, names: Sequence[str], series: Mapping[str, Sequence[float | None]], xlabel: str) -> None:
    """Draw horizontal bars from zero: a row for each name, from top to bottom, with one bar for each series.

    Args:
        axes: axes to draw on.
        names: names of the rows.
        series: values by series name, one per row.
        xlabel: label of the x axis, with its unit.
    """
    thickness = 0.8 / len(series)
    for number, (series_name, values) in enumerate(series.items()):
        rows = [row + (number - (len(series) - 1) / 2) * thickness for row in range(len(values))]
        lengths = [value or 0.0 for value in values]
        axes.barh(rows, lengths, height=thickness, color=COLOURS[number % len(COLOURS)], label=series_name)
    _name_rows(axes, names)
    label(axes, xlabel, "")
    legend(axes, len(series))


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [shortened(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(True)


def ridges(
    axes: Axes,
    names: Sequence[str],
    edges: Sequence[Sequence[float]],
    counts: Sequence[Sequence[float]],
    xlabel: str,
    notes: Sequence[str],
) -> None:
    """Draw histograms in rows, from top to bottom, each over its own range, with a line at zero.

    Args:
        axes: axes to draw on.
        names: names of the rows.
        edges: bucket edges of each histogram, one more than its counts; the outer two are written beside it.
        counts: bucket counts of each histogram.
        xlabel: label of the x axis.
        notes: text at the right of each histogram, or "".
    """
    for row, (bucket_edges, heights) in enumerate(zip(edges, counts, strict=True)):
        low, high, highest = bucket_edges[0], bucket_edges[-1], max(heights) or 1
        span = high - low
        scaled_edges = [(edge - low) / span for edge in bucket_edges]
        tops = [row + 0.4 - 0.8 * n / highest for n in heights]
        axes.stairs(tops, scaled_edges, baseline=row + 0.4, fill=True, color=COLOURS[0])
        if low <= 0 <= high:
            axes.plot([-low / span] * 2, [row - 0.42, row + 0.4], color=COLOURS[1], linewidth=1)
        for x, text, side in ((-0.015, f"{low:.3g}", "right"), (1.015, f"{high:.3g}", "left")):
            axes.text(x, row + 0.4, text, fontsize=8, ha=side, va="bottom")
        axes.text(1.2, row + 0.4, notes[row], fontsize=8, va="bottom")
    axes.set_yticks([row + 0.2 for row in range(len(names))], [shortened(name) for name in names])
    axes.tick_params(left=False)
    axes.set_xticks([])
    axes.set(xlim=(-0.16, 1.5 if any(notes) else 1.16), ylim=(len(names) - 0.4, -0.6))
    axes.spines[:].set_visible(False)
    label(axes, xlabel, "")


def points(axes: Axes, x: Sequence[float], y: Sequence[float], classes: Sequence[int], names: Sequence[str]) -> None:
    """Draw a scatter plot with a colour and marker for each class, and a legend.

    Args:
        axes: axes to draw on.
        x: x coordinates.
        y: y coordinates.
        classes: class of each point, as an index into `names`.
        names: names of the classes.
    """
    for number, name in enumerate(names):
        members = [index for index, each in enumerate(classes) if each == number]
        axes.plot(
            [x[index] for index in members],
            [y[index] for index in members],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markeredgecolor="white",
            markeredgewidth=0.4,
            linestyle="none",
            label=name,
        )
    legend(axes, len(names))


def widen(axes: Axes, min_span: float) -> None:
    """Widen the x axis about its middle until it spans `min_span`, so that noise does not fill the chart."""
    low, high = axes.get_xlim()
    margin = max(0.0, min_span - (high - low)) / 2
    axes.set_xlim(low - margin, high + margin)


def label(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Set the labels of both axes."""
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


def legend(axes: Axes, num_series: int) -> None:
    """Draw a legend above the axes, where it covers no data; none for a single series."""
    if num_series > 1:
        axes.legend(ncols=min(num_series, 3), loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)


def shortened(name: str, length: int = 24) -> str:
    """Return a name of at most `length` characters, with its beginning cut off where it is longer."""
    return name if len(name) <= length else f"...{name[3 - length :]}"
