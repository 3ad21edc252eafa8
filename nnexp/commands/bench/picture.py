"""Plot the measurements: speed-ups of a sweep, and time per lane and update as sizes double."""

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
TICK_DIGITS = (1, 2, 5)  # ticks at these multiples of powers of ten
PANEL = (3.5, 3.0)  # inches; two side by side are as wide as a page


def draw(path: Path, measured: Sequence[Measurement]) -> None:
    """Write the picture in the format of the file's suffix; writes no file where there is nothing to draw."""
    figure = make_figure(measured)
    if figure.axes:
        figure.savefig(path, dpi=200)


def make_figure(measured: Sequence[Measurement]) -> Figure:
    """Return a figure with a panel for the ratios of part b and for each axis of part c that was measured."""
    ratios = [m for m in measured if m.part == "b" and m.unit == "x"]
    costs = {axis: [m for m in measured if m.what == f"{axis}: a lane and step"] for axis in AXES}
    panels = [(name, rows) for name, rows in {"ratios": ratios, **costs}.items() if rows]
    columns = 1 if len(panels) < 2 else 2
    num_rows = max(1, -(-len(panels) // columns))
    figure = Figure(figsize=(PANEL[0] * columns, PANEL[1] * num_rows), layout="constrained")
    for number, (name, measurements) in enumerate(panels, 1):
        axes = figure.add_subplot(num_rows, columns, number)
        _plot_ratios(axes, measurements) if name == "ratios" else _plot_costs(axes, AXES[name], measurements)
    return figure


def _plot_ratios(axes: Axes, ratios: Sequence[Measurement]) -> None:
    """Plot a row for each case: for each method a point with its range, and a tick at its bar."""
    cases = list(dict.fromkeys(m.case for m in ratios))
    methods = list(dict.fromkeys(m.what for m in ratios))
    for index, (method, (colour, marker)) in enumerate(zip(methods, STYLES, strict=False)):
        shift = (index - (len(methods) - 1) / 2) * 0.17
        for m in (m for m in ratios if m.what == method):
            y = cases.index(m.case) + shift
            axes.plot([min(m.values), max(m.values)], [y, y], color=colour, linewidth=1.2)
            axes.plot(m.median, y, color=colour, marker=marker, markersize=4.5, linestyle="none")
            if m.bar is not None:
                axes.plot(m.bar, y, color=colour, marker="|", markersize=9, markeredgewidth=1.5, linestyle="none")
        label = method.removesuffix(" / ours")
        axes.plot([], [], color=colour, marker=marker, markersize=4.5, linewidth=1.2, label=label)
    axes.plot([], [], color="0.3", marker="|", markersize=9, markeredgewidth=1.5, linestyle="none", label="its bar")
    axes.axvline(1, color="0.6", linewidth=0.8)
    axes.set_yticks(range(len(cases)), cases)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=TICK_DIGITS))
    axes.set_xlabel(f"times faster to train {ratios[0].at} jobs")
    _set_style(axes)


def _plot_costs(axes: Axes, label: str, costs: Sequence[Measurement]) -> None:
    """Plot a line for each case, with the range of its rounds as a band."""
    for case, (colour, marker) in zip(dict.fromkeys(m.case for m in costs), STYLES, strict=False):
        rows = [m for m in costs if m.case == case]
        at = [float(m.at or 0) for m in rows]
        low, high = [min(m.values) for m in rows], [max(m.values) for m in rows]
        axes.fill_between(at, low, high, color=colour, alpha=0.25, linewidth=0)
        axes.plot(at, [m.median for m in rows], color=colour, marker=marker, markersize=4.5, linewidth=1.2, label=case)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=TICK_DIGITS))
    _widen_y_range(axes)
    axes.set_xticks(sorted({float(m.at or 0) for m in costs}))
    axes.set_xlabel(label)
    axes.set_ylabel("time of a lane and update (µs)")
    _set_style(axes)


def _widen_y_range(axes: Axes) -> None:
    """Extend the y range to at least a factor of ten, so that small differences look small in every panel."""
    low, high = axes.get_ylim()
    margin = max(1.0, (10 * low / high) ** 0.5)
    axes.set_ylim(low / margin, high * margin)


def _set_style(axes: Axes) -> None:
    """Set plain tick labels, a light grid, a legend, and type that is legible at half a page's width."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(8)
        if axis.get_scale() == "log":
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7, frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
