"""The contract of model plugins."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Model(Protocol):
    """An `nn.Module` constructed with a `DataSpec`: a forward pass only, without loss and optimiser.

        @model
        class Linear(nn.Module):
            def __init__(self, data: DataSpec, *, bias: bool = True):
                super().__init__()
                self.data, self.head = data, nn.Linear(data.features, data.outputs, bias=bias)

            def forward(self, x, lengths=None):
                return self.head(as_vector(x, self.data, lengths))

    - Random numbers: draw from the global generators, which are seeded for the lane.
    - State: whatever changes during training must be a parameter or a buffer, because a checkpoint holds nothing else.
    - Stacking: `forward` is traced once under `torch.func.vmap`. A model whose `forward` branches on values of tensors
      is trained one lane at a time. A model may have an attribute `fused`; it is set to False for tracing, where
      `forward` must use operations that vmap supports.
    """

    def __call__(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return predictions (B, outputs), or (B, T, outputs) if `data.per_step`.

        Args:
            x: inputs (B, *data.shape).
            lengths: (B,) integers; positions from there on are padding. None if the dataset has no padding.
        """
