"""Binary sequences, positive where a pattern such as 1,0,1 occurs at consecutive positions. A task of our own.

A random sequence of any length but the shortest holds the pattern almost surely (0.84 of those of length 16), so that
drawing until both classes are full never ends. Instead the matching automaton of the pattern (Knuth, Morris & Pratt,
1977, doi:10.1137/0206024) counts how many sequences of each class begin with what has been drawn so far, and each
position is drawn in that proportion: every sequence of a class is equally likely, at any length.
"""

import warnings
from typing import Annotated

import torch
from torch import Tensor

from nnexp import DataSpec, Range, dataset


@dataset
class Pattern:
    """Sequences of one-hot bits, half of them with the pattern and half without.

    Args:
        generator: the source of every draw.
        length: positions of a sequence.
        pattern: the bits that must stand side by side.
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
        num_train: Annotated[int, Range(min=2)] = 1024,
        num_val: Annotated[int, Range(min=2)] = 512,
        num_test: Annotated[int, Range(min=2)] = 1024,
    ) -> None:
        if not 0 < len(pattern) <= length:
            raise ValueError(f"the pattern has {len(pattern)} bits, and sequences have {length}.")
        self.spec = DataSpec(kind="sequence", shape=(length, 2), target="class", outputs=2)
        classes = [_Class(pattern, length, positive, generator) for positive in (False, True)]
        held_out = num_test + num_val
        short = [c for c in classes if c.size < 1.1 * (held_out // 2 + 1)]
        # The training rows come last, so that their number changes neither of the other splits.
        seen: set[bytes] | None = None if short else set()
        self.test = _split(classes, num_test, pattern, generator, seen, add=True)
        self.val = _split(classes, num_val, pattern, generator, seen, add=True)
        self.train = _split(classes, num_train, pattern, generator, seen, add=False)
        if short:
            warnings.warn(_shortage(short[0], held_out, self.test, self.train), stacklevel=2)


class _Class:
    """All sequences of one class, counted by what they begin with."""

    def __init__(self, pattern: tuple[int, ...], length: int, positive: bool, generator: torch.Generator) -> None:
        self.positive, self.length, self.generator = positive, length, generator
        self.next_state = _automaton(pattern)
        accepting = len(pattern)
        counts = [int((state == accepting) == positive) for state in range(accepting + 1)]
        self.chance_of_one = torch.zeros(length, accepting + 1, dtype=torch.float64)
        for position in reversed(range(length)):
            ones = [counts[one] for _, one in self.next_state]
            counts = [counts[zero] + counts[one] for zero, one in self.next_state]
            self.chance_of_one[position] = torch.tensor([o / (c or 1) for o, c in zip(ones, counts, strict=True)])
        self.size = counts[0]

    def draw(self, num_rows: int) -> Tensor:
        """(num_rows, length) bits, each sequence of the class equally likely."""
        follow = torch.tensor(self.next_state)
        state = torch.zeros(num_rows, dtype=torch.long)
        bits = []
        for position in range(self.length):
            uniform = torch.rand(num_rows, dtype=torch.float64, generator=self.generator)
            bits.append((uniform < self.chance_of_one[position, state]).long())
            state = follow[state, bits[-1]]
        return torch.stack(bits, dim=1)


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
    pattern: tuple[int, ...],
    generator: torch.Generator,
    seen: set[bytes] | None,
    add: bool,
) -> tuple[Tensor, Tensor]:
    """Rows of both classes in random order, (N, T, 2) and labels (N,); none of them in `seen`."""
    sizes = (num_rows - num_rows // 2, num_rows // 2)
    bits = torch.cat([_unseen(c, size, seen, add) for c, size in zip(classes, sizes, strict=True)])
    bits = bits[torch.randperm(num_rows, generator=generator)]
    windows = bits.unfold(1, len(pattern), 1)
    labels = (windows == torch.tensor(pattern)).all(-1).any(-1).long()
    assert labels.sum() == sizes[1]
    return torch.nn.functional.one_hot(bits, 2).float(), labels


def _unseen(source: _Class, num_rows: int, seen: set[bytes] | None, add: bool) -> Tensor:
    if seen is None:
        return source.draw(num_rows)
    rows: list[Tensor] = []
    while len(rows) < num_rows:
        for row in source.draw(num_rows).to(torch.uint8):
            key = row.numpy().tobytes()
            if key not in seen and len(rows) < num_rows:
                rows.append(row)
                if add:
                    seen.add(key)
    return torch.stack(rows).long()


def _shortage(short: _Class, held_out: int, test: tuple[Tensor, ...], train: tuple[Tensor, ...]) -> str:
    known = {row.numpy().tobytes() for row in train[0]}
    shared = sum(row.numpy().tobytes() in known for row in test[0]) / len(test[0])
    which = "with" if short.positive else "without"
    few = f"there are only {short.size} sequences of length {short.length} {which} the pattern"
    return f"{few}, too few for {held_out} distinct rows held out: {shared:.0%} of the test rows are training rows too."
