# SPDX-License-Identifier: MIT
"""Kernels changed in their containers: what is inside is as if it had been changed without one,
what is around it stays, and undo gives back the very file."""

from __future__ import annotations

import random
import re
import struct
import zlib
from pathlib import Path

import pytest

from ftpatch.errors import InputError
from ftpatch.image.kernel_streams import pack_kernel
from tests.support.boot_images import bzimage
from tests.support.boot_kernels import Stripped, relocs
from tests.support.boxes import ELF_BOXES, IMAGE_BOXES, Box, sized
from tests.support.command import ftpatch
from tests.support.raw_kernels import raw_kernel

READ_ONLY = ("vmlinux.lz4", "vmlinux.lzma", "vmlinux.bz2", "Image.lz4", "Image.lzma", "Image.bz2")
ZBOOT_READ_ONLY = ("vmlinuz-lz4.efi", "vmlinuz-bzip2.efi")
NO_ROOM = ("vmlinuz-lzma.efi",)
"""No setting of lzma saves what a change of so small an Image adds."""
BOXES = [
    box
    for box in (*ELF_BOXES.values(), *IMAGE_BOXES.values())
    if box.name not in (*READ_ONLY, *ZBOOT_READ_ONLY, *NO_ROOM)
]
every_box = pytest.mark.parametrize("box", BOXES, ids=lambda box: box.name)
MADE = Stripped(data=random.Random(7).randbytes(1 << 20))
SLOTS = [MADE.start + 8 * i for i in range(len(MADE.table))]
# Most of it cannot be compressed: what is left for a change is what makes a kernel's records null.
KERNEL = MADE.build() + relocs(SLOTS)


def _inside(box: Box) -> bytes:
    return KERNEL if box.name in ELF_BOXES else bytes(raw_kernel("arm64-rela", nulls=2).data)


def _lists(payload: bytes) -> list[list[int]]:
    """The lists behind a kernel, as its decompressor reads them, from the end."""
    words = [word for (word,) in struct.iter_unpack("<I", payload[len(payload) % 4 :])]
    out: list[list[int]] = []
    at = len(words) - 1
    for _ in range(2):
        start = at
        while words[at]:
            at -= 1
        out.append(words[at + 1 : start + 1])
        at -= 1
    return out


@every_box
def test_a_kernel_is_changed_in_its_container(box: Box, tmp_path: Path) -> None:
    path, plain, again = tmp_path / box.name, tmp_path / "plain", tmp_path / "again"
    path.write_bytes(box.pack(_inside(box)))
    plain.write_bytes(_inside(box))
    before = path.read_bytes()
    for words in (["enable"], ["disable", "-f", "do_*"], ["enable", "-f", "do_work_1*"]):
        assert ftpatch(*words, "--in-place", plain).code == 0
        first = ftpatch(*words, "--in-place", path)
        assert (first.code, first.err) == (0, ""), first
        seen = ftpatch("list", "--json", path)
        assert seen.code == 0 and seen.json == ftpatch("list", "--json", plain).json
        assert ftpatch("check", path).code == 0
        assert ftpatch("extract", path, "-o", again, "--force").code == 0
        size = len(_inside(box))
        assert again.read_bytes()[:size] == plain.read_bytes()[:size]
    assert ftpatch("undo", path).code == 0
    assert ftpatch("undo", path).code == 0
    assert f" undone, {len(before)} bytes as before\n" in ftpatch("undo", path).out
    assert path.read_bytes() == before
    assert ftpatch("undo", path).code == 2


