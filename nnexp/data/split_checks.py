"""Check a dataset's specification and every tensor of its splits when the dataset is made, so that nothing is guessed.

Shapes: N rows, T positions, see `nnexp.data.data_spec`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from nnexp.base import NnexpError, short_repr
from nnexp.data.data_spec import DataSpec
from nnexp.data.splits import Split, stored_numbers

BLOCK_BYTES = 1 << 20
AXES = {"vector": 1, "sequence": 2, "tokens": 1, "image": 3}  # of one input, by kind
TARGETS = ("class", "value")


def check_spec(where: str, spec: object) -> DataSpec:
    """Return a dataset's `spec`. Raise NnexpError unless it is a DataSpec that describes some data.

    Args:
        where: names the dataset, for the message.
        spec: the value.
    """
    if not isinstance(spec, DataSpec):
        raise NnexpError(f"{where} must set self.spec to a DataSpec.")
    for name, value, allowed in (("kind", spec.kind, tuple(AXES)), ("target", spec.target, TARGETS)):
        if value not in allowed:
            raise NnexpError(f"{where}: spec.{name} is {short_repr(value)}; it is one of {', '.join(allowed)}.")
    sizes = {"outputs": spec.outputs, **{f"shape[{axis}]": size for axis, size in enumerate(spec.shape)}}
    sizes |= {"vocab": spec.vocab} if spec.kind == "tokens" else {}
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise NnexpError(f"{where}: spec.{name} is {short_repr(size)}; it is an integer of at least 1.")
    if len(spec.shape) != AXES[spec.kind]:
        raise NnexpError(f"{where}: spec.shape is {spec.shape}; {spec.kind} data have {AXES[spec.kind]} axes.")
    return spec


def check_split(where: str, split: Split, data: DataSpec) -> None:
    """Raise NnexpError, naming field and row, unless the tensors of a split agree with the specification.

    Args:
        where: names the dataset and the split, for the message.
        split: (x, y) or (x, y, lengths): x (N, *data.shape), y (N,) or (N, T), lengths (N,).
        data: specification of the dataset.
    """
    is_split = isinstance(split, tuple | list) and len(split) in (2, 3) and all(isinstance(t, Tensor) for t in split)
    if not is_split or any(t.ndim == 0 or len(t) != len(split[0]) for t in split) or not len(split[0]):
        raise NnexpError(f"{where}: it must be a tuple (x, y) or (x, y, lengths) of tensors with the same rows.")
    x, y, *lengths = split
    num_rows, rows = len(x), (len(x), data.max_length) if data.per_step else (len(x),)
    _check(where, "x", x, (num_rows, *data.shape), data.vocab if data.kind == "tokens" else None)
    if data.target == "class":
        _check(where, "y", y, rows, data.outputs)
    else:
        _check(where, "y", y, rows if data.outputs == 1 and y.ndim == len(rows) else (*rows, data.outputs), None)
    for each in lengths:
        _check(where, "lengths", each, (num_rows,), data.max_length + 1, least=1)


def _check(where: str, field: str, t: Tensor, shape: tuple[int, ...], bound: int | None, least: int = 0) -> None:
    """Raise NnexpError unless a tensor has this shape and holds integers below `bound`, or finite reals for None."""
    if tuple(t.shape) != shape:
        raise NnexpError(f"{where}: {field} has shape {tuple(t.shape)}; its spec requires {shape}.")
    required = f"integers from {least} to {bound - 1}" if bound is not None else "finite real numbers"
    is_real, is_integer = t.is_floating_point(), not t.is_floating_point() and not t.is_complex()
    if not (is_real if bound is None else is_integer):
        raise NnexpError(f"{where}: {field} is of {t.dtype}; its spec requires {required}.")
    if bound is None:
        row = _first_row(t, lambda part: ~part.isfinite())
    else:
        row = _first_row(t, lambda part: (part.long() < least) | (part.long() >= bound))
    if row is not None:
        raise NnexpError(f"{where}: {field}[{row}] {_wrong_values(t[row], bound, least)}; it must hold {required}.")


def _first_row(t: Tensor, is_wrong: Callable[[Tensor], Tensor]) -> int | None:
    """Return the first row with a wrong value, found in blocks: torch materialises overlapping rows."""
    stored = stored_numbers(t)
    if stored is not None and not any(is_wrong(part).any() for part in stored.split(BLOCK_BYTES // 8)):
        return None
    size = max(1, BLOCK_BYTES // max(1, math.prod(t.shape[1:]) * 8))
    for number, part in enumerate(t.split(size)):
        wrong = is_wrong(part).reshape(len(part), -1).any(1)
        if wrong.any():
            return number * size + int(wrong.nonzero()[0])
    return None


def _wrong_values(row: Tensor, bound: int | None, least: int) -> str:
    wrong = row[~row.isfinite()] if bound is None else row[(row.long() < least) | (row.long() >= bound)]
    text = ", ".join(str(value) for value in dict.fromkeys(wrong.flatten()[:3].tolist()))
    return f"is {text}" if row.ndim == 0 else f"contains {text}"


def check_attribute(where: str, dataset: Any, name: str) -> None:
    """Raise NnexpError where a split, which is sound, is another each time that it is read."""
    once, again = ([t.data_ptr() for t in getattr(dataset, name)] for _ in range(2))
    if once != again:
        raise NnexpError(f"{where}: it is made anew each time that it is read. Make it once, in __init__.")


def splits_in_training(dataset: Any) -> list[str]:
    """Return the names of the splits whose inputs lie, at least in part, in the memory of the training inputs."""
    first, last = _memory(dataset.train[0])
    ranges = {name: _memory(getattr(dataset, name)[0]) for name in ("val", "test")}
    return [name for name, (start, end) in ranges.items() if start < last and first < end]


def _memory(t: Tensor) -> tuple[int, int]:
    """Return the addresses of the first byte of a tensor and of the one after its last."""
    span = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + (span + 1) * t.element_size()
