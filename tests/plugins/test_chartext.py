"""The next character: windows and what follows them, the parts of a text, files, memory, and the word hello."""

import itertools
import math
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from contract.registry import plugin

from nnexp.data.seeding import seeded_generator

CharText = plugin("dataset", "chartext")
ALPHABET = "".join(map(chr, range(0x100, 0x100 + 400)))


def _made(**values):
    return CharText(seeded_generator(0, "data"), **values)


def _read(made, rows: torch.Tensor) -> list[str]:
    return ["".join(made.vocab[token] for token in row) for row in rows.tolist()]


def _starts(made, split, text: str) -> list[int]:
    return [text.index(window) for window in _read(made, split[0])]


def test_hello_is_one_window_of_four_symbols():
    made = _made(text="hello", length=4, held_out=0)
    assert made.vocab == "ehlo"
    for split in (made.train, made.val, made.test):
        assert [_read(made, rows) for rows in split] == [["hell"], ["ello"]]
    assert (made.spec.shape, made.spec.vocab, made.spec.outputs) == ((4,), 4, 4)


@pytest.mark.parametrize("held_out", [0.0, 0.3])
def test_the_training_rows_are_all_windows_of_the_training_text(held_out):
    text = "the quick brown fox jumps over the lazy dog"
    made = _made(text=text, length=5, held_out=held_out)
    kept = text[: len(text) - round(held_out * len(text))]
    assert _read(made, made.train[0]) == [kept[i : i + 5] for i in range(len(kept) - 5)]
    assert _read(made, made.train[1]) == [kept[i + 1 : i + 6] for i in range(len(kept) - 5)]


@pytest.mark.parametrize(("num_windows", "counts"), [(1, (1, 1)), (3, (3, 3)), (256, (19, 19))])
def test_the_held_out_windows_lie_in_the_two_halves_of_the_end_and_do_not_overlap(num_windows, counts):
    made = _made(text=ALPHABET, length=5, held_out=0.5, num_windows=num_windows)
    for split, low, high, count in ((made.val, 200, 300, counts[0]), (made.test, 300, 400, counts[1])):
        starts = _starts(made, split, ALPHABET)
        assert len(starts) == count
        assert low <= starts[0] <= starts[-1] < high - 5
        gaps = {b - a for a, b in itertools.pairwise(starts)}
        assert len(gaps) <= 1
        assert min(gaps, default=5) >= 5
        assert _read(made, split[1]) == [ALPHABET[start + 1 : start + 6] for start in starts]
    assert max(_starts(made, made.train, ALPHABET)) == 200 - 5 - 1


def test_with_nothing_held_out_the_other_splits_are_training_windows_up_to_their_number():
    made = _made(text=ALPHABET, length=5, held_out=0)
    assert _starts(made, made.train, ALPHABET) == [*range(395)]
    assert _starts(made, made.val, ALPHABET) == [*range(256)]
    assert _starts(_made(text=ALPHABET, length=5, held_out=0, num_windows=5), made.test, ALPHABET)[:2] == [0, 1]
    few = _made(text=ALPHABET, length=5, held_out=0, num_windows=3)
    assert _starts(few, few.test, ALPHABET) == [0, 197, 394]
    short = _made(text=ALPHABET[:20], length=5, held_out=0)
    assert all(torch.equal(a, b) for a, b in zip(short.train, short.val, strict=True))


def test_the_number_of_held_out_windows_does_not_change_the_training_rows():
    few, many = _made(num_windows=1, length=10), _made(num_windows=9, length=10)
    assert all(torch.equal(a, b) for a, b in zip(few.train, many.train, strict=True))
    assert [len(few.val[0]), len(many.val[0])] == [1, 6]


def test_our_own_text_is_plain_lower_case_english():
    made = _made()
    text = sys.modules[CharText.__module__].TEXT
    assert 1200 <= len(text) <= 1300
    assert set(made.vocab) <= set("abcdefghijklmnopqrstuvwxyz ,.:;")
    assert made.vocab == "".join(sorted(set(text)))
    assert _read(made, made.train[0][:1]) == [text[:40]]


@pytest.mark.parametrize(("vocab", "dtype"), [(256, torch.uint8), (257, torch.int16)])
def test_tokens_are_stored_in_the_smallest_type_that_holds_them(vocab, dtype):
    text = "".join(map(chr, range(0x4E00, 0x4E00 + vocab))) * 2
    made = _made(text=text, length=3, held_out=0)
    assert [t.dtype for t in made.train] == [dtype, dtype]
    assert made.train[0].unique().tolist() == list(range(vocab))
    assert _read(made, made.train[0][:4]) == [text[i : i + 3] for i in range(4)]


