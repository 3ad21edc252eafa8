"""Training and evaluation batches for all lanes of a stack, gathered together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nnexp.data.batches import Batches
from nnexp.data.data_spec import DataSpec
from nnexp.data.metrics import evaluation_parts
from nnexp.data.splits import Split

BLOCK_BYTES = 1 << 24
MAX_PREDICTIONS = 512  # at a time and per lane: a lane's sums must not depend on the number of lanes


class StackedBatches:
    """Batches of K lanes, each with its own rows in its own order. Lanes with the same dataset share its tensors.

    Args:
        batches: the batches of each lane, all with B rows.
    """

    def __init__(self, batches: Sequence[Batches]) -> None:
        self.batches = batches
        groups: dict[tuple[int, ...], list[int]] = {}
        for lane, each in enumerate(batches):
            groups.setdefault(tuple(map(id, each.split)), []).append(lane)
        self.groups = list(groups.values())
        order = [lane for group in self.groups for lane in group]
        self.order = None if order == sorted(order) else torch.tensor(order).argsort()
        first = batches[0]
        row_bytes = sum(t[0].numel() * t.element_size() for t in first.split)
        self.block = max(1, min(256, BLOCK_BYTES // max(1, row_bytes * first.size * len(batches))))
        self._full = tuple(self._stacked([each.split for each in batches])) if first.full else None

    def take(self, first: int, count: int) -> Iterator[Split]:
        """Yield the batches of updates `first` to `first + count - 1`, counted from 1; each tensor is (K, B, ...)."""
        if self._full is not None:
            for _ in range(count):
                yield tuple(t.clone() for t in self._full)  # a module may change its input in place
            return
        for start in range(first, first + count, self.block):
            yield from zip(*self._block(start, min(self.block, first + count - start)), strict=True)

    def _block(self, first: int, count: int) -> list[tuple[Tensor, ...]]:
        """Return for each tensor of a split its batches (K, B, ...) by update."""
        parts = []
        for group in self.groups:
            rows = torch.stack([self.batches[lane].rows(first, count) for lane in group], dim=1)
            split = self.batches[group[0]].split
            parts.append([t[rows.flatten()].unflatten(0, rows.shape) for t in split])
        joined = [each[0] if len(each) == 1 else torch.cat(each, dim=1) for each in zip(*parts, strict=True)]
        return [(t if self.order is None else t[:, self.order]).unbind() for t in joined]

    @staticmethod
    def _stacked(splits: list[Split]) -> Iterator[Tensor]:
        return (torch.stack(each) for each in zip(*splits, strict=True))

    def evaluation(self, splits: list[Split], data: DataSpec, max_rows: int) -> Iterator[Split]:
        """Yield the splits of K lanes in parts; each tensor is (K, rows, ...).

        Args:
            splits: one split per lane, all with equally many rows.
            data: specification of the dataset.
            max_rows: rows per lane that are evaluated, evenly spaced.
        """
        each_lane = (evaluation_parts(split, data, MAX_PREDICTIONS, max_rows) for split in splits)
        for parts in zip(*each_lane, strict=True):
            yield tuple(self._stacked(list(parts)))
