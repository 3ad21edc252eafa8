"""Records as TensorBoard's own writer writes them, byte for byte."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from tensorboard.summary.writer.record_writer import RecordWriter

from nnexp.tensorboard.framing import crc32c, cut_to_whole, frame_records

VECTORS = [
    (b"123456789", 0xE3069283),  # the check value of CRC-32C
    (bytes(32), 0x8A9136AA),  # this and the next two: RFC 3720, appendix B.4
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
]


@pytest.mark.parametrize(("record", "expected"), VECTORS)
def test_the_checksum_is_the_published_one_whatever_is_beside_it(record: bytes, expected: int) -> None:
    assert crc32c([record]).tolist() == [expected]
    assert crc32c([bytes(1000), record, b"abcd"]).tolist()[1] == expected


@pytest.mark.parametrize(
    "lengths", [[], [4], [9, 9, 9], [5, 64, 65, 1023, 1024, 1025, 4], list(range(4, 300)), [4096, 30000, 2049, 2048, 7]]
)
def test_many_at_once_are_what_they_are_one_by_one(lengths: list[int]) -> None:
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
