"""The numbers of a chunk of updates, kept on the device until its end."""

from __future__ import annotations

from torch import Tensor

from nnexp.rundir import Rows


class StepBuffer:
    """Numbers of some consecutive updates, on the device in two vectors made beforehand.

    Single numbers kept from each update would stand between the freed pieces of its graph, and the heap would grow.

    Args:
        first: the first of these updates.
        count: how many there can be.
        like: a tensor of the device and precision of the numbers.
    """

    def __init__(self, first: int, count: int, like: Tensor) -> None:
        self.first, self.count = first, 0
        self.numbers = like.new_empty(2, count)
        self.losses, self.norms = (row.unbind() for row in self.numbers)
        self.layer_norms: list[tuple[int, float, Tensor]] = []

    def add(self, loss: Tensor, norm: Tensor) -> None:
        self.losses[self.count].copy_(loss)
        self.norms[self.count].copy_(norm)
        self.count += 1

    def rows(self, layers: list[str]) -> Rows:
        """The same as rows of metrics.csv, moved to the host at once."""
        names = [f"grad_norm/{layer}" for layer in layers]
        sparse = {
            step: {"lr": lr, **dict(zip(names, norms.tolist(), strict=True))} for step, lr, norms in self.layer_norms
        }
        losses, norms = self.numbers[:, : self.count].tolist()
        return Rows(self.first, losses, norms, sparse)
