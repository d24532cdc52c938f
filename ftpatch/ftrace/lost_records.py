# SPDX-License-Identifier: MIT
"""Functions that were compiled to be traced but have no record in the table.

gcc before 13 puts the records of a file's functions into one section for all, which belongs to one
function's COMDAT group or other; where GNU ld drops that group, as another file has the same inline
function, the records of its neighbours go with it:

    a.o  twice<int>, alpha   records of both         ->  kept
    b.o  twice<int>, beta    records of both         ->  dropped, beta keeps its NOPs

So a function is looked for that begins as those do that have a record: with the very same pad, or
with a call of the compiled-in callee. What the image was before its journal is what counts: a
record that ftpatch dropped is not lost.

    [M bytes of pad] function: [endbr, bti] the pad's other bytes, not one NOP more
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import State, supports
from ftpatch.core.columns import among
from ftpatch.elf.eh_frame_hdr import read_table
from ftpatch.elf.headers import Section, Segment
from ftpatch.errors import InputError
from ftpatch.ftrace.callees import read_targets
from ftpatch.ftrace.function_entries import function_starts, prefixes
from ftpatch.ftrace.site_code import call_rows, read_code
from ftpatch.ftrace.sites import Sites
from ftpatch.image import Image

__all__ = ["Lost", "find_lost"]

RARE = 20
"""A pad form of fewer than one in so many sites is not the compiler's, but a function that happens
to begin with NOPs."""
STEP = 8 << 20
"""Bytes to search at a time."""
ENTRY = 8
"""Bytes to examine of an entry of alternatives after its first word."""
ALTERNATIVES = ".altinstructions", "__alt_instructions", "__alt_instructions_end"
JUMPS = "__jump_table", "__start___jump_table", "__stop___jump_table"
"""Section of a table, and the symbols around it."""


@dataclass(frozen=True, slots=True)
class Lost:
    """``ip`` uint64[n]: where the sites would be, by address; ``what`` they hold."""

    ip: NDArray[np.uint64]
    what: str

    def __len__(self) -> int:
        return len(self.ip)

    def names(self, sites: Sites) -> list[str]:
        """Names of the functions by kallsyms, or their addresses where there is no symbol."""
        found = sites.image.kallsyms.lookup(self.ip)
        return [name or hex(at) for (name, _, _), at in zip(found, self.ip.tolist(), strict=True)]


def find_lost(sites: Sites) -> Lost:
    """Find the functions of an image that lost their record. Calls of mcount come after the
    prologue, where no symbol points, and are not looked for."""
    image, arch, abi = sites.original, sites.arch, sites.abi
    what = "a pad" if abi.pad else "a call of the compiled-in callee"
    begin = sites.ip - np.uint64(sites.lead)
    landing = np.uint64(arch.landing_size)
    entry = _entries(sites, begin)
    if abi.stubs:  # one NOP may be anything
        entry = entry[:0]
    known = np.sort(np.concatenate([begin, begin - landing, sites.table_before.value]))
    entry = entry[~_among(entry, known)]  # few are left
    code, there = image.elf.gather(image.elf.offset_of(entry, executable=True), arch.around)
    if supports(arch.name, "local_entry"):
        # Behind a global entry link editors leave NOPs, where the register reaches without them.
        there &= ~arch.landing(code)
    entry, code = entry[there], code[there]
    at = entry + arch.landing(code) * landing if len(entry) else entry
    if not len(at):
        return Lost(at, what)
    if not abi.pad:
        return Lost(at[_calls(sites, at)], what)
    code, _ = image.elf.gather(image.elf.offset_of(at, executable=True), arch.around)
    found = _form(sites, at, code)
    pads = found.any(axis=1)
    entry, at, found = entry[pads], at[pads], found[pads]
    same = np.zeros(len(at), bool)
    for form, size in zip(*_forms(sites, begin), strict=True) if len(at) else ():
        before, _ = image.elf.gather(image.elf.offset_of(entry - size), arch.around)
        whole = (arch.prefix(before) >= size) & ~_among(entry - size, known)
        same |= (found == form).all(axis=1) & whole
    ip = at[same] + np.uint64(sites.lead)
    if image.is_relocatable:
        offset = image.elf.offset_of(at[same], executable=True)
        ip = ip[read_code(image, arch, abi, ip, offset)[1]]
    if image.has_table and len(ip):
        ip = ip[~_replaced(image, ip, arch.pad_size)]
    return Lost(ip, what)


def _among(values: NDArray[np.uint64], known: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Test which of the values are among those known, bool[n], which are sorted."""
    if not len(known):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.asarray(known[at] == values)


