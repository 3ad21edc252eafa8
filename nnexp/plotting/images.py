"""Heat maps, image mosaics and class regions on matplotlib axes, in the style of `nnexp.plotting.charts`.

Colour maps are readable with colour blindness and in print: a sequential one from dark to bright, and a diverging one
with white at zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nnexp.plotting.charts import COLOURS, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEQUENTIAL, DIVERGING = "cividis", "PuOr"
GAP_COLOUR = "0.8"  # between the images of a mosaic
MIN_TILE = 24  # pixels of an image in a mosaic; smaller images are magnified
BACKGROUND_STRENGTH = 0.6  # of class colours, so that points of the same colour stand out


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
    """Draw a matrix as colours, with rows from top to bottom, and a colour bar.

        heatmap(figure.subplots(), numbers["gradient"], "position", "layer", "log10 of the norm")

    Args:
        axes: axes to draw on.
        matrix: rows of values; None is left blank.
        xlabel: label of the x axis.
        ylabel: label of the y axis.
        colours: label of the colour bar; "" draws no bar.
        is_diverging: whether to use the diverging colour map, centred at zero.
        limits: lowest and highest value of the colour map, by default those of the matrix.
        extent: left, right, bottom and top of the matrix on the axes, with the first row at the bottom; by default rows
            and columns are counted.

    Returns:
        The matplotlib image.
    """
    values = [[math.nan if value is None else value for value in row] for row in matrix]
    low, high = limits or value_range([values], is_diverging=is_diverging)
    image = axes.imshow(
        values,
        cmap=DIVERGING if is_diverging else SEQUENTIAL,
        vmin=low,
        vmax=high,
        extent=extent,
        aspect="auto",
        origin="upper" if extent is None else "lower",
    )
    if extent is None:
        axes.locator_params(axis="both", integer=True)
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
    """Draw rows of images of one size side by side, in one colour map.

    All are drawn as a single image, because matplotlib draws many axes slowly.

    Args:
        axes: axes to draw on.
        images: rows of images, each a matrix (height, width); rows may be of different lengths.
        is_diverging: whether to use the diverging colour map, centred at zero.
        limits: lowest and highest value of the colour map, by default those of all images.
        row_names: names of the rows of images.
        column_names: names of the columns of images.
        is_square: whether pixels are as wide as high; otherwise the images fill the axes.

    Returns:
        The matplotlib image.
    """
    height, width = len(images[0][0]), len(images[0][0][0])
    # Small images are magnified, so that the gaps are narrow beside them.
    sides = [max(height, width)] * 2 if is_square else [height, width]
    scale = max(1, MIN_TILE // sides[0]), max(1, MIN_TILE // sides[1])
    tile = height * scale[0], width * scale[1]
    gaps = 1 + tile[0] // 32, 1 + tile[1] // 32
    canvas = _side_by_side(images, tile, scale, gaps)
    low, high = limits or value_range([canvas], is_diverging=is_diverging)
    colours = DIVERGING if is_diverging else SEQUENTIAL
    image = axes.imshow(canvas, cmap=colours, vmin=low, vmax=high, aspect="equal" if is_square else "auto")
    axes.set_facecolor(GAP_COLOUR)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    _name_tiles(axes.set_yticks, row_names, tile[0], gaps[0])
    _name_tiles(axes.set_xticks, column_names, tile[1], gaps[1])
    return image


def _side_by_side(
    images: Sequence[Sequence[Sequence[Sequence[float | None]]]],
    tile: tuple[int, int],
    scale: tuple[int, int],
    gaps: tuple[int, int],
) -> list[list[float]]:
    """Return one matrix with all images, and NaN between them and where an image is missing."""
    num_columns = max(map(len, images))
    width = num_columns * (tile[1] + gaps[1]) - gaps[1]
    canvas: list[list[float]] = []
    for number, row in enumerate(images):
        if number:
            canvas += [[math.nan] * width] * gaps[0]
        for pixel_row in range(len(row[0])):
            line: list[float] = []
            for image in row:
                numbers = (math.nan if value is None else value for value in image[pixel_row])
                line += [value for value in numbers for _ in range(scale[1])] + [math.nan] * gaps[1]
            canvas += [(line + [math.nan] * width)[:width]] * scale[0]
    return canvas


def _name_tiles(set_ticks: Any, names: Sequence[str], size: int, gap: int) -> None:
    set_ticks([number * (size + gap) + (size - 1) / 2 for number in range(len(names))], names)


def colour_bar(figure: Any, image: Any, colours: str, axes: Any, *, is_below: bool = False) -> None:
    """Add a colour bar for an image.

    Args:
        figure: the figure.
        image: the result of `heatmap` or `mosaic`.
        colours: label of the bar.
        axes: the axes that the bar shares its space with.
        is_below: whether the bar lies below the axes, for wide and low figures.
    """
    position = {"location": "bottom", "aspect": 40, "shrink": 0.6} if is_below else {"location": "right"}
    figure.colorbar(image, ax=axes, label=colours, **position)


def probability(
    axes: Axes, matrix: Sequence[Sequence[float | None]], extent: tuple[float, float, float, float], colours: str
) -> None:
    """Draw the probability of the second of two classes over a plane, with a line at 0.5.

    Colours go from that of the first class at 0, over white at 0.5, to that of the second at 1.

    Args:
        axes: axes to draw on.
        matrix: probabilities, with the first row at the bottom.
        extent: left, right, bottom and top of the plane.
        colours: label of the colour bar.
    """
    from matplotlib.colors import LinearSegmentedColormap

    ends = ("#{:02X}{:02X}{:02X}".format(*_blend_with_white(colour)) for colour in COLOURS[:2])
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
    """Draw the predicted class over a plane: its colour, paler where less certain, and lines between classes.

    Args:
        axes: axes to draw on.
        classes: class at each point, with the first row at the bottom; None is left white.
        certainty: strength of the colour at each point, from 0 to 1.
        extent: left, right, bottom and top of the plane.
    """
    image = [
        [_blend_with_white(COLOURS[(c or 0) % len(COLOURS)], s or 0.0) for c, s in zip(row, strengths, strict=True)]
        for row, strengths in zip(classes, certainty, strict=True)
    ]
    axes.imshow(image, extent=extent, aspect="auto", origin="lower")
    for each in sorted({c for row in classes for c in row if c is not None}):
        level_line(axes, [[float(c == each) for c in row] for row in classes], 0.5, extent)


def level_line(
    axes: Axes, matrix: Sequence[Sequence[float | None]], level: float, extent: tuple[float, float, float, float]
) -> None:
    """Draw the contour line of a matrix at a level, if the level is reached.

    Args:
        axes: axes to draw on.
        matrix: values, with the first row at the bottom; None is missing.
        level: value along the line.
        extent: left, right, bottom and top of the matrix on the axes.
    """
    present = [value for row in matrix for value in row if value is not None]
    if present and min(present) < level < max(present):
        values = [[math.nan if value is None else value for value in row] for row in matrix]
        axes.contour(values, levels=[level], extent=extent, origin="lower", colors="0.15", linewidths=1.2)


def _blend_with_white(colour: str, strength: float = 1.0) -> tuple[int, ...]:
    """Return red, green and blue of a background colour; white at strength 0."""
    parts = int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
    return tuple(round(255 - BACKGROUND_STRENGTH * strength * (255 - part)) for part in parts)


def value_range(images: Sequence[Any], *, is_diverging: bool = False) -> tuple[float, float]:
    """Return the lowest and highest finite number of some images, never equal to each other.

    Args:
        images: matrices; None is missing.
        is_diverging: whether to return a range that is symmetric about zero.
    """
    numbers = [v for image in images for row in image for v in row if v is not None and math.isfinite(v)] or [0.0]
    low, high = min(numbers), max(numbers)
    if is_diverging:
        high = max(abs(low), abs(high)) or 1.0
        return -high, high
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))
