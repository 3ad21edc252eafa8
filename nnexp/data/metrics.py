"""Evaluate a split: loss, and accuracy for classes, over all predictions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from nnexp.data.data_spec import DataSpec
from nnexp.data.losses import check_output, loss, mean_valid_positions
from nnexp.data.splits import Split

MAX_PREDICTIONS = 4096  # at a time, to bound the memory of an evaluation
MAX_EVALUATED_ROWS = 20_000


def metric_names(data: DataSpec) -> list[str]:
    """Return the names of the metrics of this kind of target."""
    return ["loss", "accuracy"] if data.target == "class" else ["loss"]


def measure(module: Callable[..., Tensor], part: Split, data: DataSpec) -> dict[str, Tensor]:
    """Return sums of the metrics over the predictions of a batch, and their number as `count`, all scalars ().

    Args:
        module: the model or a function of it, called with x and lengths.
        part: rows of a split, (x, y) or (x, y, lengths).
        data: specification of the dataset.

    Raises:
        NnexpError: the model's output has a wrong shape.
    """
    x, y, *rest = part
    output = module(x.clone(), *rest)  # a module may change its input in place, and the split is shared
    check_output(output, y, data)
    lengths = rest[0] if rest and data.per_step else None
    # Without lengths, rows: all have equally many predictions.
    count = torch.tensor(len(x), device=y.device) if lengths is None else lengths.sum()
    sums = {"count": count, "loss": loss(output, y, data, lengths) * count}
    if data.target == "class":
        correct = (output.argmax(-1) == y.long()).to(torch.get_default_dtype())  # exact, also with bf16
        sums["accuracy"] = mean_valid_positions(correct, lengths) * count
    return sums


def evaluation_parts(split: Split, data: DataSpec, max_predictions: int, max_rows: int | None) -> Iterator[Split]:
    """Yield the rows of a split in parts of bounded size.

    Args:
        split: (x, y) or (x, y, lengths).
        data: specification of the dataset.
        max_predictions: predictions in a part.
        max_rows: of a larger split every k-th row is taken, with the smallest k that keeps to this. None: all rows.
    """
    if max_rows is not None:
        split = tuple(t[:: -(-len(t) // max_rows)] for t in split)
    size = max(1, max_predictions // (data.max_length if data.per_step else 1))
    yield from zip(*(t.split(size) for t in split), strict=True)


@torch.no_grad()
def evaluate(
    module: torch.nn.Module, split: Split, data: DataSpec, max_rows: int | None = MAX_EVALUATED_ROWS
) -> dict[str, float]:
    """Return the metrics of a split by name: `loss`, and `accuracy` if targets are classes.

        evaluate(module.eval(), dataset.test, dataset.spec)  # {"loss": 0.31, "accuracy": 0.92}

    Args:
        module: the model, in the mode that it is to be evaluated in.
        split: (x, y) or (x, y, lengths), on the model's device.
        data: specification of the dataset.
        max_rows: rows that are evaluated, evenly spaced; None evaluates all.

    Raises:
        NnexpError: the model's output has a wrong shape.
    """
    parts = (measure(module, part, data) for part in evaluation_parts(split, data, MAX_PREDICTIONS, max_rows))
    sums = {name: float(value) for name, value in sum_metrics(parts).items()}
    return {name: sums[name] / sums["count"] for name in metric_names(data)}


def sum_metrics(parts: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Add up the sums of `measure` over several batches, by name."""
    return functools.reduce(lambda sums, part: {name: sums[name] + part[name] for name in sums}, parts)
