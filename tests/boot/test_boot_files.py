# SPDX-License-Identifier: MIT
"""The boot tracer in files: where it is laid, what is refused, what other commands see of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from ftpatch.boot import find_source
from ftpatch.boot.padding import find_room, find_word
from ftpatch.errors import SiteRefused
from ftpatch.ftrace.sites import Sites, read_sites
from ftpatch.image import open_image
from tests.support.boot_small import BASE, DATA, GAP, bootable, enabled
from tests.support.command import ftpatch
from tests.support.elf_writer import Image
from tests.support.images import FUNCTIONS, STEP, pad_program, symbols_at

FIRST = BASE + STEP * (len(FUNCTIONS) + 1)
"""Where the gap begins."""
PADS = b"\xcc\x00"


def _sites(folder: Path, image: Image) -> Sites:
    path = folder / "image"
    path.write_bytes(image.build())
    return read_sites(open_image(path))


def test_only_sites_records_and_padding_differ(tmp_path: Path) -> None:
    path = enabled(tmp_path)
    before = np.fromfile(tmp_path / "vmlinux", np.uint8)
    after = np.fromfile(path, np.uint8)[: len(before)]
    elf = open_image(tmp_path / "vmlinux").elf
    at = elf.address_of(np.flatnonzero(before != after)).tolist()
    sites = [range(ip, ip + 5) for ip in symbols_at(BASE).values()]
    table = range(BASE + 0x10000, BASE + 0x10000 + 8 * len(FUNCTIONS))
    room, word = range(FIRST + 64, FIRST + GAP - 64), range(DATA + 4032, DATA + 4036)
    assert all(any(a in part for part in (*sites, table, room, word)) for a in at)
    assert any(a in room for a in at) and any(a in word for a in at)
    source = find_source(open_image(path))
    assert source.ip.tolist() == sorted(symbols_at(BASE).values())


def test_other_commands_know_what_it_is(tmp_path: Path) -> None:
    path = enabled(tmp_path, "--until", "do_exit")
    assert ftpatch("check", path).code == 0
    status = ftpatch("status", path, "--json").only
    assert status["dropped"] == status["states"]["call"] == len(FUNCTIONS)
    assert ftpatch("diff", tmp_path / "vmlinux", path).code == 1
    again = ftpatch("enable", path, "--tracer", "boot", "-o", tmp_path / "again")
    assert again.code == 1 and "`ftpatch undo` first" in again.err
    less = tmp_path / "less"
    assert ftpatch("disable", path, "-f", "vfs_read", "-o", less).code == 0
    assert len(find_source(open_image(less)).ip) == len(FUNCTIONS) - 1
    assert ftpatch("undo", less, "--all").code == 0
    assert less.read_bytes() == (tmp_path / "vmlinux").read_bytes()


@pytest.mark.parametrize("gap", [100, 300])
def test_no_room_is_refused_with_the_sizes(tmp_path: Path, gap: int) -> None:
    plain = tmp_path / "vmlinux"
    plain.write_bytes(bootable(gap).build())
    done = ftpatch("enable", plain, "--tracer", "boot", "-o", tmp_path / "out")
    assert done.code == 1 and str(gap) in done.err and not (tmp_path / "out").exists()


def test_padding_that_a_symbol_owns_is_none(tmp_path: Path) -> None:
    assert FIRST < find_room(_sites(tmp_path, bootable()), PADS, 300).at < FIRST + GAP
    owned = _sites(tmp_path, bootable(extra=GAP))
    with pytest.raises(SiteRefused, match="unowned"):
        find_room(owned, PADS, 300)


def test_a_text_without_bounds_is_refused(tmp_path: Path) -> None:
    image = bootable()
    image.symbols = [s for s in image.symbols if s.name != "_etext"]
    with pytest.raises(SiteRefused, match="no symbols for the start"):
        find_room(_sites(tmp_path, image), PADS, 300)
    image.symbols = [
        dataclasses.replace(s, value=BASE + 0x30_0000) if s.name == "_etext" else s
        for s in bootable().symbols
    ]
    assert FIRST < find_room(_sites(tmp_path, image), PADS, 300).at < FIRST + GAP


def test_the_word_is_where_nothing_is(tmp_path: Path) -> None:
    assert find_word(_sites(tmp_path, bootable())) == DATA + 4096 - 64
    used = _sites(tmp_path, bootable(nosave=bytes(4095) + b"\1"))
    assert find_word(used) == DATA + 4096 + 8  # between two objects
    assert find_word(_sites(tmp_path, bootable(nosave=None))) == DATA + 4096 + 8
    image = bootable(nosave=None)
    image.symbols = [s for s in image.symbols if s.name != "an_object"]
    with pytest.raises(SiteRefused, match="no padding in its data"):
        find_word(_sites(tmp_path, image))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--until", "nosuch"), "--until nosuch: no such function"),
        (("--until", "no_site_here"), "the function has no site"),
        (("--until", "vfs_*"), "no such function"),
        (("--max", "0"), "(1 to"),
        (("--max", str(1 << 31)), "(1 to"),
        (("--sink", "semihosting"), "use debugcon or serial"),
        (("--keep-records",), "brings its own callee"),
        (("--to", "vfs_read"), "brings its own callee"),
        (("-f", "nosuch"), "matches no site"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    plain = tmp_path / "vmlinux"
    plain.write_bytes(bootable().build())
    done = ftpatch("enable", plain, "--tracer", "boot", "-o", tmp_path / "out", *words)
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_until_takes_any_name_and_adds_its_site(tmp_path: Path) -> None:
    path = enabled(tmp_path, "--until", "an_alias", "-f", "vfs_read")
    source = find_source(open_image(path))
    places = symbols_at(BASE)
    assert source.ip.tolist() == [places["vfs_read"], places["vfs_write"]]
    assert source.last.tolist() == [False, True]


def test_programs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "prog").write_bytes(pad_program().build())
    done = ftpatch("enable", tmp_path / "prog", "--tracer", "boot", "-o", tmp_path / "out")
    assert done.code == 2 and "for kernels" in done.err
