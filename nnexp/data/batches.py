"""What a lane reads: batches in an order that depends on the seed and the step alone, loss and metrics."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from nnexp.base import NnexpError
from nnexp.data.seeding import derive_seed
from nnexp.data.splits import Split

BLOCK_BYTES = 1 << 20
MOST_PERMUTED = 2**18
PAGE = 4096


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
            source = self._source.manual_seed(derive_seed(self.seed, f"{'page' if self.is_drawn else 'epoch'} {page}"))
            if self.is_drawn:
                rows = torch.randint(self.num_rows, (PAGE,), generator=source)
            else:
                rows = torch.randperm(self.num_rows, generator=source)
            self._last_page = (page, rows.to(self.split[0].device))
        return self._last_page[1]