def test_undo_all_and_elsewhere(tmp_path: Path) -> None:
    path, out = tmp_path / "vmlinuz", tmp_path / "out"
    path.write_bytes(bzimage(sized("xz", KERNEL)))
    before = path.read_bytes()
    assert ftpatch("disable", path, "-f", "do_*", "-o", out).code == 0
    assert path.read_bytes() == before
    assert ftpatch("enable", out, "--in-place").code == 0
    assert ftpatch("diff", path, out).code == 1 and ftpatch("diff", out).code == 1
    done = ftpatch("undo", "--all", out, "-o", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == before
    assert re.findall(r"undone(?:, (\d+) bytes as before)?\n", done.out) == ["", str(len(before))]


def test_only_lengths_change_around_the_payload(tmp_path: Path) -> None:
    path = tmp_path / "vmlinuz"
    stream = sized("zstd", KERNEL)
    path.write_bytes(bzimage(stream))
    before = path.read_bytes()
    assert ftpatch("disable", path, "-f", "do_*", "--in-place").code == 0
    after = path.read_bytes()
    start = 5 * 512 + 100
    room = range(start, start + len(stream))
    differ = [at for at in range(len(before)) if before[at] != after[at] and at not in room]
    length = start - 8
    assert set(differ) <= {*range(0x24C, 0x250), *range(length, length + 4)}
    new = struct.unpack_from("<I", after, 0x24C)[0]
    assert struct.unpack_from("<II", after, length) == (new, len(KERNEL))
    assert not any(after[start + new : start + len(stream)])


def test_a_dropped_record_is_moved_no_more(tmp_path: Path) -> None:
    """What the decompressor would move, read as it reads it; and all of it again after `enable`."""
    path, inside = tmp_path / "vmlinuz", tmp_path / "inside"
    path.write_bytes(bzimage(sized("xz", KERNEL)))

    def lists() -> list[list[int]]:
        assert ftpatch("extract", path, "-o", inside, "--force").code == 0
        return _lists(inside.read_bytes())

    before = lists()
    held = before[1]
    assert set(held) >= {slot & 0xFFFF_FFFF for slot in SLOTS}
    rows = ftpatch("list", "--json", path).json
    gone = [SLOTS[i] & 0xFFFF_FFFF for i, row in enumerate(rows) if row["symbol"].startswith("do_")]
    assert len(gone) > 300
    assert ftpatch("disable", path, "-f", "do_*", "--in-place").code == 0
    now = lists()
    assert now[0] == before[0] and sorted(now[1]) == sorted(set(held) - set(gone))
    assert ftpatch("enable", path, "-f", "do_*", "--to", "__fentry__", "--in-place").code == 0
    assert [sorted(one) for one in lists()] == [sorted(one) for one in before]


def test_check_knows_a_record_that_is_moved(tmp_path: Path) -> None:
    dropped = tmp_path / "dropped"
    dropped.write_bytes(KERNEL)
    assert ftpatch("disable", dropped, "-f", "do_*", "--in-place").code == 0
    assert ftpatch("check", dropped).code == 0
    data = bytearray(dropped.read_bytes())
    data[len(KERNEL) - len(relocs(SLOTS)) : len(KERNEL)] = relocs(SLOTS)
    dropped.write_bytes(data)
    found = ftpatch("check", dropped)
    assert found.code == 1 and "record-moved" in found.out and "KASLR" in found.out


def test_the_image_s_checksum_holds_again(tmp_path: Path) -> None:
    """boot.rst, "The Image Checksum": the CRC-32 of all of it, without the last inversion, is 0."""
    data = bytearray(bzimage(sized("xz", KERNEL)))
    data += bytes(-(len(data) - 5 * 512) % 16)
    struct.pack_into("<I", data, 0x1F4, (len(data) + 16 - 5 * 512) // 16)
    data += bytes(12)
    data += struct.pack("<I", ~zlib.crc32(bytes(data)) & 0xFFFF_FFFF)
    assert zlib.crc32(bytes(data)) == 0xFFFF_FFFF
    path = tmp_path / "vmlinuz"
    path.write_bytes(data)
    assert ftpatch("disable", path, "-f", "do_*", "--in-place").code == 0
    assert zlib.crc32(path.read_bytes()[: len(data)]) == 0xFFFF_FFFF


def test_a_payload_that_does_not_fit_is_refused_with_the_sizes(tmp_path: Path) -> None:
    """Bytes that no compressor can make fewer, in the room of bytes that it did."""
    stream = sized("xz", KERNEL)
    data = bytearray(bzimage(stream))
    path = tmp_path / "vmlinuz"
    other = bytearray(KERNEL)
    path.write_bytes(data)
    other[: len(other) // 2] = random.Random(1).randbytes(len(other) // 2)
    with pytest.raises(InputError, match="more than there is room for") as caught:
        pack_kernel(path, "xz", memoryview(stream), memoryview(bytes(other)), len(stream) - 4)
    assert "takes" in caught.value.reason and caught.value.hint


@pytest.mark.parametrize("twice", [False, True], ids=["none", "twice"])
def test_lengths_that_are_not_there_once(twice: bool, tmp_path: Path) -> None:
    path = tmp_path / "vmlinuz"
    data = bzimage(sized("xz", KERNEL))
    lengths = data[5 * 512 + 92 :][:8]
    data = data + lengths if twice else data.replace(lengths, bytes(8), 1)
    path.write_bytes(data)
    refused = ftpatch("disable", path, "-f", "do_*", "--in-place")
    assert refused.code == 2 and "does not say how long its payload is" in refused.err
    assert path.read_bytes() == data


def test_a_forged_journal_behind_is_refused(tmp_path: Path) -> None:
    """Another kernel's journal, one of a payload of another size, and a file that differs around
    the payload from the one that the journal keeps."""
    path, other = tmp_path / "vmlinuz", tmp_path / "other"
    path.write_bytes(bzimage(sized("xz", KERNEL)))
    before = len(path.read_bytes())
    assert ftpatch("disable", path, "-f", "do_*", "--in-place").code == 0
    journal = path.read_bytes()[before:]
    other.write_bytes(bzimage(sized("xz", KERNEL + bytes(8))) + journal)
    refused = ftpatch("undo", other)
    assert refused.code == 2 and "journal: of another file" in refused.err
    data = bytearray(path.read_bytes())
    data[1000:1100] = b"x" * 100
    path.write_bytes(data)
    refused = ftpatch("undo", path)
    assert refused.code == 2 and "does not match" in refused.err
    assert path.read_bytes() == bytes(data)
