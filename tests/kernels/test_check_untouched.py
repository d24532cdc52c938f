# SPDX-License-Identifier: MIT
"""A kernel as its distribution ships it breaks no invariant; one moved record does.

What the rules of ``check`` rest on is asserted here without them, by the independent reader.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from elftools.elf.elffile import ELFFile
from numpy.typing import NDArray

from .breakage import broken
from .cli import ftpatch
from .independent import Vmlinux

NOTRACE = ("noinstr_text", "entry_text", "static_call_text", "hyp_text", "hyp_idmap_text")
MOVED = 16  # bytes that a record is moved by


def _starts(image: Vmlinux) -> NDArray[np.uint64]:
    """Where the code of each site begins: on arm64 one instruction before its ip."""
    return image.sites - np.uint64(image.extent[0])


def _functions(path: Path) -> NDArray[np.uint64]:
    """(start, end) of each symbol that is a function and has a size, by start."""
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        rows = [
            (symbol["st_value"], symbol["st_value"] + symbol["st_size"])
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_size"]
        ]
    return np.unique(np.array(rows, np.uint64), axis=0)


def test_nothing_is_found(image: Vmlinux) -> None:
    answer = ftpatch("check", image.path)
    assert (answer.status, answer.objects, answer.complaint) == (0, [], "")


def test_no_site_is_in_a_notrace_section(image: Vmlinux) -> None:
    for name in NOTRACE:
        low, high = image.find(f"__{name}_start"), image.find(f"__{name}_end")
        if low is not None and high is not None:
            assert not ((image.sites >= low) & (image.sites < high)).any(), name


def test_the_kprobe_blacklist_is_no_list_of_untraced_functions(image: Vmlinux) -> None:
    """Were it, a site at one of its functions would be a finding."""
    width = image.bits // 8
    first, last = (image.address(f"__{end}_kprobe_blacklist") for end in ("start", "stop"))
    functions = [image.word(at) for at in range(first, last, width)]
    entries = np.array(functions, np.uint64)[:, None] + np.array(image.entries, np.uint64)
    assert np.isin(_starts(image), entries).sum() > 10


def test_sites_are_at_entries_and_a_moved_record_is_found(image: Vmlinux, copy: Path) -> None:
    functions, begin = _functions(image.path), _starts(image)
    row = np.searchsorted(functions[:, 0], begin, side="right") - 1
    distance = begin - functions[row, 0]
    inside = begin < functions[row, 1]
    assert set(distance[inside].tolist()) <= set(image.entries)
    assert inside.mean() > 0.98, "what is left of overridden weak functions is outside of all"
    index = int(np.flatnonzero(image.records != 0)[image.names.index("vfs_read")])
    slot = image.table[0] + index * image.bits // 8
    hit = np.flatnonzero(image.rela["offset"] == slot) if len(image.rela) else np.empty(0, int)
    at = image.offset(slot)
    if len(hit):
        at = image.sections[".rela.dyn"][1] + int(hit[0]) * image.rela.itemsize + 16  # r_addend
    moved = int(image.records[index]) + MOVED
    with broken(copy, [(at, image.packed(moved))]):
        found = ftpatch("check", copy, expect=1).objects
    # 32-bit ARM's sites are behind the prologue, wherever that ends: what is no call is no site.
    stray = "site-known" if image.arch == "arm" else "record-in-function"
    named = [f["symbol"].split("+")[0] for f in found if f["invariant"] == stray]
    assert named == ["vfs_read"]
