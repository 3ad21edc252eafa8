"""Observations, which probes return: scalars, pictures with their data, texts, histograms. Imports no matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Picture:
    """A picture to be drawn: its data and the function that draws it.

    Args:
        title: a few words; the step is appended.
        numbers: the data by name: numbers, strings, tensors, and lists and dictionaries of these. Written beside the
            picture as JSON, with tensors as lists and non-finite numbers as null.
        draw: called with an empty `matplotlib.figure.Figure` and `numbers` as read back from JSON; must draw from
            these alone. `nnexp.plotting` has helpers.
        size: width and height in inches.

    >>> def draw(figure, numbers):
    ...     figure.subplots().plot(numbers["losses"])
    >>> Picture("Losses", {"losses": [1.0, 0.5]}, draw)
    """

    title: str
    numbers: Mapping[str, Any]
    draw: Callable[[Any, dict[str, Any]], None]
    size: tuple[float, float] = (6.0, 3.6)


@dataclass(frozen=True)
class Observation:
    """The result of one probe at one step.

    Names are at most 100 characters long, and become parts of TensorBoard tags and file names.

    Args:
        scalars: numbers by name; plotted over steps in TensorBoard, the last ones stored in run.json.
        pictures: by name.
        texts: Markdown by name.
        histograms: by name, rows of (left edge, right edge, count).
        graph: a serialised TensorBoard GraphDef; only the first of a run is stored.
        warning: a message to print at the end of the run, "" for none.

    >>> Observation(scalars={"norm": 1.5}, texts={"sample": "`hello`"})
    """

    scalars: Mapping[str, float] = field(default_factory=dict)
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    histograms: Mapping[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    graph: bytes | None = None
    warning: str = ""


def to_plain(value: Any) -> Any:
    """Convert a value to what JSON can hold: tensors and arrays to nested lists, non-finite numbers to None.

    Raises TypeError for objects other than numbers, strings, sequences, mappings, tensors and arrays.
    """
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [to_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if hasattr(value, "isfinite") and value.isfinite().all():  # fast path for tensors
        return value.tolist()
    if hasattr(value, "tolist"):  # tensors and numpy arrays
        return to_plain(value.tolist())
    raise TypeError(f"a picture is made of numbers, text, lists and dictionaries, not of {type(value).__name__}")