def _entries(sites: Sites, begin: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Starts of functions, uint64[n]: by the symbols; in what was stripped by its unwind table
    too, where no alignment can be taken for a pad, which takes instructions of any length."""
    image = sites.original
    starts = function_starts(image)
    if image.has_table or image.is_relocatable or sites.arch.align > 1:
        return starts
    if any(s.type == Section.SHT_SYMTAB for s in image.elf.sections):
        return starts
    frames = _frames(image)
    if not len(frames) or not len(begin):
        return starts
    # gcc lets a function begin behind its pad there, clang before it: as at those with a record.
    where = np.minimum(np.searchsorted(frames, begin), len(frames) - 1)
    behind = (frames[where] - begin).view(np.int64)
    near = behind[(behind >= 0) & (behind <= sites.arch.around)]
    if not len(near):
        return starts
    return np.union1d(starts, frames - np.uint64(np.bincount(near).argmax()))


def _frames(image: Image) -> NDArray[np.uint64]:
    """Starts of functions by the unwind table, uint64[n], sorted."""
    header = image.elf.segment(Segment.PT_GNU_EH_FRAME)
    try:
        if header is None:
            return np.zeros(0, np.uint64)
        held = image.elf.contents(header.offset, header.size, ".eh_frame_hdr")
        rows = read_table(held, header.address, str(image.path), image.elf.order)[1]
    except InputError:
        return np.zeros(0, np.uint64)
    return np.unique(rows[:, 0]).view(np.uint64)


def _calls(sites: Sites, at: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Test which addresses have a call of the compiled-in callee, bool[n]."""
    image, arch, abi = sites.original, sites.arch, sites.abi
    out = np.zeros(len(at), bool)
    if image.is_relocatable:
        rows = np.flatnonzero(call_rows(image, arch, at) >= 0)
    else:
        code, _ = image.elf.gather(image.elf.offset_of(at, executable=True), arch.width)
        rows = np.flatnonzero(arch.decode(code, at, abi)[0] == State.CALL)
    if not len(rows):
        return out
    at = at[rows]
    code, there = read_code(image, arch, abi, at, image.elf.offset_of(at, executable=True))
    state, addr, _, got = arch.decode(code, at, abi)
    known = [callee for callee in (abi.mcount, abi.mcount_got) if callee]
    call = among(addr, known)
    if not image.has_table:  # a program may call it through the PLT
        call |= np.isin(addr, read_targets(image, arch, addr, got).are(arch.mcount_names))
    out[rows] = call & there & (state == State.CALL)
    return out


def _replaced(image: Image, ip: NDArray[np.uint64], size: int) -> NDArray[np.bool_]:
    """Test which of the pads around ``ip`` a kernel replaces: assembly whose first alternative is
    NOPs, static branches that are not taken. No pad of a compiler is.

        struct alt_instr    code - . (4) | replacement - . (4) | feature, lengths ...
        struct jump_entry   code - . (4) | target - . (4) | key - . (a word)

    (include/asm/alternative.h; how long an entry is differs. include/linux/jump_label.h.) Where
    nothing names the table of the first, it is told by its second word leading into text as well,
    and what follows not.
    """
    found = [_alternatives(image, ip, size)]
    if (span := _span(image, JUMPS)) is not None:
        entry = (2 * 4 + image.elf.word) // 4
        relocatable = image.is_relocatable
        found.append(_relocated(image, *span) if relocatable else _led_to(image, *span)[::entry])
    code = np.sort(np.concatenate(found))
    first = np.searchsorted(code, ip - np.uint64(size))
    return np.asarray(first < np.searchsorted(code, ip + np.uint64(size)))


def _alternatives(image: Image, ip: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Code that has alternatives, uint64[n]."""
    span = _span(image, ALTERNATIVES)
    if image.is_relocatable:
        return _relocated(image, *(span or (0, 0)))
    if span is not None:
        low, high = span
        return np.concatenate([_led_to(image, low + shift, high) for shift in (0, 2)])
    return np.concatenate([_by_content(image, load, ip, size) for load in image.elf.loads])


def _span(image: Image, names: tuple[str, str, str]) -> tuple[int, int] | None:
    """Start and end of a table by its section, or by the symbols around it."""
    section = image.elf.section(names[0])
    if section is not None:
        return section.address, section.address + section.size
    low, high = (image.symbols.find(name) for name in names[1:])
    return None if low is None or high is None else (low, high)


def _relocated(image: Image, low: int, high: int) -> NDArray[np.uint64]:
    """All that the relocations between two addresses name."""
    relocations = image.relocations
    rows = np.flatnonzero(relocations.place - np.uint64(low) < high - low)
    rows = rows[relocations.symbol[rows] < len(image.symbols)]
    symbol = image.symbols.value[relocations.symbol[rows]]
    return np.asarray(symbol + relocations.addend[rows].view(np.uint64))


def _led_to(image: Image, low: int, high: int) -> NDArray[np.uint64]:
    """Targets of the four-byte words between two addresses, read as offsets from themselves."""
    offset = int(image.elf.offset_of(np.array([low], np.uint64))[0])
    size = (high - low) // 4 * 4
    if offset < 0 or size <= 0 or offset + size > len(image.data):
        return np.zeros(0, np.uint64)
    distance = image.elf.order.signed(image.data[offset : offset + size], 4)
    return low + np.arange(0, size, 4, dtype=np.uint64) + distance.view(np.uint64)


def _by_content(
    image: Image, load: NDArray[np.uint64], ip: NDArray[np.uint64], size: int
) -> NDArray[np.uint64]:
    """Test which code around ``ip`` the entries of alternatives in a segment (address, size,
    offset) lead to."""
    start, end = int(load[0]), int(load[0]) + int(load[1])
    low, high = ip.min() - np.uint64(size), ip.max() + np.uint64(size)
    found = []
    for part in range(start + -start % 4, end, STEP):
        led = _led_to(image, part, min(part + STEP + ENTRY, end))
        at = np.flatnonzero(led[:-2] - low < high - low)
        into = [image.elf.offset_of(led[at + step], executable=True) >= 0 for step in (1, 2)]
        found.append(led[at[into[0] & ~into[1]]])
    return np.concatenate(found) if found else np.zeros(0, np.uint64)


def _form(sites: Sites, at: NDArray[np.uint64], code: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Measure a pad at ``at``, whose bytes are ``code`` (uint8[n, around]), from others: how
    many bytes of NOPs there are, and the first of them; all zeros where it is none."""
    arch = sites.arch
    ip = at + np.uint64(sites.lead)
    state, _, width, _ = arch.decode(code[:, : arch.width], ip, sites.abi)
    out = np.zeros((len(at), 1 + arch.width), np.uint8)
    out[:, 0] = arch.prefix(code)
    out[:, 1:] = code[:, : arch.width]
    out[:, 1:][np.arange(arch.width) >= width[:, None]] = 0
    out[state != State.NOP] = 0
    return out


def _forms(sites: Sites, begin: NDArray[np.uint64]) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
    """The pads that the image's sites have, as _form() has them, uint8[f, k], and the bytes of each
    that are before the function, uint64[f]."""
    image, arch = sites.original, sites.arch
    offset = np.where(sites.offset >= 0, image.elf.offset_of(begin, executable=True), -1)
    code, _ = image.elf.gather(offset, arch.around)
    forms = _form(sites, begin, code)
    size, _ = prefixes(image, arch, sites.table_before.value[sites.row])
    rows = np.column_stack([forms, size.astype(np.uint8)])[forms.any(axis=1)]
    if not len(rows):
        return forms[:0], begin[:0]
    found, count = np.unique(rows, axis=0, return_counts=True)
    found = found[count * RARE >= len(rows)]
    return found[:, :-1], found[:, -1].astype(np.uint64)
