# SPDX-License-Identifier: MIT
"""Streams of every kind: whole, cut short, damaged, lying, too large; and what modules become."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import zlib
from collections.abc import Callable

import lz4.block
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ftpatch.errors import InputError
from ftpatch.image.compression import kind_of, pack, unpack
from tests.support.sampling import scaled

MODULE_KINDS = ("gzip", "xz", "zstd")
LEGACY = b"\x02\x21\x4c\x18"
BLOCK = 8 << 20
SKIPPABLE = struct.pack("<II", 0x184D2A53, 3) + b"abc"


def _lz4_legacy(data: bytes) -> bytes:
    """As `lz4 -l` writes it: blocks of 8 MiB."""
    out = bytearray(LEGACY)
    for at in range(0, len(data), BLOCK):
        block = lz4.block.compress(data[at : at + BLOCK], store_size=False)
        out += struct.pack("<I", len(block)) + block
    return bytes(out)


def _zstd_stream(data: bytes) -> bytes:
    """As the kernel's build pipes it: without a size in the header."""
    packer = zstandard.ZstdCompressor(level=19, write_checksum=True).compressobj()
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=1),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "zstd-stream": _zstd_stream,
    "lz4": lambda data: lz4.frame.compress(data, content_checksum=True),
    "lz4-legacy": _lz4_legacy,
}
every_packer = pytest.mark.parametrize("packer", PACKERS)
SAMPLE = bytes(range(256)) * 8 + b"ftrace" * 100


def _array(data: bytes) -> memoryview:
    return memoryview(data)


def _unpack(data: bytes, limit: int = 1 << 20, size: int | None = None) -> bytes:
    return bytes(unpack("file", _array(data), limit, size))


def _refused(data: bytes, limit: int = 1 << 20, size: int | None = None) -> str:
    with pytest.raises(InputError) as error:
        _unpack(data, limit, size)
    assert "\n" not in str(error.value)
    return error.value.reason


@every_packer
@given(data=st.binary(min_size=1, max_size=2000), times=st.integers(1, 50))
@settings(max_examples=scaled(25, 6))
def test_what_is_packed_comes_back(packer: str, data: bytes, times: int) -> None:
    whole = data * times
    packed = PACKERS[packer](whole)
    assert kind_of(_array(packed)) == packer.split("-")[0]
    assert _unpack(packed) == whole
    assert _unpack(packed, size=len(whole)) == whole


@every_packer
def test_nothing_packed(packer: str) -> None:
    assert _unpack(PACKERS[packer](b"")) == b""


@every_packer
@pytest.mark.parametrize("announced", [None, len(SAMPLE)])
def test_cut_short_at_every_byte(packer: str, announced: int | None) -> None:
    packed = PACKERS[packer](SAMPLE)
    for size in range(len(packed)):
        if packer == "lz4-legacy" and size == len(LEGACY) and announced is None:
            continue  # has no end of its own: a stream of no block
        _refused(packed[:size], size=announced)


@every_packer
@given(st.data())
@settings(max_examples=scaled(40, 10))
def test_damage(packer: str, data: st.DataObject) -> None:
    """Every stream but lzma's and `lz4 -l` has checks; those may give other bytes, and no more."""
    packed = bytearray(PACKERS[packer](SAMPLE))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    try:
        out = _unpack(bytes(packed))
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert out == SAMPLE or packer in ("lzma", "lz4-legacy", "gzip", "lz4")
        assert len(out) <= 1 << 20


@every_packer
@pytest.mark.parametrize("tail", [b"\0", b"\0\0\0", b"tail", b"\1" * 5000])
def test_bytes_behind_the_end(packer: str, tail: bytes) -> None:
    _refused(PACKERS[packer](SAMPLE) + tail)
    if packer.startswith("zstd"):
        _refused(PACKERS[packer](SAMPLE) + tail, size=len(SAMPLE))


@pytest.mark.parametrize("packer", [name for name in PACKERS if name != "lzma"])
def test_several_streams_in_a_row(packer: str) -> None:
    one, other = PACKERS[packer](SAMPLE), PACKERS[packer](b"other")
    assert _unpack(one + other + one) == SAMPLE + b"other" + SAMPLE
    _refused(one + other[:-1])
    _refused(one + other, limit=len(SAMPLE) + 4)


def test_a_second_lzma_file_is_no_part_of_the_first() -> None:
    one = PACKERS["lzma"](SAMPLE)
    assert "trailing data" in _refused(one + one)


