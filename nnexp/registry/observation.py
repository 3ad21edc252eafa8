"""What a probe gives: numbers, pictures with the numbers behind them, text. No plotting library is imported here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Picture:
    """A picture that is not drawn yet.

    Args:
        title: what it shows, in a few words; the step is added.
        numbers: all that is drawn, by name: numbers, text, lists and dictionaries of these, tensors. They are written
            beside the picture as JSON, where a tensor is a list, and a number that is not finite null.
        draw: draws on an empty `matplotlib.figure.Figure` from these numbers alone, as they are written; see
            `nnexp.plotting`.
        size: inches.
    """

    title: str
    numbers: Mapping[str, Any]
    draw: Callable[[Any, dict[str, Any]], None]
    size: tuple[float, float] = (6.0, 3.6)


@dataclass(frozen=True)
class Observation:
    """What a probe saw at one step. Names, of at most 100 letters, are parts of tags and of file names.

    Args:
        scalars: single numbers; TensorBoard draws them over steps, and the last stand in run.json.
        pictures: by name.
        texts: by name, in Markdown.
        histograms: by name, rows of (left edge, right edge, count).
        graph: a GraphDef of TensorBoard's, serialised; the first that is given is kept.
        warning: what a person should be told at the end of the run, beyond what pictures show.
    """

    scalars: Mapping[str, float] = field(default_factory=dict)
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    histograms: Mapping[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    graph: bytes | None = None
    warning: str = ""


def to_plain(value: Any) -> Any:
    """Numbers as JSON has them: tensors as lists, null for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [to_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if hasattr(value, "isfinite") and value.isfinite().all():  # of torch, and quickly done
        return value.tolist()
    if hasattr(value, "tolist"):  # of torch or numpy
        return to_plain(value.tolist())
    raise TypeError(f"a picture is made of numbers, text, lists and dictionaries, not of {type(value).__name__}")
