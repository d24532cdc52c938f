# SPDX-License-Identifier: MIT
"""Containers that are cut short, lie, or hold more than they say: one line, exit 2, at once."""

from __future__ import annotations

import gzip
import re
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from unittest import mock

import pytest
import zstandard

from ftpatch.errors import InputError
from ftpatch.image import open_image
from ftpatch.image.compression import MAX_UNPACKED
from ftpatch.image.payload import read_payload
from tests.support.boot_images import SETUP, bzimage, zboot, zimage
from tests.support.boot_kernels import Stripped
from tests.support.boxes import ELF_BOXES, FEW, IMAGE_BOXES, PACKERS, sized
from tests.support.command import ROOT, Result, ftpatch, ftpatch_command
from tests.support.images import fentry_kernel
from tests.support.raw_kernels import raw_kernel

KERNEL = Stripped().build()
SMALL = fentry_kernel().build()
IMAGE = bytes(raw_kernel("arm64-relr").data)
VERBS = ("status", "list", "check", "enable", "disable", "undo", "diff", "extract")
START = SETUP + 100
"""Where bzimage() puts the stream."""
every_kind = pytest.mark.parametrize("kind", PACKERS)


def _put(folder: Path, data: bytes, name: str = "vmlinuz") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _is_one_line(result: Result) -> str:
    assert result.code == 2 and not result.out, result
    assert re.fullmatch(r"ftpatch: [^\n]+\n", result.err), result
    assert "internal error" not in result.err
    return result.err


def _refused(folder: Path, data: bytes, words: str = "") -> None:
    """By every verb, with the same reason, and nothing is written."""
    path = _put(folder, data)
    for verb in VERBS:
        assert words in _is_one_line(ftpatch(verb, path))
    assert [found.name for found in folder.iterdir()] == ["vmlinuz"]
    assert path.read_bytes() == data


@every_kind
def test_every_cut_of_a_bzimage(kind: str, tmp_path: Path) -> None:
    stream = sized(kind, SMALL)
    whole = bzimage(stream)
    end = START + len(stream)
    path = tmp_path / "vmlinuz"
    for size in range(1, end):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError) as error:
            open_image(path)
        assert "\n" not in str(error.value)
        if size % 401 == 0:
            _is_one_line(ftpatch("status", path))
    path.write_bytes(whole[:end])
    assert ftpatch("status", path).code == 0, "what comes behind is not looked at"


