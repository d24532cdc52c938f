# SPDX-License-Identifier: MIT
"""Kernels as they are booted, layer by layer: made by hand, and broken on purpose."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable

import lz4.block
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.errors import InputError
from ftpatch.image.payload import Payload, read_payload
from tests.support.boot_images import SETUP, bzimage, zboot

ELF = b"\x7fELF" + bytes(range(200)) * 30
IMAGE = bytes(56) + b"ARM\x64" + bytes(4) + b"image" * 500
X86_FILTERS = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "dict_size": 32 << 20}]


def _lz4(data: bytes) -> bytes:
    block = bytes(lz4.block.compress(data, store_size=False))
    return b"\x02\x21\x4c\x18" + struct.pack("<I", len(block)) + block


# As scripts/Makefile.lib calls the packers, but for their strength.
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bzip2": bz2.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "xz": lambda data: lzma.compress(data, check=lzma.CHECK_CRC32, filters=X86_FILTERS),
    "lz4": _lz4,
    "zstd": zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress,
}
WORDS = {"xz": "xzkern", "zstd": "zstd22"}
every_kind = pytest.mark.parametrize("kind", PACKERS)


def _sized(kind: str, data: bytes) -> bytes:
    """With the size behind, which gzip has anyway."""
    tail = b"" if kind == "gzip" else struct.pack("<I", len(data))
    return PACKERS[kind](data) + tail


def _read(data: bytes, limit: int = 1 << 20) -> Payload:
    return read_payload("file", memoryview(data), limit)


def _name(found: Payload) -> str:
    return found.container.name if found.container else ""


def _layers(found: Payload) -> list[tuple[str, str, int, int]]:
    return [(one.name, one.compression, one.offset, one.size) for one in found.layers]


def _refused(data: bytes, limit: int = 1 << 20) -> str:
    with pytest.raises(InputError) as error:
        _read(data, limit)
    assert "\n" not in str(error.value)
    return error.value.reason


@every_kind
@pytest.mark.parametrize("setup", [4, 0])
def testbzimage(kind: str, setup: int) -> None:
    stream = _sized(kind, ELF)
    found = _read(bzimage(stream, setup=setup))
    size = len(stream) - (0 if kind == "gzip" else 4)
    assert _name(found) == "bzImage"
    assert _layers(found) == [("bzImage", kind, SETUP + 100, size)]
    assert found.data.tobytes() == ELF


@every_kind
def testzboot(kind: str) -> None:
    stream = PACKERS[kind](IMAGE)
    for word in (kind, WORDS.get(kind, kind), ""):
        found = _read(zboot(stream + struct.pack("<I", len(IMAGE)), len(stream), word))
        assert _name(found) == "Image"
        assert _layers(found) == [("zboot", kind, 0x1000, len(stream))]
        assert found.data.tobytes() == IMAGE


@every_kind
def test_a_compressed_image(kind: str) -> None:
    stream = PACKERS[kind](IMAGE)
    found = _read(stream)
    assert (_name(found), _layers(found)) == ("Image", [(kind, kind, 0, len(stream))])
    assert found.data.tobytes() == IMAGE


@every_kind
def test_a_compressed_elf_file_says_itself_what_it_is(kind: str) -> None:
    stream = PACKERS[kind](ELF)
    found = _read(stream)
    assert (_name(found), _layers(found)) == ("", [(kind, kind, 0, len(stream))])
    assert found.data.tobytes() == ELF


@pytest.mark.parametrize("magic", [b"ARM\x64", b"RSC\x05"])
def test_a_plain_image(magic: bytes) -> None:
    data = memoryview(IMAGE.replace(b"ARM\x64", magic))
    found = read_payload("file", data)
    assert (_name(found), found.layers) == ("Image", ())
    assert found.data is data


@pytest.mark.parametrize("data", [ELF, b"", b"MZ", b"text", bytes(5000)])
def test_what_has_no_layers(data: bytes) -> None:
    found = _read(data)
    assert (_name(found), found.layers, found.data.tobytes()) == ("", (), data)


def test_layers_inside_of_each_other() -> None:
    stream = PACKERS["zstd"](IMAGE)
    boot = zboot(stream, len(stream), "zstd22")
    found = _read(gzip.compress(boot))
    assert _name(found) == "Image"
    assert [layer.name for layer in found.layers] == ["gzip", "zboot"]
    four = IMAGE
    for _ in range(4):
        four = gzip.compress(four)
    assert len(_read(four).layers) == 4
    assert _refused(gzip.compress(four)) == "more than 4 nested images"


@every_kind
def test_a_limit(kind: str) -> None:
    for data in (bzimage(_sized(kind, ELF)), PACKERS[kind](ELF)):
        assert len(_read(data, len(ELF)).data) == len(ELF)
        assert "unpacks to more than" in _refused(data, len(ELF) - 1)


@every_kind
def test_a_bzimage_whose_payload_has_another_size(kind: str) -> None:
    stream = _sized(kind, ELF)
    lying = stream[:-4] + struct.pack("<I", len(ELF) + 1)
    _refused(bzimage(lying))
    assert "truncated" in _refused(bzimage(stream, length=len(stream) + 1000))
    assert "truncated" in _refused(bzimage(stream, length=3))
    _refused(bzimage(stream, length=len(stream) - 1))
    _refused(bzimage(stream, length=len(stream) + 1))


def test_a_bzimage_that_is_too_old() -> None:
    reason = _refused(bzimage(_sized("gzip", ELF), version=0x207))
    assert reason == "unsupported boot protocol 2.07: no payload"


def test_a_payload_that_is_no_stream() -> None:
    assert "not in a kernel compression format" in _refused(bzimage(ELF))
    assert "not in a kernel compression format" in _refused(zboot(IMAGE, len(IMAGE), ""))
    assert "lzo, which is not supported" in _refused(bzimage(b"\x89LZO\0\r\n\x1a\n" + bytes(8)))


def test_a_stream_that_holds_something_else() -> None:
    for data in (PACKERS["xz"](b"text"), bzimage(_sized("xz", b"text")), gzip.compress(b"")):
        assert _refused(data) == "unpacks to neither an ELF file nor a supported Image"


def test_a_zboot_header_that_lies() -> None:
    stream = PACKERS["zstd"](IMAGE)
    assert "says gzip, its payload is zstd" in _refused(zboot(stream, len(stream), "gzip"))
    assert "truncated" in _refused(zboot(stream, 1 << 30, "zstd22"))
    assert "truncated" in _refused(zboot(stream, len(stream), "zstd22", offset=0x10))
    _refused(zboot(stream, len(stream) - 1, "zstd22"))
    _refused(zboot(stream, len(stream) + 1, "zstd22"))


@every_kind
def test_cut_short(kind: str) -> None:
    """Up to its magic it is a file without layers; from there on, every cut is refused."""
    whole = bzimage(_sized(kind, ELF))
    end = len(whole) - 240
    for size in [*range(0x250, end, 37), end - 1]:
        _refused(whole[:size])
    for size in range(0x250):
        assert _read(whole[:size]).layers == ()


@given(st.lists(st.tuples(st.integers(0, 0x260), st.integers(0, 255)), max_size=6))
def test_any_header(changes: list[tuple[int, int]]) -> None:
    stream = PACKERS["gzip"](ELF)
    for whole in (bzimage(stream), zboot(stream, len(stream), "gzip")):
        data = bytearray(whole)
        for at, value in changes:
            data[at] = value
        try:
            assert len(_read(bytes(data)).data) <= 1 << 20
        except InputError as error:
            assert "\n" not in str(error)
