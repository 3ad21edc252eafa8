"""What a lane reads: batches in an order that depends on the seed and the step alone, loss and metrics."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from nnexp.errors import NnexpError
from nnexp.seeding import generator
from nnexp.spec import DataSpec

Split = tuple[Tensor, ...]
BLOCK_BYTES = 1 << 20
EVALUATION_ROWS = 4096


def to_device(split: Split, dtype: torch.dtype, device: torch.device) -> Split:
    """The tensors of a split on a device, real numbers in the given precision."""
    return tuple(t.to(device, dtype if t.is_floating_point() else t.dtype) for t in split)


class Batches:
    """Batch s of training, for any s: there is no state that a resume could lose.

    Rows come in a fresh random order each epoch; a batch may hold the end of one epoch and the start of the next, so
    that all have the same size.

    Args:
        split: the training rows.
        batch_size: rows in a batch, or "full".
        seed: decides the order.
    """

    def __init__(self, split: Split, batch_size: int | str, seed: int) -> None:
        self.split, self.seed = split, seed
        self.num_rows = len(split[0])
        self.full = batch_size == "full"
        self.size = self.num_rows if isinstance(batch_size, str) else batch_size
        if self.size > self.num_rows:
            wrong = f"trainer.batch_size={self.size} is more than the {self.num_rows} training rows"
            raise NnexpError(f"{wrong}. Make it smaller, or trainer.batch_size=full.")
        row_bytes = sum(t[0].numel() * t.element_size() for t in split)
        self.block = max(1, min(256, BLOCK_BYTES // max(1, row_bytes * self.size)))
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))

    def take(self, first: int, count: int) -> Iterator[Split]:
        """Batches of the updates `first` to `first + count - 1` (updates count from 1)."""
        if self.full:
            for _ in range(count):
                yield self.split
            return
        for start in range(first - 1, first - 1 + count, self.block):
            steps = min(self.block, first - 1 + count - start)
            rows = self._rows(start * self.size, steps * self.size)
            gathered = [t[rows].unflatten(0, (steps, self.size)).unbind() for t in self.split]
            yield from zip(*gathered, strict=True)

    def _rows(self, start: int, count: int) -> Tensor:
        """Row numbers at positions `start` ... of the endless sequence of epochs."""
        parts = []
        while count:
            epoch, offset = divmod(start, self.num_rows)
            part = self._epoch(epoch)[offset : offset + count]
            parts.append(part)
            start, count = start + len(part), count - len(part)
        return torch.cat(parts)

    def _epoch(self, epoch: int) -> Tensor:
        if self._order[0] != epoch:
            order = torch.randperm(self.num_rows, generator=generator(self.seed, f"epoch {epoch}"))
            self._order = (epoch, order.to(self.split[0].device))
        return self._order[1]


def loss(output: Tensor, target: Tensor, data: DataSpec) -> Tensor:
    """Mean over predictions: cross-entropy in nats for classes, squared error for values."""
    if data.target == "value":
        return F.mse_loss(output, target.reshape(output.shape))
    if data.per_step:
        output, target = output.flatten(0, 1), target.flatten()
    return F.cross_entropy(output, target)


def check_output(output: object, target: Tensor, data: DataSpec) -> None:
    """Raise NnexpError where a model does not give what its contract says."""
    rows = target.shape[:2] if data.per_step else target.shape[:1]
    expected = (*rows, data.outputs)
    if not isinstance(output, Tensor):
        raise NnexpError(f"the model gave a {type(output).__name__}, its data need one tensor of shape {expected}.")
    if tuple(output.shape) != expected:
        raise NnexpError(f"the model gave a tensor of shape {tuple(output.shape)}, its data need {expected}.")


def check_split(name: str, split: Split, data: DataSpec) -> None:
    """Raise NnexpError where the tensors of a split are not what their specification says."""
    if len(split) < 2 or not all(isinstance(t, Tensor) and len(t) == len(split[0]) > 0 for t in split):
        raise NnexpError(f"the dataset's '{name}' must be a tuple (x, y) or (x, y, lengths) of tensors with rows.")
    x, y = split[:2]
    if tuple(x.shape[1:]) != tuple(data.shape):
        raise NnexpError(
            f"the dataset's '{name}' has inputs of shape {tuple(x.shape[1:])}, its spec says {data.shape}."
        )
    if data.target == "value":
        return
    if y.is_floating_point() or y.min() < 0 or y.max() >= data.outputs:
        wrong = f"labels of {y.dtype} from {y.min()} to {y.max()}"
        raise NnexpError(f"the dataset's '{name}' has {wrong}; needed are whole numbers from 0 to {data.outputs - 1}.")


def metric_names(data: DataSpec) -> list[str]:
    return ["loss", "accuracy"] if data.target == "class" else ["loss"]


@torch.no_grad()
def evaluate(module: torch.nn.Module, split: Split, data: DataSpec) -> dict[str, float]:
    """Loss and, for classes, accuracy over all predictions of a split."""
    sums: dict[str, Tensor | float] = dict.fromkeys(metric_names(data), 0.0)
    num_rows = len(split[0])
    for start in range(0, num_rows, EVALUATION_ROWS):
        x, y, *rest = (t[start : start + EVALUATION_ROWS] for t in split)
        output = module(x, *rest)
        check_output(output, y, data)
        sums["loss"] += loss(output, y, data) * len(x)
        if "accuracy" in sums:
            right = (output.argmax(-1) == y).to(output.dtype)
            sums["accuracy"] += right.mean() * len(x)
    return {name: float(total) / num_rows for name, total in sums.items()}
