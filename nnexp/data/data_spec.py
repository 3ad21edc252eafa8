"""`DataSpec`, the description of a dataset's tensors, and the contract of dataset plugins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DataSpec:
    """Kind and shape of a dataset's inputs and targets: all that a model knows about the data.

        DataSpec("image", (1, 28, 28), outputs=10)             # ten classes
        DataSpec("tokens", (64,), outputs=26, vocab=26, per_step=True)  # the next of 26 characters at each position

    Args:
        kind: "vector" for inputs (F,), "sequence" (T, C), "tokens" (T,) of integers, "image" (C, H, W).
        shape: shape of one input, without the batch axis.
        target: "class" (integer labels, cross-entropy) or "value" (real numbers, mean squared error).
        outputs: model outputs per prediction: number of classes, or size of the value.
        vocab: number of different tokens, for kind "tokens".
        per_step: one prediction per position instead of one per row.
    """

    kind: Literal["vector", "sequence", "tokens", "image"]
    shape: tuple[int, ...]
    target: Literal["class", "value"] = "class"
    outputs: int = 2
    vocab: int = 0
    per_step: bool = False

    @property
    def max_length(self) -> int:
        """T, positions of an input as `nnexp.data.as_sequence` returns it; for an image its rows."""
        return self.shape[1] if self.kind == "image" else self.shape[0]

    @property
    def channels(self) -> int:
        """C, channels per position of an input as `nnexp.data.as_sequence` returns it."""
        return self.vocab if self.kind == "tokens" else math.prod(self.shape) // self.max_length

    @property
    def features(self) -> int:
        """F, length of an input as `nnexp.data.as_vector` returns it."""
        return self.max_length * self.channels


class Dataset(Protocol):
    """Contract of a dataset plugin, constructed with a `torch.Generator` seeded by `dataset.seed`.

    Each split is `(x, y)` or `(x, y, lengths)` with N rows: x (N, *spec.shape); labels y (N,), or (N, T) if
    `spec.per_step`; values y (N, outputs) or (N, T, outputs), where one output needs no axis; lengths (N,) integers
    from 1 to T. Inputs and values are finite real numbers; tokens, labels and lengths may be of any integer type. Rows
    may be overlapping views, such as windows of a text. Labels at padded positions must be valid classes although they
    are ignored. All of this is checked when the dataset is made.

    Attributes:
        spec: kind and shape of inputs and targets.
        train: the training split.
        val: the validation split, evaluated every `trainer.eval_every` updates.
        test: the test split, evaluated after the last update.
    """

    spec: DataSpec
    train: tuple[Tensor, ...]
    val: tuple[Tensor, ...]
    test: tuple[Tensor, ...]
