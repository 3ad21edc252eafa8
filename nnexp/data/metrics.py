"""Metrics of a split: loss and accuracy over all predictions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from nnexp.data.data_spec import DataSpec
from nnexp.data.losses import check_output, loss, mean_valid_positions
from nnexp.data.splits import Split

MOST_AT_ONCE = 4096  # predictions, so that an evaluation needs little memory
MOST_EVALUATED = 20_000


def metric_names(data: DataSpec) -> list[str]:
    return ["loss", "accuracy"] if data.target == "class" else ["loss"]


def measure(module: Callable[..., Tensor], part: Split, data: DataSpec) -> dict[str, Tensor]:
    """Loss and, for classes, accuracy of a few rows, each times the number of predictions, which is `count`."""
    x, y, *rest = part
    output = module(x.clone(), *rest)  # a module may change what it is given, and others read it too
    check_output(output, y, data)
    lengths = rest[0] if rest and data.per_step else None
    # Predictions, or rows where all have as many.
    count = torch.tensor(len(x), device=y.device) if lengths is None else lengths.sum()
    sums = {"count": count, "loss": loss(output, y, data, lengths) * count}
    if data.target == "class":
        right = (output.argmax(-1) == y.long()).to(torch.get_default_dtype())  # exact, also with bf16
        sums["accuracy"] = mean_valid_positions(right, lengths) * count
    return sums


def evaluation_parts(split: Split, data: DataSpec, at_once: int, max_rows: int | None) -> Iterator[Split]:
    """The rows of a split in parts of at most `at_once` predictions.

    Of a split of more rows than `max_rows`, every second, third, ... row is taken, so that they are no more than these.
    """
    if max_rows is not None:
        split = tuple(t[:: -(-len(t) // max_rows)] for t in split)
    size = max(1, at_once // (data.max_length if data.per_step else 1))
    yield from zip(*(t.split(size) for t in split), strict=True)


@torch.no_grad()
def evaluate(
    module: torch.nn.Module, split: Split, data: DataSpec, max_rows: int | None = MOST_EVALUATED
) -> dict[str, float]:
    """Loss and, for classes, accuracy over all predictions of a split, or of those that `evaluation_parts` takes."""
    parts = (measure(module, part, data) for part in evaluation_parts(split, data, MOST_AT_ONCE, max_rows))
    sums = {name: float(value) for name, value in sum_metrics(parts).items()}
    return {name: sums[name] / sums["count"] for name in metric_names(data)}


def sum_metrics(parts: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Sums of what `measure` gives, by name."""
    return functools.reduce(lambda sums, part: {name: sums[name] + part[name] for name in sums}, parts)
