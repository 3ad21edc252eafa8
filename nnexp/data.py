"""What a lane reads: batches in an order that depends on the seed and the step alone, loss and metrics."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from nnexp.errors import NnexpError
from nnexp.seeding import derive
from nnexp.spec import DataSpec
from nnexp.views import valid_positions

Split = tuple[Tensor, ...]
BLOCK_BYTES = 1 << 20
MOST_AT_ONCE = 4096  # predictions, so that an evaluation needs little memory
MOST_EVALUATED = 20_000
MOST_PERMUTED = 2**18
PAGE = 4096


def to_device(split: Split, dtype: torch.dtype, device: torch.device) -> Split:
    """The tensors of a split on a device, real numbers in the given precision."""
    return tuple(_moved(t, dtype if t.is_floating_point() else t.dtype, device) for t in split)


def _moved(t: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Rows that overlap in memory, such as windows of a text, still do so afterwards: what they view is moved."""
    num_stored = t.untyped_storage().nbytes() // t.element_size()
    if t.numel() <= num_stored:
        return t.to(device, dtype)
    stored = t.as_strided((num_stored,), (1,), 0).to(device, dtype)
    return stored.as_strided(t.shape, t.stride(), t.storage_offset())


class Batches:
    """Batch s of training, for any s: there is no state that a resume could lose.

    Rows come in a fresh random order each epoch; a batch may hold the end of one epoch and the start of the next, so
    that all have the same size. Of more than 2**18 rows no order is kept, for it would be larger than the data it
    orders: each row of a batch is then drawn from all, so that within an epoch one may come twice and another never.

    Either way the rows are an endless sequence in pages, an epoch or 4,096 draws, each from a generator of its own.

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
        self.is_drawn = self.num_rows > MOST_PERMUTED
        self.page_size = PAGE if self.is_drawn else self.num_rows
        row_bytes = sum(t[0].numel() * t.element_size() for t in split)
        self.block = max(1, min(256, BLOCK_BYTES // max(1, row_bytes * self.size)))
        self._source = torch.Generator()  # seeded anew for each page
        self._last_page: tuple[int, Tensor] = (-1, torch.empty(0))

    def take(self, first: int, count: int) -> Iterator[Split]:
        """Batches of the updates `first` to `first + count - 1` (updates count from 1)."""
        if self.full:
            for _ in range(count):
                yield tuple(t.clone() for t in self.split)  # a module may change what it is given
            return
        for start in range(first, first + count, self.block):
            rows = self.rows(start, min(self.block, first + count - start))
            gathered = [t[rows.flatten()].unflatten(0, rows.shape).unbind() for t in self.split]
            yield from zip(*gathered, strict=True)

    def rows(self, first: int, count: int) -> Tensor:
        """(count, B): row numbers of the batches of `count` updates."""
        return self._rows((first - 1) * self.size, count * self.size).view(count, self.size)

    def _rows(self, start: int, count: int) -> Tensor:
        """Row numbers at positions `start` ... of the endless sequence of pages."""
        parts = []
        while count:
            page, offset = divmod(start, self.page_size)
            taken = min(count, self.page_size - offset)
            parts.append(self._page(page)[offset : offset + taken])
            start, count = start + taken, count - taken
        return torch.cat(parts)

    def _page(self, page: int) -> Tensor:
        if self._last_page[0] != page:
            source = self._source.manual_seed(derive(self.seed, f"{'page' if self.is_drawn else 'epoch'} {page}"))
            if self.is_drawn:
                rows = torch.randint(self.num_rows, (PAGE,), generator=source)
            else:
                rows = torch.randperm(self.num_rows, generator=source)
            self._last_page = (page, rows.to(self.split[0].device))
        return self._last_page[1]


def loss(output: Tensor, target: Tensor, data: DataSpec, lengths: Tensor | None = None) -> Tensor:
    """Mean over predictions: cross-entropy in nats for classes, squared error for values.

    A prediction for a position that is padding, one at or after `lengths` (B,), does not count.
    """
    is_padded = data.per_step and lengths is not None
    reduction = "none" if is_padded else "mean"
    if data.target == "value":
        each = F.mse_loss(output, target.reshape(output.shape), reduction=reduction)
    elif data.per_step:
        each = F.cross_entropy(output.flatten(0, 1), target.flatten().long(), reduction=reduction)
    else:
        each = F.cross_entropy(output, target.long())
    return _mean_valid(each.reshape(*output.shape[:2], -1).mean(-1), lengths) if is_padded else each


def _mean_valid(each: Tensor, lengths: Tensor | None) -> Tensor:
    """The mean of (B, T) over positions that are not padding."""
    if lengths is None:
        return each.mean()
    valid = valid_positions(lengths, each.shape[1])
    return torch.where(valid, each, torch.zeros_like(each)).sum() / valid.sum()


def check_output(output: object, target: Tensor, data: DataSpec) -> None:
    """Raise NnexpError where a model does not give what its contract says."""
    rows = target.shape[:2] if data.per_step else target.shape[:1]
    expected = (*rows, data.outputs)
    if not isinstance(output, Tensor):
        raise NnexpError(f"the model gave a {type(output).__name__}, its data need one tensor of shape {expected}.")
    if tuple(output.shape) != expected:
        raise NnexpError(f"the model gave a tensor of shape {tuple(output.shape)}, its data need {expected}.")


def _bounds(y: Tensor) -> tuple[float, float]:
    """The smallest and the largest label. In parts, for torch would write out rows that overlap in memory."""
    rows = max(1, BLOCK_BYTES // max(1, y[0].numel() * y.element_size()))
    parts = [(part.min().item(), part.max().item()) for part in y.split(rows)]
    return min(low for low, _ in parts), max(high for _, high in parts)


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
    low, high = _bounds(y)
    if y.is_floating_point() or low < 0 or high >= data.outputs:
        wrong = f"labels of {y.dtype} from {low} to {high}"
        raise NnexpError(f"the dataset's '{name}' has {wrong}; needed are whole numbers from 0 to {data.outputs - 1}.")


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
        sums["accuracy"] = _mean_valid(right, lengths) * count
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
    sums = {name: float(value) for name, value in total(parts).items()}
    return {name: sums[name] / sums["count"] for name in metric_names(data)}


def total(parts: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Sums of what `measure` gives, by name."""
    return functools.reduce(lambda sums, part: {name: sums[name] + part[name] for name in sums}, parts)