@pytest.mark.parametrize("zeros", [4, 8, 4096, 10000])
def test_padding_of_xz(zeros: int) -> None:
    one = PACKERS["xz"](SAMPLE)
    assert _unpack(one + bytes(zeros)) == SAMPLE
    assert _unpack(one + bytes(zeros) + one) == SAMPLE * 2
    _refused(one + bytes(zeros + 1))
    _refused(one + bytes(zeros) + b"x")


@pytest.mark.parametrize("packer", ["zstd", "lz4"])
def test_frames_of_another_purpose(packer: str) -> None:
    one = PACKERS[packer](SAMPLE)
    assert _unpack(one + SKIPPABLE) == SAMPLE
    assert _unpack(one + SKIPPABLE * 2 + one) == SAMPLE * 2
    _refused(one + SKIPPABLE[:-1])


@every_packer
def test_a_limit(packer: str) -> None:
    zeros = bytes(3 << 20)
    packed = PACKERS[packer](zeros)
    assert _unpack(packed, limit=3 << 20) == zeros
    reason = _refused(packed, limit=(3 << 20) - 1)
    assert reason.endswith(f"unpacks to more than {(3 << 20) - 1} bytes")
    _refused(packed, limit=1)


@every_packer
def test_another_size_than_announced(packer: str) -> None:
    packed = PACKERS[packer](SAMPLE)
    for size in (0, 1, len(SAMPLE) - 1, len(SAMPLE) + 1):
        _refused(packed, size=size)
    assert "more than" in _refused(packed, limit=100, size=101)


def test_a_zstd_frame_that_lies_about_its_size() -> None:
    """8 bytes of size say 2^62: no memory is taken for them."""
    header = b"\x28\xb5\x2f\xfd" + bytes([0xE0]) + struct.pack("<Q", 1 << 62)
    for size in (None, 100):
        _refused(header + b"\x01\x00\x00", size=size)


def test_an_xz_dictionary_of_4_gib() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]
    packed = bytearray(lzma.compress(SAMPLE, check=lzma.CHECK_CRC32, filters=filters))
    # Block header: size, flags, filter 21, size of properties 1, dictionary | ... | CRC32
    assert packed[14:16] == b"\x21\x01"
    packed[16] = 40  # 4 GiB - 1
    packed[20:24] = struct.pack("<I", zlib.crc32(packed[12:20]))
    assert "emory" in _refused(bytes(packed))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x7fELF",
        b"\x1f\x8b",
        b"BZh0",
        b"BZh9plain text",
        b"\x5d\0\0",
        b"]\0\0\x80\0" + b"\xff" * 8 + b"\1" * 20,  # the range coder begins with 0
        b"]\0\0\x90\0" + b"\xff" * 8 + b"\0" * 20,  # a dictionary that no packer takes
        b"]\0\0\x80\0" + struct.pack("<Q", 1 << 50) + b"\0" * 20,
        b"\x04\x22\x4d",
        b"MZ",
    ],
)
def test_what_is_no_stream(data: bytes) -> None:
    assert kind_of(_array(data)) is None
    assert "not compressed" in _refused(data)


def test_lzo_is_known_and_refused() -> None:
    data = b"\x89LZO\0\r\n\x1a\n" + bytes(20)
    assert kind_of(_array(data)) == "lzo"
    assert _refused(data) == "compressed with lzo, which is not supported"


@pytest.mark.parametrize("kind", MODULE_KINDS)
@given(data=st.binary(max_size=3000), times=st.integers(1, 100))
@settings(max_examples=scaled(25, 6))
def test_modules_come_back(kind: str, data: bytes, times: int) -> None:
    packed = pack(kind, data * times)
    assert kind_of(_array(packed)) == kind
    assert _unpack(packed) == data * times
    assert pack(kind, data * times) == packed


def test_a_module_as_the_kernel_reads_it() -> None:
    """kernel/module/decompress.c; see pack()."""
    data = bytes(range(256)) * 40000  # 10 MB
    packed = pack("gzip", data)
    assert packed[:10] == b"\x1f\x8b\x08\0\0\0\0\0\x02\x03"
    assert gzip.decompress(packed) == data
    packed = pack("xz", data)
    assert packed[6:8] == b"\0\x01"  # CRC32
    assert packed[12:16] == b"\x02\0\x21\x01"  # a block header of 12 bytes with one filter: LZMA2
    assert packed[16] <= 16  # 1 MiB
    assert lzma.decompress(packed, lzma.FORMAT_XZ, memlimit=2 << 20) == data
    packed = pack("zstd", data)
    frame = zstandard.get_frame_parameters(packed)
    assert frame.content_size == len(data)
    assert frame.window_size <= 8 << 20
    assert frame.has_checksum
    assert zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False) == data


def test_no_other_kind_is_packed() -> None:
    with pytest.raises(ValueError, match="bzip2"):
        pack("bzip2", b"")
