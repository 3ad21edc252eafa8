"""The style of every picture, in one place, and each kind of chart as one function that draws on axes; see also
`nnexp.plotting.images`.

Colours are those of Okabe and Ito (2008), which all readers can tell apart; each series also has a marker and a kind
of line of its own. Type is read at half a page. Missing numbers, None, leave gaps.
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
MOST_SERIES = len(COLOURS)
MOST_MARKED = 40  # points of a line that has markers
RULES = {
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
    """A line for each of at most `MOST_SERIES` names, over `x`, or over 0, 1, 2, ...; a legend where there are several.

    Where a scale is logarithmic, give logarithms and say so in the label: none is then ever lost.
    """
    for number, (name, values) in enumerate(series.items()):
        at = range(len(values)) if x is None else x
        axes.plot(
            at,
            [math.nan if value is None else value for value in values],
            color=COLOURS[number % len(COLOURS)],
            linestyle=DASHES[number % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)] if len(values) <= MOST_MARKED else None,
            label=name,
        )
    axes.grid(True)
    label(axes, xlabel, ylabel)
    legend(axes, len(series))


def trend(axes: Axes, x: Sequence[float], values: Sequence[float], name: str) -> None:
    """A grey line without markers over those of `lines`, for what was fitted to one of them."""
    axes.plot(x, values, color="0.35", linestyle=":", linewidth=2, label=name)
    legend(axes, len(axes.lines))


def dots(axes: Axes, names: Sequence[str], series: Mapping[str, Sequence[float | None]], xlabel: str) -> None:
    """Points in a row for each name, from top to bottom, one for each series; a point and no bar, for scales that have
    no zero.
    """
    for number, (label_of, values) in enumerate(series.items()):
        shift = (number - (len(series) - 1) / 2) * 0.18
        at = [place + shift for place, value in enumerate(values) if value is not None]
        axes.plot(
            [value for value in values if value is not None],
            at,
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=6,
            linestyle="none",
            label=label_of,
        )
    _name_rows(axes, names)
    axes.locator_params(axis="x", nbins=5)  # with decimals, more would touch in a panel of half a picture
    label(axes, xlabel, "")
    legend(axes, len(series))


def bars(axes: Axes, names: Sequence[str], series: Mapping[str, Sequence[float | None]], xlabel: str) -> None:
    """Bars from zero in a row for each name, from top to bottom, one beside the other for each series."""
    thickness = 0.8 / len(series)
    for number, (label_of, values) in enumerate(series.items()):
        at = [place + (number - (len(series) - 1) / 2) * thickness for place in range(len(values))]
        lengths = [value or 0.0 for value in values]
        axes.barh(at, lengths, height=thickness, color=COLOURS[number % len(COLOURS)], label=label_of)
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
    """Histograms in rows, from top to bottom, each over a range of its own, whose ends are written beside it; a line at
    zero.

    Args:
        edges: of the buckets, one more than there are counts.
        notes: what to say of each at its right.
    """
    for row, (own, heights) in enumerate(zip(edges, counts, strict=True)):
        low, span, most = own[0], own[-1] - own[0], max(heights) or 1
        places = [(edge - low) / span for edge in own]
        axes.stairs(
            [row + 0.4 - 0.8 * n / most for n in heights], places, baseline=row + 0.4, fill=True, color=COLOURS[0]
        )
        if low <= 0 <= own[-1]:
            axes.plot([-low / span] * 2, [row - 0.42, row + 0.4], color=COLOURS[1], linewidth=1)
        for place, text, side in ((-0.015, f"{low:.3g}", "right"), (1.015, f"{own[-1]:.3g}", "left")):
            axes.text(place, row + 0.4, text, fontsize=8, ha=side, va="bottom")
        axes.text(1.2, row + 0.4, notes[row], fontsize=8, va="bottom")
    axes.set_yticks([row + 0.2 for row in range(len(names))], [shortened(name) for name in names])
    axes.tick_params(left=False)
    axes.set_xticks([])
    axes.set(xlim=(-0.16, 1.5 if any(notes) else 1.16), ylim=(len(names) - 0.4, -0.6))
    axes.spines[:].set_visible(False)
    label(axes, xlabel, "")


def points(axes: Axes, x: Sequence[float], y: Sequence[float], classes: Sequence[int], names: Sequence[str]) -> None:
    """A point for each row, with the colour and marker of its class; a legend of classes."""
    for number, name in enumerate(names):
        own = [place for place, each in enumerate(classes) if each == number]
        axes.plot(
            [x[place] for place in own],
            [y[place] for place in own],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markeredgecolor="white",
            markeredgewidth=0.4,
            linestyle="none",
            label=name,
        )
    legend(axes, len(names))


def widen(axes: Axes, least: float) -> None:
    """Have the horizontal axis span so much at least, about its middle."""
    low, high = axes.get_xlim()
    margin = max(0.0, least - (high - low)) / 2
    axes.set_xlim(low - margin, high + margin)


def label(axes: Axes, xlabel: str, ylabel: str) -> None:
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


def legend(axes: Axes, num_series: int) -> None:
    """Above the axes, where it covers nothing; none for a single series."""
    if num_series > 1:
        axes.legend(ncols=min(num_series, 3), loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)


def shortened(name: str, length: int = 24) -> str:
    """A name that fits beside an axis."""
    return name if len(name) <= length else f"...{name[3 - length :]}"
