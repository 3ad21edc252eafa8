"""What a dataset states about its tensors, and what a dataset plugin provides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DataSpec:
    """What a dataset says of its tensors, and all that a model needs to know of them.

    Args:
        kind: "vector" rows are (F,), "sequence" (T, C), "tokens" (T,) integers, "image" (C, H, W).
        shape: the shape of one input, without the batch.
        target: "class" (integer labels, cross-entropy) or "value" (real numbers, mean squared error).
        outputs: numbers that the model gives per prediction: the classes, or the size of the value.
        vocab: number of different tokens, for kind "tokens".
        per_step: one prediction per position, not one per row.
    """

    kind: Literal["vector", "sequence", "tokens", "image"]
    shape: tuple[int, ...]
    target: Literal["class", "value"] = "class"
    outputs: int = 2
    vocab: int = 0
    per_step: bool = False

    @property
    def max_length(self) -> int:
        """Positions of the longest sequence that `nnexp.data.as_sequence` makes of one input."""
        return self.shape[1] if self.kind == "image" else self.shape[0]

    @property
    def channels(self) -> int:
        """Numbers per position of that sequence."""
        return self.vocab if self.kind == "tokens" else math.prod(self.shape) // self.max_length

    @property
    def features(self) -> int:
        """Numbers in the flat vector that `nnexp.data.as_vector` makes of one input."""
        return self.max_length * self.channels


class Dataset(Protocol):
    """Made with a generator of its own, seeded by `dataset.seed`.

    Each split is `(x, y)` or `(x, y, lengths)`: x (N, *spec.shape), y (N,) or (N, T) where `spec.per_step`.
    Tokens and labels may be of any integer type, and rows may be views that overlap, such as windows of a text.
    Labels are classes at padded positions too, where they do not count.
    """

    spec: DataSpec
    train: tuple[Tensor, ...]
    val: tuple[Tensor, ...]
    test: tuple[Tensor, ...]