@every_kind
def test_every_cut_of_a_compressed_kernel(kind: str, tmp_path: Path) -> None:
    """Without the box nothing says how long it is, and a stream must still be whole."""
    stream = PACKERS[kind](SMALL)
    path = tmp_path / "vmlinux"
    for size in range(1, len(stream)):
        path.write_bytes(stream[:size])
        with pytest.raises(InputError) as error:
            open_image(path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", FEW)
def test_cuts_by_every_verb(name: str, tmp_path: Path) -> None:
    whole = (ELF_BOXES | IMAGE_BOXES)[name].pack(KERNEL if name in ELF_BOXES else IMAGE)
    for size in (1, 0x40, 0x206, 0x250, len(whole) // 3, len(whole) - 260):
        _refused(tmp_path, whole[:size])


@every_kind
def test_a_payload_that_is_elsewhere(kind: str, tmp_path: Path) -> None:
    """payload_offset and payload_length, as others would have them."""
    stream = sized(kind, SMALL)
    whole = bzimage(stream)
    good = (100, len(stream))
    numbers = (0, 1, 3, 4, 99, 101, len(stream) - 1, len(stream) + 1, len(whole), 0xFFFF_FFFF)
    for at in (0, 1):
        for value in {*numbers, 0x7FFF_FFFF, 0x8000_0000, 1 << 20} - {good[at]}:
            place = list(good)
            place[at] = value
            path = _put(tmp_path, whole[:0x248] + struct.pack("<II", *place) + whole[0x250:])
            _is_one_line(ftpatch("status", path))
    for sectors in (1, 3, 5, 255):
        path = _put(tmp_path, whole[:0x1F1] + bytes([sectors]) + whole[0x1F2:])
        _is_one_line(ftpatch("extract", path))


@pytest.mark.parametrize("offset", [0, 7, 0x1001, 0x0FFF, 0x7FFF_FFFF, 0xFFFF_FFFF])
def test_a_zboot_payload_that_is_elsewhere(offset: int, tmp_path: Path) -> None:
    stream = PACKERS["gzip"](IMAGE)
    _refused(tmp_path, zboot(stream, len(stream), "gzip", offset=offset))
    for size in (0, 1, len(stream) - 1, len(stream) + 1, 1 << 20, 0xFFFF_FFFF):
        path = _put(tmp_path, zboot(stream, size, "gzip"))
        _is_one_line(ftpatch("status", path))


@every_kind
def test_another_size_than_announced(kind: str, tmp_path: Path) -> None:
    stream = sized(kind, SMALL)
    for size in (0, 1, len(SMALL) - 1, len(SMALL) + 1, 1 << 20, 1 << 30, 0xFFFF_FFFF):
        path = _put(tmp_path, bzimage(stream[:-4] + struct.pack("<I", size)))
        reason = _is_one_line(ftpatch("status", path))
        if size > MAX_UNPACKED:
            assert f"unpacks to more than {MAX_UNPACKED} bytes" in reason


@every_kind
def test_a_limit(kind: str, tmp_path: Path) -> None:
    """Whatever the file says, no more is unpacked."""
    limit = len(KERNEL) - 1
    with mock.patch.object(read_payload, "__defaults__", (limit,)):
        for data in (bzimage(sized(kind, KERNEL)), PACKERS[kind](KERNEL)):
            _refused(tmp_path, data, f"{kind}: unpacks to more than {limit} bytes")
    # Layers inside of each other have one limit together.
    inner = PACKERS[kind](bzimage(sized(kind, KERNEL)) + bytes(len(KERNEL)))
    with mock.patch.object(read_payload, "__defaults__", (2 * len(KERNEL),)):
        _refused(tmp_path, inner, "unpacks to more than")


USED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""
# A process of its own asks: a child's peak is at least that of the one that it was forked from.


def test_a_bomb(tmp_path: Path) -> None:
    """A gigabyte and more of zeros, at the real limit: what it takes is not much above that."""
    packer, zeros = zstandard.ZstdCompressor(level=1).compressobj(), bytes(1 << 24)
    stream = b"".join([*(packer.compress(zeros) for _ in range(65)), packer.flush()])
    path = _put(tmp_path, stream)
    command = [sys.executable, "-c", USED, *ftpatch_command("status", str(path))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == f"ftpatch: {path}: zstd: unpacks to more than {MAX_UNPACKED} bytes\n"
    assert done.returncode == 2
    assert int(done.stdout) < 1_600_000


@pytest.mark.parametrize("unpacked", [0, 1, 1 << 24, 1 << 31])
def test_a_bomb_in_a_zimage(unpacked: int, tmp_path: Path) -> None:
    """gzip's own end is looked for, in no more memory than what it says takes."""
    stream = gzip.compress(bytes(1 << 27), 1, mtime=0)[:-4]
    path = _put(tmp_path, zimage(stream, unpacked))
    tracemalloc.start()
    try:
        assert "gzip: unpacks to more than" in _is_one_line(ftpatch("status", path))
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()


@every_kind
def test_a_zimage_payload_that_is_elsewhere(kind: str, tmp_path: Path) -> None:
    stream = PACKERS[kind](SMALL)
    whole = zimage(stream[:-4] if kind == "gzip" else stream, len(SMALL))
    for at in (0x34, 0x38, 0x100, 0x104, 0x108, len(whole) - 12):
        for value in (0, 1, 3, 0x34, len(whole) - 4, len(whole), 0x7FFF_FFFF, 0xFFFF_FFFF):
            path = _put(tmp_path, whole[:at] + struct.pack("<I", value) + whole[at + 4 :])
            _is_one_line(ftpatch("status", path))
    for end in (0x25, 0x40, 0x100, 0x10C, 0x1000, 0x1004, len(whole) - 20, len(whole) - 9):
        _is_one_line(ftpatch("extract", _put(tmp_path, whole[:end])))


def test_layers_inside_of_each_other(tmp_path: Path) -> None:
    """Four are unwrapped; a fifth is refused, also where it is the same again."""
    for data, container in ((KERNEL, "vmlinux"), (IMAGE, "Image")):
        for depth in range(1, 6):
            data = gzip.compress(data)
            path = _put(tmp_path, data)
            if depth < 5:
                row = ftpatch("status", "--json", path).only
                assert (row["container"], row["records"]) == (container, row["sites"])
            else:
                _refused(tmp_path, data, "more than 4 nested images")
    stream = PACKERS["zstd"](IMAGE)
    path = _put(tmp_path, gzip.compress(zboot(stream, len(stream), "zstd22")))
    assert ftpatch("status", "--json", path).only["container"] == "Image"
    boxed = bzimage(sized("xz", bzimage(sized("lz4", KERNEL))))
    assert ftpatch("status", "--json", _put(tmp_path, boxed)).only["container"] == "bzImage"


@pytest.mark.parametrize("name", FEW)
def test_any_byte_of_a_stream(name: str, tmp_path: Path) -> None:
    """One byte is another: refused, or the same as before; each stream but lz4's has a sum."""
    box = (ELF_BOXES | IMAGE_BOXES)[name]
    whole = box.pack(KERNEL if name in ELF_BOXES else IMAGE)
    path = tmp_path / "vmlinuz"
    for at in range(0, len(whole), max(len(whole) // 150, 1)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            read = open_image(path)
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert len(read.data) <= 1 << 20
            if "lz4" not in name:
                assert bytes(read.data) == (KERNEL if name in ELF_BOXES else IMAGE)
