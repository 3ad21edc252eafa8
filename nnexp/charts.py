"""The style of every picture, in one place: each kind of chart as one function that draws on axes.

Colours are those of Okabe and Ito (2008), which all readers can tell apart; each series also has a marker and a kind
of line of its own. Type is read at half a page. Missing numbers, None, leave gaps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":")
SEQUENTIAL, DIVERGING = "cividis", "PuOr"
MOST_SERIES = len(COLOURS)
GAPS, FINE = "0.8", 24  # what stands between the images of a mosaic, and the pixels that an image has at least
PALE = 0.6  # strength of a background
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


def bars(axes: Axes, names: Sequence[str], series: Mapping[str, Sequence[float | None]], xlabel: str) -> None:
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
    axes.set_yticks(range(len(names)), [shortened(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.locator_params(axis="x", nbins=5)  # with decimals, more would touch in a panel of half a picture
    axes.grid(True)
    label(axes, xlabel, "")
    legend(axes, len(series))


def heatmap(
    axes: Axes,
    matrix: Sequence[Sequence[float | None]],
    xlabel: str,
    ylabel: str,
    colours: str,
    *,
    is_diverging: bool = False,
    limits: tuple[float, float] | None = None,
    extent: tuple[float, float, float, float] | None = None,
) -> Any:
    """Rows from top to bottom as colours, with a bar labelled `colours`; diverging has its middle at zero.

    Args:
        limits: of the colours; the data's own where none are given.
        extent: left, right, bottom, top of the matrix on the axes.
    """
    values = [[math.nan if value is None else value for value in row] for row in matrix]
    low, high = limits or limits_of([values], is_diverging=is_diverging)
    image = axes.imshow(
        values,
        cmap=DIVERGING if is_diverging else SEQUENTIAL,
        vmin=low,
        vmax=high,
        extent=extent,
        aspect="auto",
        origin="upper" if extent is None else "lower",
    )
    whole_ticks(axes, extent is None)
    label(axes, xlabel, ylabel)
    if colours:
        axes.figure.colorbar(image, ax=axes, label=colours)
    return image


def tiles(
    figure: Figure,
    images: Sequence[Sequence[Sequence[float | None]]],
    titles: Sequence[str],
    colours: str,
    *,
    is_diverging: bool = False,
    columns: int | None = None,
) -> None:
    """Small images side by side, all in the same colours, with one bar labelled `colours`."""
    columns = columns or max(1, math.ceil(math.sqrt(2 * len(images))))
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    low, high = limits_of(images, is_diverging=is_diverging)
    grid = figure.subplots(rows, columns, squeeze=False)
    shown = None
    for number, axes in enumerate(grid.flat):
        axes.set_axis_off()
        if number >= len(images):
            continue
        values = [[math.nan if value is None else value for value in row] for row in images[number]]
        shown = axes.imshow(values, cmap=DIVERGING if is_diverging else SEQUENTIAL, vmin=low, vmax=high)
        axes.set_title(titles[number], fontsize=8)
    if shown is not None:
        figure.colorbar(shown, ax=grid, label=colours, shrink=0.9)


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


def mosaic(
    axes: Axes,
    images: Sequence[Sequence[Sequence[Sequence[float | None]]]],
    *,
    is_diverging: bool = False,
    limits: tuple[float, float] | None = None,
    row_names: Sequence[str] = (),
    column_names: Sequence[str] = (),
    is_square: bool = True,
) -> Any:
    """Rows of images of one size, all in the same colours, as one image: many axes would take long to draw.

    Args:
        limits: of the colours; the data's own where none are given.
        is_square: pixels are as wide as high; else the images fill the axes.
    """
    height, width = len(images[0][0]), len(images[0][0][0])
    # Small ones are magnified, so that what is between them is narrow beside them.
    sides = [max(height, width)] * 2 if is_square else [height, width]
    magnified = max(1, FINE // sides[0]), max(1, FINE // sides[1])
    tile = height * magnified[0], width * magnified[1]
    gaps = 1 + tile[0] // 32, 1 + tile[1] // 32
    whole = _side_by_side(images, tile, magnified, gaps)
    low, high = limits or limits_of([whole], is_diverging=is_diverging)
    colours = DIVERGING if is_diverging else SEQUENTIAL
    image = axes.imshow(whole, cmap=colours, vmin=low, vmax=high, aspect="equal" if is_square else "auto")
    axes.set_facecolor(GAPS)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    _name_tiles(axes.set_yticks, row_names, tile[0], gaps[0])
    _name_tiles(axes.set_xticks, column_names, tile[1], gaps[1])
    return image


def _side_by_side(
    images: Sequence[Sequence[Sequence[Sequence[float | None]]]],
    tile: tuple[int, int],
    magnified: tuple[int, int],
    gaps: tuple[int, int],
) -> list[list[float]]:
    """One matrix, with missing numbers between the images, and in place of those that are not there."""
    num_columns = max(map(len, images))
    width = num_columns * (tile[1] + gaps[1]) - gaps[1]
    whole: list[list[float]] = []
    for number, row in enumerate(images):
        if number:
            whole += [[math.nan] * width] * gaps[0]
        for place in range(len(row[0])):
            line: list[float] = []
            for image in row:
                numbers = (math.nan if value is None else value for value in image[place])
                line += [value for value in numbers for _ in range(magnified[1])] + [math.nan] * gaps[1]
            whole += [(line + [math.nan] * width)[:width]] * magnified[0]
    return whole


def _name_tiles(set_ticks: Any, names: Sequence[str], size: int, gap: int) -> None:
    set_ticks([number * (size + gap) + (size - 1) / 2 for number in range(len(names))], names)


def bar(figure: Figure, image: Any, colours: str, axes: Any, *, is_below: bool = False) -> None:
    """A bar that says what the colours of an image mean; below, where pictures are wide and low."""
    place = {"location": "bottom", "aspect": 40, "shrink": 0.6} if is_below else {"location": "right"}
    figure.colorbar(image, ax=axes, label=colours, **place)


def probability(
    axes: Axes, matrix: Sequence[Sequence[float | None]], extent: tuple[float, float, float, float], colours: str
) -> None:
    """From the colour of the first class over white, at a half, to that of the second, with a line at a half."""
    from matplotlib.colors import LinearSegmentedColormap

    ends = ("#{:02X}{:02X}{:02X}".format(*_mixed(colour)) for colour in COLOURS[:2])
    ramp = LinearSegmentedColormap.from_list("two classes", [next(ends), "#FFFFFF", next(ends)])
    values = [[math.nan if value is None else value for value in row] for row in matrix]
    options: dict[str, Any] = {"cmap": ramp, "vmin": 0, "vmax": 1, "aspect": "auto", "origin": "lower"}
    image = axes.imshow(values, extent=extent, **options)
    level_line(axes, matrix, 0.5, extent)
    axes.figure.colorbar(image, ax=axes, label=colours)


def regions(
    axes: Axes,
    classes: Sequence[Sequence[int | None]],
    certainty: Sequence[Sequence[float | None]],
    extent: tuple[float, float, float, float],
) -> None:
    """The colour of a class at each place, the paler the less certain (from 0 to 1), with lines between classes."""
    image = [
        [_mixed(COLOURS[(c or 0) % len(COLOURS)], s or 0.0) for c, s in zip(row, sure, strict=True)]
        for row, sure in zip(classes, certainty, strict=True)
    ]
    axes.imshow(image, extent=extent, aspect="auto", origin="lower")
    for each in sorted({c for row in classes for c in row if c is not None}):
        level_line(axes, [[float(c == each) for c in row] for row in classes], 0.5, extent)


def level_line(
    axes: Axes, matrix: Sequence[Sequence[float | None]], level: float, extent: tuple[float, float, float, float]
) -> None:
    """The line along which a matrix has a value, if there is one."""
    known = [value for row in matrix for value in row if value is not None]
    if known and min(known) < level < max(known):
        values = [[math.nan if value is None else value for value in row] for row in matrix]
        axes.contour(values, levels=[level], extent=extent, origin="lower", colors="0.15", linewidths=1.2)


def _mixed(colour: str, strength: float = 1.0) -> tuple[int, ...]:
    """Red, green and blue of a pale colour, on which points of the same colour can be seen; white at strength 0."""
    parts = int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
    return tuple(round(255 - PALE * strength * (255 - part)) for part in parts)


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


def limits_of(images: Sequence[Any], *, is_diverging: bool = False) -> tuple[float, float]:
    """The lowest and highest number of some images; around zero, and never both the same."""
    numbers = [v for image in images for row in image for v in row if v is not None and math.isfinite(v)] or [0.0]
    low, high = min(numbers), max(numbers)
    if is_diverging:
        high = max(abs(low), abs(high)) or 1.0
        return -high, high
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def label(axes: Axes, xlabel: str, ylabel: str) -> None:
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


def legend(axes: Axes, num_series: int) -> None:
    """Above the axes, where it covers nothing; none for a single series."""
    if num_series > 1:
        axes.legend(ncols=min(num_series, 3), loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)


def whole_ticks(axes: Axes, is_whole: bool = True) -> None:
    """Ticks at whole numbers alone, where an axis counts positions."""
    if is_whole:
        axes.locator_params(axis="both", integer=True)


def shortened(name: str, length: int = 24) -> str:
    """A name that fits beside an axis."""
    return name if len(name) <= length else f"...{name[3 - length :]}"
