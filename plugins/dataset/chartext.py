"""Next-character prediction, the task of Sutskever, Martens & Hinton (2011, ICML, "Generating text with recurrent
neural networks").

Departs from the paper in the text, by default a short one of our own; in the hidden state, which starts at zero in
every window; and in the vocabulary, which is every character that occurs.
"""

from codecs import getincrementaldecoder
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nnexp import DataSpec, File, Range, dataset

BLOCK = 1 << 16
TEXT = """\
a small network reads one letter at a time and keeps a few numbers in mind. those numbers are all it has left of \
what came before, so each letter must push something out to make room. what it remembers is what once helped it to \
guess, and what it forgets is everything else. at first it guesses badly: every letter seems as likely as any other. \
then it learns which letters are common, then which pairs, and after a while whole words come out of it, one by one. \
we ask the same question with many seeds, for one run alone may be lucky. a seed decides where the weights begin and \
in which order the windows are shown, and nothing more. if two runs differ in the seed only, the gap between them is \
the noise that every claim has to beat. so we keep the curve of each run, we draw all of them over each other, and \
we say how far they lie apart. a model that wins by less than that has not won. the gates of a larger cell are a way \
to hold on: one of them opens to let a value in, one keeps it safe, and one shows it when the time has come. shut the \
gate that keeps and the past is gone in a few steps; open it wide and a single letter can be felt a hundred steps \
later. this is easy to say and easy to measure, which is why we like it."""


@dataset
class CharText:
    """Next-character prediction: windows of a text, with targets shifted by one character.

    Nothing is random. The training rows are views of the text, so a text of several megabytes needs hardly more than
    one byte of memory per character.

    Attributes:
        vocab: the characters, in the order of their tokens.

    Args:
        generator: not used.
        path: a UTF-8 text file; null uses `text`. The job depends on the file's content, not on its name.
        text: the text itself; null uses a built-in text of 1,232 characters.
        length: characters in a window.
        held_out: fraction of the text, at its end, for validation and test; 0 evaluates on training windows.
        num_windows: maximum number of windows in the validation split, and in the test split.
    """

    def __init__(
        self,
        generator: torch.Generator,
        *,
        path: Annotated[str | None, File] = None,
        text: str | None = None,
        length: Annotated[int, Range(min=1)] = 40,
        held_out: Annotated[float, Range(min=0, lt=1)] = 0.1,
        num_windows: Annotated[int, Range(min=1)] = 256,
    ) -> None:
        if path is not None and text is not None:
            raise ValueError("dataset.path and dataset.text are both given. Set one of them to null.")
        self.vocab, tokens = _read(path, TEXT if text is None else text)
        size = len(self.vocab)
        num_held_out = round(held_out * len(tokens))
        training, rest = tokens[: len(tokens) - num_held_out], tokens[len(tokens) - num_held_out :]
        _check(training, "text" if held_out == 0 else "training part of the text", length)
        self.train = _windows(training, length, 1, len(training))
        if held_out == 0:
            self.val = self.test = _windows(training, length, 1, num_windows)
        else:
            half = len(rest) // 2
            advice = "a larger dataset.held_out, dataset.held_out=0, or "
            _check(rest[:half], "half of the text held out", length, advice)
            self.val, self.test = (_windows(part, length, length, num_windows) for part in (rest[:half], rest[half:]))
        self.spec = DataSpec(kind="tokens", shape=(length,), vocab=size, outputs=size, per_step=True, target="class")


def _check(part: Tensor, what: str, length: int, advice: str = "") -> None:
    """Raise ValueError where a part of the text is too short for one window and its targets."""
    if len(part) <= length:
        reason = f"the {what} has {len(part)} characters, dataset.length={length} needs at least {length + 1}"
        raise ValueError(f"{reason}. Set {advice}a smaller dataset.length.")


def _windows(part: Tensor, length: int, gap: int, max_windows: int) -> tuple[Tensor, Tensor]:
    """Return inputs (N, T) and targets (N, T), as views: evenly spaced windows, their starts at least `gap` apart."""
    last = len(part) - length - 1
    num_windows = min(max_windows, last // gap + 1)
    stride = last // (num_windows - 1) if num_windows > 1 else 1
    windows = part.unfold(0, length + 1, stride)[:num_windows]
    return windows[:, :-1], windows[:, 1:]


def _read(path: str | None, text: str) -> tuple[str, Tensor]:
    """Return the sorted characters of a text, and its tokens. Reads it twice, to hold only one block as a string."""
    characters: set[str] = set()
    num_characters = 0
    for block in _blocks(path, text):
        characters.update(block)
        num_characters += len(block)
    vocab = "".join(sorted(characters))
    codes = _codes(vocab)
    tokens = torch.empty(num_characters, dtype=_smallest_dtype(len(vocab)))
    start = 0
    for block in _blocks(path, text):
        tokens[start : start + len(block)] = torch.from_numpy(np.searchsorted(codes, _codes(block)))
        start += len(block)
    return vocab, tokens


def _smallest_dtype(vocab: int) -> torch.dtype:
    return torch.uint8 if vocab <= 256 else torch.int16 if vocab <= 1 << 15 else torch.int32


def _codes(text: str) -> npt.NDArray[np.uint32]:
    """Return the code points of a text."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _blocks(path: str | None, text: str) -> Iterator[str]:
    """Yield the text in blocks. Raises ValueError where the file cannot be read, or is not UTF-8."""
    if path is None:
        yield from (text[start : start + BLOCK] for start in range(0, len(text), BLOCK))
        return
    try:
        with Path(path).open("rb") as file:
            yield from _decode(file, path)
    except OSError as error:
        raise ValueError(f"dataset.path={path}: the file cannot be read: {error.strerror}.") from None


def _decode(file: BinaryIO, path: str) -> Iterator[str]:
    """Yield the decoded file, line endings unchanged, without a byte order mark."""
    decoder, num_read, is_end = getincrementaldecoder("utf-8-sig")(), 0, False
    while not is_end:
        block = file.read(BLOCK)
        num_read, is_end = num_read + len(block), not block
        try:
            yield decoder.decode(block, is_end)
        except UnicodeDecodeError as error:
            # The decoder may hold back bytes of an incomplete character: error.object begins with them.
            position = num_read - len(error.object) + error.start
            reason = f"byte {position} is not UTF-8 ({error.reason})"
            raise ValueError(f"dataset.path={path}: {reason}. Save the file as UTF-8.") from None
