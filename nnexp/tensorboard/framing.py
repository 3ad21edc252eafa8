"""The frame of TensorBoard's event files: each record between its length and two checksums, which are CRC-32C.

TensorBoard's own writer computes them in Python, byte by byte, which costs more than all else that is written of a run.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path

import google_crc32c

from nnexp.base import open_regular

MASK = 0xA282EAD8  # added by the format: a CRC of data that contains CRCs is weak


def frame_records(records: Sequence[bytes]) -> bytes:
    """Return the bytes of these records in a file."""
    parts = []
    for record in records:
        length = struct.pack("<Q", len(record))
        parts += [length, masked_crc32c(length), record, masked_crc32c(record)]
    return b"".join(parts)


def cut_to_whole(path: Path) -> int:
    """Cut off a record that is not whole, as a kill leaves it; return the size of the file."""
    with open_regular(path) as file:
        total, end = file.seek(0, os.SEEK_END), 0
        while True:
            file.seek(end)
            head = file.read(8)
            next_end = end + 16 + struct.unpack("<Q", head)[0] if len(head) == 8 else total + 1
            if next_end > total:
                file.truncate(end)
                return end
            end = next_end


def masked_crc32c(data: bytes) -> bytes:
    """Return the CRC-32C of data as the format stores it: rotated by 15 bits, plus a constant, in 4 bytes."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF)
