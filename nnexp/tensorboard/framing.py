"""The frame of TensorBoard's event files: each record between its length and two checksums, many records at once.

The checksum is CRC-32C. TensorBoard's own writer computes it in Python, byte by byte, which costs more than all else
that is written of a run. It is linear, so here each byte's effect on it is looked up, and the effects are summed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnexp.base import open_regular

POLYNOMIAL = 0x82F63B78  # of Castagnoli, bits reversed
MASK = 0xA282EAD8  # added by the format, for a checksum of data that holds checksums is weak

BLOCK = 1024  # bytes that are looked up at once of a long record: tables of its whole length would be large
Words = NDArray[np.uint32]


def frame_records(records: Sequence[bytes]) -> bytes:
    """The bytes of these records in a file."""
    lengths = [struct.pack("<Q", len(record)) for record in records]
    parts = zip(lengths, _checksums(lengths), records, _checksums(records), strict=True)
    return b"".join([piece for part in parts for piece in part])


def cut_to_whole(path: Path) -> int:
    """Cut off a record that a kill has torn; gives the size then."""
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


def _checksums(records: Sequence[bytes]) -> list[bytes]:
    crc = crc32c(records)
    masked = ((crc >> 15) | (crc << 17)) + np.uint32(MASK)
    return [struct.pack("<I", value) for value in masked.tolist()]


def crc32c(records: Sequence[bytes]) -> Words:
    """(N,): the checksum of each of N records of at least 4 bytes."""
    heads = [record[: len(record) % BLOCK + BLOCK] if len(record) > 2 * BLOCK else record for record in records]
    crc = _at_once(heads)
    for number, (record, head) in enumerate(zip(records, heads, strict=True)):
        if len(record) > len(head):
            crc[number] = _go_on(crc[number], record[len(head) :])
    return crc


def _go_on(crc: np.uint32, rest: bytes) -> np.uint32:
    """The checksum of a record, from that of its beginning and its rest, a whole number of blocks.

    What a register holds has the effect of the same bits in the next four bytes.
    """
    effects = _effects(BLOCK)
    first = effects[:4].tolist()
    blocks = np.frombuffer(rest, np.uint8).reshape(-1, BLOCK)
    own = np.bitwise_xor.reduce(effects.ravel().take(blocks + 256 * np.arange(BLOCK)), axis=1)
    register = ~int(crc) & 0xFFFFFFFF
    for effect in own.tolist():
        low, high = register & 0xFFFF, register >> 16
        register = effect ^ first[0][low & 255] ^ first[1][low >> 8] ^ first[2][high & 255] ^ first[3][high >> 8]
    return np.uint32(~register & 0xFFFFFFFF)


def _at_once(records: Sequence[bytes]) -> Words:
    """(N,): the checksum of each of N short records of at least 4 bytes.

    Zeros before a record have no effect, so all are brought to one length; inverting the first four bytes is what
    the checksum starts with.
    """
    width = 1 << (max(map(len, records), default=4) - 1).bit_length()
    starts = np.array([width - len(record) for record in records], np.intp)
    padded = bytearray(b"".join([record.rjust(width, b"\0") for record in records]))
    table = np.frombuffer(padded, np.uint8).reshape(-1, width)
    table[np.arange(len(table))[:, None], starts[:, None] + np.arange(4)] ^= 255
    effects = _effects(width).ravel().take(table + 256 * np.arange(width))
    crc: Words = ~np.bitwise_xor.reduce(effects, axis=1)
    return crc


@cache
def _effects(width: int) -> Words:
    """(width, 256): what each value of a byte does to the checksum, by its place in a record of this length."""
    last: Words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        last = np.where(last & 1, (last >> 1) ^ np.uint32(POLYNOMIAL), last >> 1)
    rows = [last]
    for _ in range(width - 1):
        rows.append(last[rows[-1] & 255] ^ (rows[-1] >> 8))
    return np.stack(rows[::-1])
