"""Training batches of one lane, in an order that depends only on the seed and the step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from nnexp.base import NnexpError
from nnexp.data.seeding import derive_seed
from nnexp.data.splits import Split

BLOCK_BYTES = 1 << 20
MAX_PERMUTED_ROWS = 2**18
DRAWS_PER_PAGE = 4096


class Batches:
    """Random-access training batches: batch s can be computed for any s, so a resume needs no state.

    Up to 2**18 rows are permuted anew each epoch; a batch may span two epochs, so that all batches have B rows. More
    rows are drawn with replacement, because their permutation could be larger than the data; within an epoch a row may
    then come twice and another never.

    Row numbers form an endless sequence of pages, each from a generator of its own: a page is an epoch, or 4,096 draws.

        batches = Batches(split, batch_size=32, seed=0)
        for x, y in batches.take(first=1, count=10):  # the batches of updates 1 to 10
            ...

    Args:
        split: the training rows, (x, y) or (x, y, lengths), each tensor with N rows.
        batch_size: B, rows in a batch, or "full" for all N in their own order.
        seed: seed of the order.

    Raises:
        NnexpError: the batch is larger than the split.
    """

    def __init__(self, split: Split, batch_size: int | str, seed: int) -> None:
        self.split, self.seed = split, seed
        self.num_rows = len(split[0])
        self.full = batch_size == "full"
        self.size = self.num_rows if isinstance(batch_size, str) else batch_size
        if self.size > self.num_rows:
            wrong = f"trainer.batch_size={self.size} is more than the {self.num_rows} training rows"
            raise NnexpError(f"{wrong}. Make it smaller, or set trainer.batch_size=full.")
        self.is_drawn = self.num_rows > MAX_PERMUTED_ROWS
        self.page_size = DRAWS_PER_PAGE if self.is_drawn else self.num_rows
        row_bytes = sum(t[0].numel() * t.element_size() for t in split)
        self.block = max(1, min(256, BLOCK_BYTES // max(1, row_bytes * self.size)))
        self._generator = torch.Generator()  # reseeded for each page
        self._last_page: tuple[int, Tensor] = (-1, torch.empty(0))

    def take(self, first: int, count: int) -> Iterator[Split]:
        """Yield the batches of updates `first` to `first + count - 1`, counted from 1.

        Each batch has the tensors of the split with B rows: x (B, *data.shape), y (B,) or (B, T), lengths (B,).
        """
        if self.full:
            for _ in range(count):
                yield tuple(t.clone() for t in self.split)  # a module may change its input in place
            return
        for start in range(first, first + count, self.block):
            rows = self.rows(start, min(self.block, first + count - start))
            gathered = [t[rows.flatten()].unflatten(0, rows.shape).unbind() for t in self.split]
            yield from zip(*gathered, strict=True)

    def rows(self, first: int, count: int) -> Tensor:
        """Return the row numbers of the batches of `count` updates, (count, B) integers."""
        return self._rows((first - 1) * self.size, count * self.size).view(count, self.size)

    def _rows(self, start: int, count: int) -> Tensor:
        """Return row numbers (count,) from position `start` of the endless sequence of pages."""
        parts = []
        while count:
            page, offset = divmod(start, self.page_size)
            size = min(count, self.page_size - offset)
            parts.append(self._page(page)[offset : offset + size])
            start, count = start + size, count - size
        return torch.cat(parts)

    def _page(self, page: int) -> Tensor:
        if self._last_page[0] != page:
            seed = derive_seed(self.seed, f"{'page' if self.is_drawn else 'epoch'} {page}")
            generator = self._generator.manual_seed(seed)
            if self.is_drawn:
                rows = torch.randint(self.num_rows, (DRAWS_PER_PAGE,), generator=generator)
            else:
                rows = torch.randperm(self.num_rows, generator=generator)
            self._last_page = (page, rows.to(self.split[0].device))
        return self._last_page[1]
