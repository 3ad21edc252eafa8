"""Binary sequences, positive where a pattern such as 1,0,1 occurs at consecutive positions. A task of our own.

A random sequence of any length but the shortest holds the pattern almost surely (0.84 of those of length 16), so that
drawing until both classes are full never ends. Instead the matching automaton of the pattern (Knuth, Morris & Pratt,
1977, doi:10.1137/0206024) counts how many sequences of each class begin with what has been drawn so far, and each
position is drawn in that proportion: every sequence of a class is equally likely, at any length.

With `window` the pattern stands at the start, and what follows is of other symbols: what must be told apart stays the
same, and only how long it must be kept grows with the length. With `min_length` rows end at different places.
"""

import warnings
from collections import Counter
from typing import Annotated

import torch
from torch import Tensor

from nnexp import DataSpec, Range, dataset

PADDING = 4  # the symbols: two bits, two that may follow a window, and the end of a short row


@dataset
class Pattern:
    """Sequences of one-hot bits, half of them with the pattern and half without.

    Args:
        generator: the source of every draw.
        length: positions of a sequence.
        pattern: the bits that must stand side by side.
        window: bits at the start, the only ones; all later positions are random symbols of two others; null is length.
        min_length: the shortest row, where rows are of random length; they are padded with zeros. Null is length.
        num_train: training rows.
        num_val: validation rows.
        num_test: test rows.
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
        # The most rows of one class and one length: split evenly, and each of two splits rounded up.
        most = -(-(held_out // 2 + 1) // num_lengths) + (num_lengths > 1)
        short = [c for c in classes if c.sizes[num_lengths - 1] < 1.1 * most]
        # The training rows come last, so that their number changes neither of the other splits.
        seen: set[bytes] | None = None if short else set()
        self.test = _split(classes, num_test, min_length, generator, seen, add=True)
        self.val = _split(classes, num_val, min_length, generator, seen, add=True)
        self.train = _split(classes, num_train, min_length, generator, seen, add=False)
        if short:
            rarest = min(short, key=lambda c: c.sizes[num_lengths - 1])
            warnings.warn(_shortage(rarest, num_lengths, held_out, self.test, self.train), stacklevel=2)


def _check(length: int, pattern: tuple[int, ...], window: int | None, min_length: int | None) -> None:
    if window is not None and min_length is not None:
        reason = "dataset.window asks how far back the pattern can be, which rows of different lengths would blur"
        raise ValueError(f"{reason}. Set dataset.window or dataset.min_length to null.")
    if not 0 < len(pattern) <= length:
        raise ValueError(f"the pattern has {len(pattern)} bits, and sequences have {length}.")
    for name, value in (("window", window), ("min_length", min_length)):
        if value is not None and not len(pattern) <= value <= length:
            bounds = f"the pattern has {len(pattern)} bits, and dataset.length is {length}"
            raise ValueError(f"dataset.{name}={value}: {bounds}. Set it to a number from the one to the other.")


class _Class:
    """All sequences of one class, counted by what they begin with: `length` bits, `num_after` other symbols."""

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
        self.sizes = sizes[::-1]  # of the whole length, of one position less, ...
        self.size = self.sizes[0]

    def draw(self, lengths: Tensor) -> Tensor:
        """Lengths (N,) -> (N, T) symbols, each sequence of the class and of the row's length equally likely."""
        num_rows = len(lengths)
        follow = torch.tensor(self.next_state)
        state = torch.zeros(num_rows, dtype=torch.long)
        symbols = []
        for position in range(self.length):
            uniform = torch.rand(num_rows, dtype=torch.float64, generator=self.generator)
            same_rest = (position + self.length - lengths).clamp(max=self.length - 1)  # as many positions are to come
            bit = (uniform < self.chance_of_one[same_rest, state]).long()
            state = follow[state, bit]
            symbols.append(bit.masked_fill(position >= lengths, PADDING))
        if self.num_after:
            symbols += torch.randint(2, 4, (self.num_after, num_rows), generator=self.generator).unbind()
        return torch.stack(symbols, dim=1)


def _automaton(pattern: tuple[int, ...]) -> list[tuple[int, int]]:
    """For each number of matched bits, the number matched after a 0 and after a 1; a full match stays."""
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
    seen: set[bytes] | None,
    add: bool,
) -> tuple[Tensor, ...]:
    """Rows of both classes in random order, (N, T, C), labels (N,) and perhaps lengths (N,); none of them in `seen`."""
    sizes = (num_rows - num_rows // 2, num_rows // 2)
    lengths = _lengths(sizes[0], classes[0].length, min_length, generator)
    drawn = [_unseen(c, lengths[:size], seen, add) for c, size in zip(classes, sizes, strict=True)]
    symbols = torch.cat(drawn)[torch.randperm(num_rows, generator=generator)]
    pattern = torch.tensor(classes[0].pattern)
    labels = (symbols.unfold(1, len(pattern), 1) == pattern).all(-1).any(-1).long()
    assert labels.sum() == sizes[1]
    x = torch.nn.functional.one_hot(symbols, PADDING + 1)[..., : classes[0].num_symbols].float()
    return (x, labels) if min_length is None else (x, labels, (symbols != PADDING).sum(1))


def _lengths(num_rows: int, longest: int, shortest: int | None, generator: torch.Generator) -> Tensor:
    """Lengths (N,), each as frequent as any other, and the same ones for both classes, so that they tell nothing."""
    if shortest is None:
        return torch.full((num_rows,), longest)
    order = torch.randperm(longest - shortest + 1, generator=generator)
    return shortest + order[torch.arange(num_rows) % len(order)]


def _unseen(source: _Class, lengths: Tensor, seen: set[bytes] | None, add: bool) -> Tensor:
    """Symbols (N, T) of as many rows of each length as `lengths` (N,) asks for."""
    if seen is None:
        return source.draw(lengths)
    rows: list[Tensor] = []
    wanted = Counter(lengths.tolist())
    while len(rows) < len(lengths):
        for row, length in zip(source.draw(lengths).to(torch.uint8), lengths.tolist(), strict=True):
            key = row.numpy().tobytes()
            if key not in seen and wanted[length]:
                wanted[length] -= 1
                rows.append(row)
                if add:
                    seen.add(key)
    return torch.stack(rows).long()


def _shortage(
    short: _Class, num_lengths: int, held_out: int, test: tuple[Tensor, ...], train: tuple[Tensor, ...]
) -> str:
    known = {row.numpy().tobytes() for row in train[0]}
    shared = sum(row.numpy().tobytes() in known for row in test[0]) / len(test[0])
    which = "with" if short.positive else "without"
    length = short.length + short.num_after - (num_lengths - 1)
    few = f"there are only {short.sizes[num_lengths - 1]} sequences of length {length} {which} the pattern"
    return f"{few}, too few for {held_out} distinct rows held out: {shared:.0%} of the test rows are training rows too."
