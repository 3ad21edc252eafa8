"""Records as TensorBoard's own writer writes them, byte for byte."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from pathlib import Path

import google_crc32c
import pytest
from tensorboard.summary.writer.record_writer import RecordWriter

from nnexp.tensorboard.framing import cut_to_whole, frame_records, masked_crc32c

VECTORS = [
    (b"123456789", 0xE3069283),  # the check value of CRC-32C
    (bytes(32), 0x8A9136AA),  # this and the next two: RFC 3720, appendix B.4
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
]


@pytest.mark.parametrize(("record", "expected"), VECTORS)
def test_the_checksum_is_the_published_one_below_the_mask(record: bytes, expected: int) -> None:
    rotated = (int.from_bytes(masked_crc32c(record), "little") - 0xA282EAD8) % 2**32
    assert (rotated >> 17 | rotated << 15) % 2**32 == expected


def test_checksums_are_computed_in_c() -> None:
    assert google_crc32c.implementation == "c"


def test_without_the_c_extension_there_is_a_warning_and_the_same_checksum() -> None:
    code = "import sys; sys.modules['google_crc32c.cext'] = None\n"
    code += "from nnexp.tensorboard.framing import masked_crc32c; print(masked_crc32c(b'123456789').hex())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == masked_crc32c(b"123456789").hex()
    assert "RuntimeWarning: As the c extension couldn't be imported" in done.stderr


@pytest.mark.parametrize("lengths", [[], [0], [4], [9, 9, 9], list(range(4, 300)), [4096, 30000, 2049, 2048, 7]])
def test_records_are_framed_as_by_tensorboard(lengths: list[int]) -> None:
    draw = random.Random(0)
    records = [draw.randbytes(length) for length in lengths]
    expected = io.BytesIO()
    writer = RecordWriter(expected)
    for record in records:
        writer.write(record)
    assert frame_records(records) == expected.getvalue()


def test_of_a_file_that_a_kill_tore_anywhere_the_whole_records_are_kept(tmp_path: Path) -> None:
    first, second = frame_records([b"first record"]), frame_records([b"and the second"])
    path = tmp_path / "events"
    for size in range(len(first + second) + 1):
        path.write_bytes((first + second)[:size])
        whole = first + second if size == len(first + second) else first if size >= len(first) else b""
        assert cut_to_whole(path) == len(whole)
        assert path.read_bytes() == whole
