"""Binary sequences, positive where a pattern such as 1,0,1 occurs at consecutive positions. A task of our own.

Almost every long random sequence contains the pattern (84 % at length 16), so rejection sampling of the negative class
does not scale. Instead the matching automaton of the pattern (Knuth, Morris & Pratt, 1977, doi:10.1137/0206024) counts
the sequences of each class that continue a given prefix, and each bit is drawn in that proportion: every sequence of a
class is equally likely, at any length.

With `window` the pattern can only occur at the start, and the later positions hold two other symbols: `length` then
changes how long the answer must be remembered, and nothing else. With `min_length` rows have different lengths.
"""

import warnings
from collections import Counter
from typing import Annotated

import torch
from torch import Tensor

from nnexp import DataSpec, Range, dataset

PADDING = 4  # symbols: 0 and 1 are bits, 2 and 3 may follow a window, 4 pads short rows


@dataset
class Pattern:
    """One-hot binary sequences, classified by whether they contain a bit pattern; half of them do.

    Args:
        generator: source of all random numbers.
        length: positions in a sequence.
        pattern: consecutive bits of the pattern.
        window: number of bits at the start; later positions hold two other symbols at random. Null: all are bits.
        min_length: shortest row; lengths are random, and rows are padded with zeros. Null: all rows have `length`.
        num_train: rows in the training split.
        num_val: rows in the validation split.
        num_test: rows in the test split.
    """

    def __init__(
        self,
        generator: torch.Generator,
        *,
        length: Annotated[int, Range(min=1)] = 16,
        pattern: tuple[Annotated[int, Range(min=0, max=1)], ...] = (1, 0, 1),
        window: Annotated[int, Range(min=1)] | None = None,
        min_length: Annotated[int, Range(min=1)] | None = None,
        num_train: Annotated[int, Range(min=2)] = 1024,
        num_val: Annotated[int, Range(min=2)] = 512,
        num_test: Annotated[int, Range(min=2)] = 1024,
    ) -> None:
        _check(length, pattern, window, min_length)
        num_bits, num_after = (length, None) if window is None else (window, length - window)
        classes = [_Class(pattern, num_bits, positive, generator, num_after) for positive in (False, True)]
        self.spec = DataSpec(kind="sequence", shape=(length, classes[0].num_symbols), target="class", outputs=2)
        num_lengths = 1 if min_length is None else length - min_length + 1
        held_out = num_test + num_val
        # Upper bound of the held-out rows of one class and one length, each of the two splits rounded up.
        max_rows = -(-(held_out // 2 + 1) // num_lengths) + (num_lengths > 1)
        scarce = [c for c in classes if c.sizes[num_lengths - 1] < 1.1 * max_rows]
        # Training rows are drawn last, so that num_train does not change the other splits.
        held_out_rows: set[bytes] | None = None if scarce else set()
        self.test = _split(classes, num_test, min_length, generator, held_out_rows, add=True)
        self.val = _split(classes, num_val, min_length, generator, held_out_rows, add=True)
        self.train = _split(classes, num_train, min_length, generator, held_out_rows, add=False)
        if scarce:
            rarest = min(scarce, key=lambda c: c.sizes[num_lengths - 1])
            warnings.warn(_shortage(rarest, num_lengths, held_out, self.test, self.train), stacklevel=2)


def _check(length: int, pattern: tuple[int, ...], window: int | None, min_length: int | None) -> None:
    """Raise ValueError where the lengths do not fit the pattern or each other."""
    if window is not None and min_length is not None:
        reason = "dataset.window and dataset.min_length are both set: each controls how far back the pattern can be"
        raise ValueError(f"{reason}. Set dataset.window or dataset.min_length to null.")
    if not 0 < len(pattern) <= length:
        raise ValueError(f"dataset.pattern has {len(pattern)} bits: set at least 1, at most dataset.length={length}.")
    for name, value in (("window", window), ("min_length", min_length)):
        if value is not None and not len(pattern) <= value <= length:
            reason = f"it must lie between the pattern's {len(pattern)} bits and dataset.length={length}"
            raise ValueError(f"dataset.{name}={value}: {reason}.")


class _Class:
    """Uniform distribution over the sequences of one class: `length` bits, then `num_after` other symbols.

    Attributes:
        chance_of_one: (length, states of the automaton): probability that the next bit is 1.
        sizes: number of sequences with the full length, with one bit less, and so on.
    """

    def __init__(
        self,
        pattern: tuple[int, ...],
        length: int,
        positive: bool,
        generator: torch.Generator,
        num_after: int | None = None,
    ) -> None:
        self.pattern, self.positive, self.length, self.generator = pattern, positive, length, generator
        self.num_symbols, self.num_after = (2, 0) if num_after is None else (4, num_after)
        self.next_state = _automaton(pattern)
        accepting = len(pattern)
        counts = [int((state == accepting) == positive) for state in range(accepting + 1)]
        self.chance_of_one = torch.zeros(length, accepting + 1, dtype=torch.float64)
        sizes = []
        for position in reversed(range(length)):
            ones = [counts[one] for _, one in self.next_state]
            counts = [counts[zero] + counts[one] for zero, one in self.next_state]
            self.chance_of_one[position] = torch.tensor([o / (c or 1) for o, c in zip(ones, counts, strict=True)])
            sizes.append(counts[0] << self.num_after)
        self.sizes = sizes[::-1]

    def draw(self, lengths: Tensor) -> Tensor:
        """Draw symbols (N, T) for lengths (N,): all sequences of the class and of a row's length are equally likely."""
        num_rows = len(lengths)
        follow = torch.tensor(self.next_state)
        state = torch.zeros(num_rows, dtype=torch.long)
        symbols = []
        for position in range(self.length):
            uniform = torch.rand(num_rows, dtype=torch.float64, generator=self.generator)
            remaining = (position + self.length - lengths).clamp(max=self.length - 1)  # where as many bits are to come
            bit = (uniform < self.chance_of_one[remaining, state]).long()
            state = follow[state, bit]
            symbols.append(bit.masked_fill(position >= lengths, PADDING))
        if self.num_after:
            symbols += torch.randint(2, 4, (self.num_after, num_rows), generator=self.generator).unbind()
        return torch.stack(symbols, dim=1)


def _automaton(pattern: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return, by number of matched bits, the number matched after a 0 and after a 1; a full match is absorbing."""
    states = []
    for matched in range(len(pattern)):
        after = []
        for bit in (0, 1):
            text = (*pattern[:matched], bit)
            after.append(next(k for k in range(len(text), -1, -1) if text[len(text) - k :] == pattern[:k]))
        states.append((after[0], after[1]))
    return [*states, (len(pattern), len(pattern))]


def _split(
    classes: list[_Class],
    num_rows: int,
    min_length: int | None,
    generator: torch.Generator,
    held_out: set[bytes] | None,
    add: bool,
) -> tuple[Tensor, ...]:
    """Return rows (N, T, C) of both classes in random order, labels (N,) and, with `min_length`, lengths (N,).

    Args:
        held_out: rows that are excluded, as bytes; None excludes none, and allows duplicates.
        add: add the rows to `held_out`.
    """
    sizes = (num_rows - num_rows // 2, num_rows // 2)
    lengths = _lengths(sizes[0], classes[0].length, min_length, generator)
    drawn = [_draw_new(c, lengths[:size], held_out, add) for c, size in zip(classes, sizes, strict=True)]
    symbols = torch.cat(drawn)[torch.randperm(num_rows, generator=generator)]
    pattern = torch.tensor(classes[0].pattern)
    labels = (symbols.unfold(1, len(pattern), 1) == pattern).all(-1).any(-1).long()
    assert labels.sum() == sizes[1]
    x = torch.nn.functional.one_hot(symbols, PADDING + 1)[..., : classes[0].num_symbols].float()
    return (x, labels) if min_length is None else (x, labels, (symbols != PADDING).sum(1))


def _lengths(num_rows: int, longest: int, shortest: int | None, generator: torch.Generator) -> Tensor:
    """Draw lengths (N,), all equally frequent; both classes use the same ones, so lengths do not predict the class."""
    if shortest is None:
        return torch.full((num_rows,), longest)
    order = torch.randperm(longest - shortest + 1, generator=generator)
    return shortest + order[torch.arange(num_rows) % len(order)]


def _draw_new(source: _Class, lengths: Tensor, held_out: set[bytes] | None, add: bool) -> Tensor:
    """Draw symbols (N, T) that are not in `held_out`, with as many rows of each length as `lengths` (N,) has."""
    if held_out is None:
        return source.draw(lengths)
    rows: list[Tensor] = []
    wanted = Counter(lengths.tolist())
    while len(rows) < len(lengths):
        for row, length in zip(source.draw(lengths).to(torch.uint8), lengths.tolist(), strict=True):
            key = row.numpy().tobytes()
            if key not in held_out and wanted[length]:
                wanted[length] -= 1
                rows.append(row)
                if add:
                    held_out.add(key)
    return torch.stack(rows).long()


def _shortage(
    scarce: _Class, num_lengths: int, held_out: int, test: tuple[Tensor, ...], train: tuple[Tensor, ...]
) -> str:
    """Describe the class with too few sequences, and the fraction of test rows that are training rows."""
    training_rows = {row.numpy().tobytes() for row in train[0]}
    shared = sum(row.numpy().tobytes() in training_rows for row in test[0]) / len(test[0])
    which = "with" if scarce.positive else "without"
    length = scarce.length + scarce.num_after - (num_lengths - 1)
    reason = f"there are only {scarce.sizes[num_lengths - 1]} sequences of length {length} {which} the pattern"
    return f"{reason}, too few for {held_out} distinct held-out rows: {shared:.0%} of test rows are training rows too."
