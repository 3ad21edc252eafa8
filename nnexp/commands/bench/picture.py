"""The figures as a picture: how many times faster a sweep is, and what a lane and an update cost as sizes double."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from nnexp.commands.bench.report import Measurement
from nnexp.plotting import COLOURS, MARKERS

STYLES = tuple(zip(COLOURS, MARKERS, strict=True))
AXES = {
    "lanes": "lanes in the sweep",
    "steps": "updates of each lane",
    "hidden": "hidden size (units)",
    "length": "sequence length (positions)",
}
FIRST_DIGITS = (1, 2, 5)  # of numbers on an axis
PANEL = (3.5, 3.0)  # inches; two side by side are as wide as a page


def draw(path: Path, measured: Sequence[Measurement]) -> None:
    """Write the picture in the format of its name; without anything to draw there is no file."""
    figure = make_figure(measured)
    if figure.axes:
        figure.savefig(path, dpi=200)


def make_figure(measured: Sequence[Measurement]) -> Figure:
    """A panel for the ratios of part b and for each axis of part c; what was not measured is left out."""
    ratios = [m for m in measured if m.part == "b" and m.unit == "x"]
    costs = {axis: [m for m in measured if m.what == f"{axis}: a lane and step"] for axis in AXES}
    panels = [*([("ratios", ratios)] if ratios else []), *((axis, found) for axis, found in costs.items() if found)]
    columns = 1 if len(panels) < 2 else 2
    rows = max(1, -(-len(panels) // columns))
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * rows), layout="constrained")
    for number, (name, found) in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, number)
        _ratios(axes, found) if name == "ratios" else _costs(axes, AXES[name], found)
    return figure


def _ratios(axes: Axes, ratios: Sequence[Measurement]) -> None:
    """A row for each case, a point for each way with its range, a tick where the bar is."""
    cases = list(dict.fromkeys(m.case for m in ratios))
    ways = list(dict.fromkeys(m.what for m in ratios))
    for index, (way, (colour, marker)) in enumerate(zip(ways, STYLES, strict=False)):
        shift = (index - (len(ways) - 1) / 2) * 0.17
        for m in (m for m in ratios if m.what == way):
            y = cases.index(m.case) + shift
            axes.plot([min(m.values), max(m.values)], [y, y], color=colour, linewidth=1.2)
            axes.plot(m.median, y, color=colour, marker=marker, markersize=4.5, linestyle="none")
            if m.bar is not None:
                axes.plot(m.bar, y, color=colour, marker="|", markersize=9, markeredgewidth=1.5, linestyle="none")
        axes.plot([], [], color=colour, marker=marker, markersize=4.5, linewidth=1.2, label=way.removesuffix(" / ours"))
    axes.plot([], [], color="0.3", marker="|", markersize=9, markeredgewidth=1.5, linestyle="none", label="its bar")
    axes.axvline(1, color="0.6", linewidth=0.8)
    axes.set_yticks(range(len(cases)), cases)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=FIRST_DIGITS))
    axes.set_xlabel(f"times faster to train {ratios[0].at} jobs")
    _finish(axes)


def _costs(axes: Axes, label: str, costs: Sequence[Measurement]) -> None:
    """A line for each case, with the range of its rounds."""
    for case, (colour, marker) in zip(dict.fromkeys(m.case for m in costs), STYLES, strict=False):
        own = [m for m in costs if m.case == case]
        at = [float(m.at or 0) for m in own]
        axes.fill_between(
            at, [min(m.values) for m in own], [max(m.values) for m in own], color=colour, alpha=0.25, linewidth=0
        )
        axes.plot(at, [m.median for m in own], color=colour, marker=marker, markersize=4.5, linewidth=1.2, label=case)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=FIRST_DIGITS))
    _widen(axes)
    axes.set_xticks(sorted({float(m.at or 0) for m in costs}))
    axes.set_xlabel(label)
    axes.set_ylabel("time of a lane and update (µs)")
    _finish(axes)


def _widen(axes: Axes) -> None:
    """At least a factor of ten from bottom to top, so that small differences look small in every panel."""
    low, high = axes.get_ylim()
    margin = max(1.0, (10 * low / high) ** 0.5)
    axes.set_ylim(low / margin, high * margin)


def _finish(axes: Axes) -> None:
    """Plain numbers, a light grid, small type that is still read at half a page."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(8)
        if axis.get_scale() == "log":
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7, frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
