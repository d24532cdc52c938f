# SPDX-License-Identifier: MIT
"""The bzImage of IBM Z: its memory as an ELF file, and back; relocations that lose their place are
led aside, and found again. Kernels in it are in tests/kernels."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.errors import InputError
from ftpatch.image import ipl_parts, open_image
from ftpatch.image.compression import kind_of
from ftpatch.image.ipl_parts import find_parts, found_again, led_aside
from ftpatch.image.payload import read_payload
from tests.support.boot_images import ipl_image
from tests.support.boxes import PACKERS, sized
from tests.support.command import ftpatch

BASE, PAGE = 0x10_0000, 4096
SIZE = (2 << 20) + 0x100
PATH = Path("kernel")


def _memory(size: int = SIZE) -> bytes:
    return random.Random(390).randbytes(size // 8) + bytes(size - size // 8)


PLACES = [BASE + 8 * number for number in (0, 3, 4, 9, 200, 70_000)]


@pytest.mark.parametrize("kind", PACKERS)
def test_the_memory_is_read_as_an_elf_file(kind: str) -> None:
    whole = ipl_image(sized(kind, _memory()), PLACES)
    found = read_payload("kernel", memoryview(whole))
    (layer,) = found.layers
    assert (layer.container.name, layer.compression) == ("bzImage (IPL)", kind)
    elf = ELFFile(io.BytesIO(found.data.tobytes()))
    assert (elf["e_machine"], elf.little_endian, elf.elfclass) == ("EM_S390", False, 64)
    (load,) = elf.iter_segments()
    assert (load["p_vaddr"], load.data()) == (BASE, _memory())
    rows = elf.get_section_by_name(".rel.dyn").iter_relocations()
    assert [(row["r_offset"], row["r_info_type"]) for row in rows] == [(at, 12) for at in PLACES]


@pytest.mark.parametrize("words", [b"Linux version 6.12 (s390x)", b"Another version 1"])
def test_what_is_extracted_is_a_kernel_by_its_words(words: bytes, tmp_path: Path) -> None:
    path, plain = tmp_path / "bzImage", tmp_path / "plain"
    path.write_bytes(ipl_image(sized("zstd", words + _memory()[len(words) :]), PLACES))
    assert ftpatch("extract", path, "-o", plain).code == 0
    assert open_image(plain).is_kernel == words.startswith(b"Linux")


def test_a_decompressor_that_does_not_tell() -> None:
    whole = bytearray(ipl_image(sized("zstd", _memory()), PLACES))
    struct.pack_into(">4Q", whole, 0x10F00, 0, 0, 0, 0)
    with pytest.raises(InputError, match="does not tell where its payload is"):
        find_parts(PATH, memoryview(bytes(whole)))


def test_one_that_could_hold_a_stream_everywhere() -> None:
    """The decompressor names as many places of streams as it has words, and each page could be the
    last: each place is looked at once."""
    whole = bytearray(1 << 20)
    half = len(whole) // 2
    whole[0x12000:half] = struct.pack(f">{(half - 0x12000) // 8}Q", *range(half, 0xEE000, 8))
    whole[half:] = bytes.fromhex("1f8b080000000000") * (half // 8)
    page = bytes(4096 - 32) + bytes(24) + b"\0\0\0\x20zIPL"
    with mock.patch.object(ipl_parts, "kind_of", side_effect=kind_of) as asked:
        for data in (bytes(whole) + page, bytes(whole) + page * 300):
            with pytest.raises(InputError, match="does not tell where its payload is"):
                find_parts(PATH, memoryview(data))
        said = struct.pack("<I", 2 << 20)
        whole[-4:], whole[0x11000:0x11008] = said, struct.pack(">Q", len(whole))
        found = find_parts(PATH, memoryview(bytes(whole) + page))
    assert (found.stream, found.end, found.end_at) == (half, len(whole), 0x11000)
    assert asked.call_count < 100


@given(
    st.lists(st.integers(0, SIZE // 8 - 1), min_size=1, max_size=60, unique=True),
    st.data(),
)
def test_what_is_led_aside_is_found_again(places: list[int], data: st.DataObject) -> None:
    """As long as each is near the one before, which the words of one table are."""
    place = np.sort(np.array(places, np.uint64)) * np.uint64(8) + np.uint64(BASE)
    near = np.diff(place.astype(np.int64), prepend=0) < PAGE - SIZE % PAGE - 8
    live = ~near | np.array(data.draw(st.lists(st.booleans(), min_size=60)))[: len(place)]
    entries = led_aside(PATH, place, live, SIZE)
    aside = entries[~live]
    assert ((aside > BASE + SIZE) & (aside <= BASE + SIZE + -SIZE % PAGE - 8)).all()
    again, kept = found_again(entries, SIZE)
    assert again.tolist() == place.tolist() and kept.tolist() == live.tolist()


def test_what_is_too_far_from_the_one_before_is_refused() -> None:
    place = np.array([BASE, BASE + 2 * PAGE], np.uint64)
    with pytest.raises(InputError, match="no room to lead"):
        led_aside(PATH, place, np.array([True, False]), SIZE)
    with pytest.raises(InputError, match="no room to lead"):
        led_aside(PATH, place, np.array([False, True]), SIZE)


def test_damaged_ones_are_refused_in_one_line(tmp_path: Path) -> None:
    whole = ipl_image(sized("zstd", _memory()), PLACES)
    path = tmp_path / "bzImage"
    rng = random.Random(31)
    for number in range(40):
        data = bytearray(whole)
        at = rng.choice([0x10F00, 0x11000, len(data) - 0x2000])
        for _ in range(4):
            data[min(at + rng.randrange(0x200), len(data) - 1)] = rng.randrange(256)
        path.write_bytes(data[: rng.randrange(0x10010, len(data))] if number % 2 else data)
        found = ftpatch("status", path)
        assert found.code == 2 and found.err.count("\n") == 1, found
