"""Buffer losses and gradient norms of a chunk of updates on the device until the chunk ends."""

from __future__ import annotations

from torch import Tensor

from nnexp.rundir import Rows


class StepBuffer:
    """Losses and gradient norms of consecutive updates, in two preallocated vectors on the device.

    Scalars allocated at each update would fragment the heap: they outlive the graph that is freed around them.

    Args:
        first: step of the first update.
        count: capacity in updates.
        like: a tensor with the device and dtype of the buffer.
    """

    def __init__(self, first: int, count: int, like: Tensor) -> None:
        self.first, self.count = first, 0
        self.numbers = like.new_empty(2, count)
        self.losses, self.norms = (row.unbind() for row in self.numbers)
        self.layer_norms: list[tuple[int, float, Tensor]] = []

    def add(self, loss: Tensor, norm: Tensor) -> None:
        """Append the loss () and the gradient norm () of the next update."""
        self.losses[self.count].copy_(loss)
        self.norms[self.count].copy_(norm)
        self.count += 1

    def rows(self, layers: list[str]) -> Rows:
        """Return the buffered updates as rows of metrics.csv, copied to the host in one transfer.

        Args:
            layers: names of the layers, in the order of `layer_norms`.
        """
        names = [f"grad_norm/{layer}" for layer in layers]
        sparse = {
            step: {"lr": lr, **dict(zip(names, norms.tolist(), strict=True))} for step, lr, norms in self.layer_norms
        }
        losses, norms = self.numbers[:, : self.count].tolist()
        return Rows(self.first, losses, norms, sparse)
