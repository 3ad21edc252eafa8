"""Pictures made of colours, in the style of `nnexp.plotting.charts`: matrices, images side by side, planes of classes.

Numbers of one sign go from dark to bright, numbers around zero to one of two colours; both can be told apart by all
readers, and in print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nnexp.plotting.charts import COLOURS, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEQUENTIAL, DIVERGING = "cividis", "PuOr"
GAPS, FINE = "0.8", 24  # what stands between the images of a mosaic, and the pixels that an image has at least
PALE = 0.6  # strength of a background


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
        colour_bar(axes.figure, image, colours, axes)
    return image


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


def colour_bar(figure: Any, image: Any, colours: str, axes: Any, *, is_below: bool = False) -> None:
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
    colour_bar(axes.figure, image, colours, axes)


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


def limits_of(images: Sequence[Any], *, is_diverging: bool = False) -> tuple[float, float]:
    """The lowest and highest number of some images; around zero, and never both the same."""
    numbers = [v for image in images for row in image for v in row if v is not None and math.isfinite(v)] or [0.0]
    low, high = min(numbers), max(numbers)
    if is_diverging:
        high = max(abs(low), abs(high)) or 1.0
        return -high, high
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def whole_ticks(axes: Axes, is_whole: bool = True) -> None:
    """Ticks at whole numbers alone, where an axis counts positions."""
    if is_whole:
        axes.locator_params(axis="both", integer=True)
