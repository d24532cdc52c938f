# SPDX-License-Identifier: MIT
"""The journal: what is packed comes back, and a hostile block is refused before it costs much."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.core.journal import Block, pack_block, read_blocks
from ftpatch.errors import InputError
from tests.core.test_changes import Row, changes, rows_of

PATH = Path("image")
TRAILER = "<8sIIQQQQII"
SIZE = struct.calcsize(TRAILER)
FILE = bytes(range(256)) * 4
ROWS: list[Row] = [
    (16, b"\x90" * 5, b"\xe8\1\2\3\4", 0xFFFF_FFFF_8100_0000),
    (100, b"\0" * 8, b"\1" * 8, 0xFFFF_FFFF_8100_0000),
    (300, b"ab", b"cd", 1),
]


def read(data: bytes) -> list[Block]:
    """The blocks of these bytes."""
    return read_blocks(PATH, np.frombuffer(data, np.uint8))


def block(**fields: int) -> bytes:
    """A block, with fields of its trailer replaced and a CRC that is right again."""
    names = ["version", "count", "length", "cut", "packed", "unpacked"]
    packed = pack_block(changes(ROWS), len(FILE))
    payload, trailer = packed[:-SIZE], packed[-SIZE:]
    magic, *values, _, _ = struct.unpack(TRAILER, trailer)
    values = [fields.get(name, value) for name, value in zip(names, values, strict=True)]
    head = struct.pack(TRAILER[:-2], magic, *values)
    return payload + head + struct.pack("<II", zlib.crc32(head, zlib.crc32(payload)), 0)


def raw_block(
    raw: bytes, count: int, length: int = len(FILE), unpacked: int | None = None
) -> bytes:
    """A block around a payload that no ftpatch packs."""
    payload = zlib.compress(raw)
    size = len(raw) if unpacked is None else unpacked
    head = struct.pack(TRAILER[:-2], b"\x7fftpatch", 1, count, length, 0, len(payload), size)
    return payload + head + struct.pack("<II", zlib.crc32(head, zlib.crc32(payload)), 0)


def fixed(offsets: list[int], widths: list[int]) -> bytes:
    """The columns of Changes at these places, without their bytes."""
    steps = np.diff(np.array(offsets, np.int64), prepend=np.int64(0))
    n = len(offsets)
    return steps.astype("<i8").tobytes() + bytes(8 * n) + struct.pack(f"<{n}H", *widths) + bytes(n)


def test_a_block_comes_back() -> None:
    (found,) = read(FILE + pack_block(changes(ROWS), len(FILE)))
    assert rows_of(found.changes) == ROWS
    assert (found.length, found.cut) == (len(FILE), b"")
    assert found.end == len(FILE) + len(pack_block(changes(ROWS), len(FILE)))


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.integers(0, 30)), max_size=9),
    st.binary(max_size=40),
)
def test_any_block_comes_back(parts: list[tuple[bytes, int]], cut: bytes) -> None:
    rows, at = [], 0
    for old, gap in parts:
        rows.append((at + gap, old, old[::-1], at))
        at += gap + len(old)
    data = FILE[: len(FILE) - len(cut)] + pack_block(changes(rows), len(FILE), cut)
    (found,) = read(data)
    assert rows_of(found.changes) == rows and found.cut == cut


def test_several_blocks_come_latest_first() -> None:
    data = FILE
    for i in range(3):
        data += pack_block(changes(ROWS[: i + 1]), len(data))
    assert [len(found.changes) for found in read(data)] == [3, 2, 1]
    assert next(iter(read(data))).end == len(data)
    assert read(data)[-1].length == len(FILE)


def test_without_a_journal_there_is_none() -> None:
    assert read(FILE) == [] and read(b"x") == [] and read(bytes(SIZE)) == []


@pytest.mark.parametrize("cut", range(1, SIZE + 8, 3))
def test_a_torn_block_is_ignored(cut: int) -> None:
    assert read((FILE + block())[:-cut]) == []


def test_bytes_behind_a_block_hide_it() -> None:
    assert read(FILE + block() + b"\0") == []


def test_any_flipped_bit_of_a_block_is_noticed() -> None:
    whole = block()
    for at in range(len(whole) - 4):  # the last four bytes are zero and have no meaning
        broken = bytearray(FILE + whole)
        broken[len(FILE) + at] ^= 1 << at % 8
        assert read(bytes(broken)) == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (block(version=4), "version 4"),
        (block(version=2), "inconsistent lengths"),
        (block(length=1 << 40), "longer than the file"),
        (block(length=len(FILE) + 1), "longer than the file"),
        (block(cut=len(FILE) + 1), "longer than the file"),
        (block(cut=1), "inconsistent lengths"),
        (block(count=4), "inconsistent lengths"),
        (block(count=2), "inconsistent lengths"),
        (block(count=(1 << 32) - 1), "inconsistent lengths"),
        (block(unpacked=1 << 40), "more than the file allows"),
        (block(unpacked=5000), "stated size"),
        (block(unpacked=8), "stated size"),
        (raw_block(fixed([2000], [4]) + bytes(8), 1), "outside of the file"),
        (raw_block(fixed([-1], [4]) + bytes(8), 1), "outside of the file"),
        (raw_block(fixed([1 << 62], [4]) + bytes(8), 1), "outside of the file"),
        (raw_block(fixed([1022], [4]) + bytes(8), 1), "outside of the file"),
        (raw_block(fixed([8, 10], [4, 4]) + bytes(16), 2), "overlap"),
        (raw_block(fixed([10, 8], [1, 1]) + bytes(4), 2), "overlap"),
        (raw_block(fixed([8], [4]) + bytes(7), 1), "inconsistent lengths"),
        (raw_block(fixed([8], [4]) + bytes(9), 1), "inconsistent lengths"),
    ],
)
def test_a_block_that_contradicts_itself_is_an_error(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read(FILE + data)
    assert caught.value.path == str(PATH) and "journal" in caught.value.reason


def test_a_payload_that_is_not_zlib_is_an_error() -> None:
    payload = b"not compressed"
    head = struct.pack(TRAILER[:-2], b"\x7fftpatch", 1, 0, len(FILE), 0, len(payload), 8)
    seal = struct.pack("<II", zlib.crc32(head, zlib.crc32(payload)), 0)
    with pytest.raises(InputError, match="journal"):
        read(FILE + payload + head + seal)


def test_a_bomb_is_not_unpacked() -> None:
    """64 MB of zeros in 64 KB: refused by its stated size, and by the size of the file."""
    bomb = bytes(64 << 20)
    with pytest.raises(InputError, match="more than the file allows"):
        read(FILE + raw_block(bomb, 0))
    with pytest.raises(InputError, match="stated size"):
        read(FILE + raw_block(bomb, 0, unpacked=1000))


def test_widths_of_no_command_do_not_allocate() -> None:
    """One wide Change and many narrow ones would make a matrix of gigabytes."""
    size = 1 << 20
    count = 100_000
    offsets = [0, *range(0xFFFF, 0xFFFF + count)]
    raw = fixed(offsets, [0xFFFF] + [1] * count) + bytes(2 * (0xFFFF + count))
    with pytest.raises(InputError, match="widths"):
        read(bytes(size) + raw_block(raw, count + 1, length=size))


def test_a_broken_block_before_a_good_one_is_an_error_too() -> None:
    data = FILE + block(version=9)
    with pytest.raises(InputError, match="version 9"):
        read(data + pack_block(changes(ROWS), len(data)))