def test_rows_are_views_of_the_text_and_not_copies():
    made = _made()
    assert {t.untyped_storage().data_ptr() for split in (made.train, made.val, made.test) for t in split} == {
        made.train[0].untyped_storage().data_ptr()
    }


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 16])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_file_gives_what_its_text_gives(tmp_path, monkeypatch, block, mark):
    text = "naïve — €5, 😀\r\nand\n" * 9
    path = tmp_path / "a text.txt"
    path.write_bytes(mark + text.encode())
    monkeypatch.setattr(sys.modules[CharText.__module__], "BLOCK", block)
    from_file, given = _made(path=str(path), length=4), _made(text=text, length=4)
    assert from_file.vocab == given.vocab == "".join(sorted(set(text)))
    assert all(torch.equal(a, b) for a, b in zip(from_file.train, given.train, strict=True))


@pytest.mark.parametrize("block", [1, 4, 1 << 16])
@pytest.mark.parametrize(
    ("content", "position"),
    [(b"abc\xff", 3), (b"\xff", 0), (b"ab\xe2\x82", 2), ("€".encode() + b"\xe2\x28x", 3), (b"\xef\xbb\xbfab\xffc", 5)],
)
def test_a_file_that_is_not_utf_8_is_refused_with_the_byte(tmp_path, monkeypatch, content, position, block):
    (tmp_path / "bad.txt").write_bytes(content)
    monkeypatch.setattr(sys.modules[CharText.__module__], "BLOCK", block)
    with pytest.raises(ValueError, match=rf"bad\.txt: byte {position} is not UTF-8"):
        _made(path=str(tmp_path / "bad.txt"))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"path": "nowhere.txt"}, r"dataset\.path=nowhere\.txt: the file cannot be read: No such file"),
        ({"path": "."}, r"dataset\.path=\.: the file cannot be read: "),
        ({"path": "a.txt", "text": "hello"}, "both given"),
        ({"text": "hello", "held_out": 0}, "the text has 5 characters, dataset.length=40 needs at least 41"),
        ({"text": "hello", "length": 5, "held_out": 0}, "needs at least 6"),
        ({"text": "", "length": 1, "held_out": 0}, "the text has 0 characters"),
        ({"text": "hello" * 10, "length": 48, "held_out": 0.1}, "the training part of the text has 45 characters"),
        ({"text": "hello" * 10, "length": 4}, r"half of the text held out has 2 .* Set a larger dataset\.held_out"),
    ],
)
def test_what_gives_no_window_is_refused_with_the_reason(tmp_path, monkeypatch, values, reason):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=reason):
        _made(**values)


MEMORY = """
    import resource, sys, torch
    from nnexp import plugin
    from nnexp.data.batches import Batches
    from nnexp.data.split_checks import check_split
    from nnexp.data.splits import to_device
    from nnexp.data.seeding import seeded_generator

    def peak():
        if sys.platform == "linux":  # where ru_maxrss begins at the peak of the process that started this one
            lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
            return int(lines["VmHWM"].split()[0]) * 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def take_batches(path):
        made = plugin("dataset", "chartext")(seeded_generator(0, "data"), path=path)
        check_split("train", made.train, made.spec)
        split = to_device(made.train, torch.float32, torch.device("cpu"))
        return len(split[0]), sum(int(x.sum()) + int(y.sum()) for x, y in Batches(split, 32, 0).take(1, 50))

    torch.set_num_threads(1)
    take_batches(sys.argv[1])
    before = peak()
    print(take_batches(sys.argv[2])[0], peak() - before)
"""


@pytest.fixture
def texts(tmp_path) -> list[Path]:
    """A small text, and one of 5 MB."""
    tokens = torch.randint(97, 123, (5_000_000,), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    paths = [tmp_path / "small.txt", tmp_path / "large.txt"]
    for path, size in zip(paths, (50_000, 5_000_000), strict=True):
        path.write_bytes(tokens[:size].numpy().tobytes())
    return paths


def _measured(script: str, *arguments: object) -> list[int]:
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
def test_five_megabytes_of_text_need_less_than_twice_their_size(texts):
    rows, growth = _measured(MEMORY, *texts)
    assert rows == 4_500_000 - 40
    assert growth < 2 * 5_000_000


@pytest.mark.parametrize("seed", range(5))
def test_33_weights_learn_to_spell_hello(make_lane, seed):
    lane = make_lane("experiment=hello", f"seed={seed}")
    assert lane.num_weights == 33
    losses = lane.advance(300).losses
    assert 4 * losses[0] == pytest.approx(4 * math.log(4), abs=1.5)
    assert 4 * losses[-1] < 0.01
    predicted = lane.module(lane.splits["train"][0]).argmax(-1)
    assert torch.equal(predicted, lane.splits["train"][1].long())
