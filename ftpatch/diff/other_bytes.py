# SPDX-License-Identifier: MIT
"""Bytes that differ outside of sites and records, between images of one layout."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import Changes, Kind
from ftpatch.core.columns import addresses
from ftpatch.diff.code_text import code_text, to_instruction, whole_instructions
from ftpatch.diff.header_fields import field_differences
from ftpatch.diff.relocatable_files import call_entries, header_differences
from ftpatch.diff.relocation_entries import relocation_differences
from ftpatch.diff.site_pairs import Row, literal_offsets
from ftpatch.elf.headers import Section
from ftpatch.elf.relocatable import LAID
from ftpatch.ftrace.sites import Sites

__all__ = ["byte_differences", "same_layout"]

STEP = 8 << 20
"""Bytes compared at a time."""
MAX_SHOWN = 10_000
"""Stretches of differing bytes to report one by one."""
GAP = 4
"""Differing bytes at most this far apart are one difference."""
ELF_HEADER = 64
"""Bytes of an ELF header, at most."""
RELOCATION_WORDS = 3
"""Words of the longest relocation entry."""


def same_layout(old: Sites, new: Sites) -> bool:
    """Return whether all sections and segments lie at the same places; of relocatable files those
    that will be loaded."""
    # A tracer adds segments to a program, which are told as what is laid in.
    shown = (s.image if s.image.is_relocatable else s.original for s in (old, new))
    first, second = (image.elf.skeleton for image in shown)
    if old.image.is_relocatable and new.image.is_relocatable:
        kept = [
            [
                (s.name, s.type, s.offset)
                for s in side.sections
                if s.flags & Section.SHF_ALLOC and s.name not in LAID
            ]
            for side in (first, second)
        ]
        return kept[0] == kept[1]
    return first == second


def byte_differences(old: Sites, new: Sites) -> Iterator[Row]:
    """(kind, address, file offset, symbol, old, new) of each stretch of differing bytes, and of
    what one file has behind the end of the other."""
    ends = [_end(sites) for sites in (old, new)]
    common = min(ends)
    shown, pieces = 0, _pieces(old, new)
    for differing in _differing(old, new, common):
        differing = differing[~_owned(old, differing) & ~_owned(new, differing)]
        for told in (relocation_differences, header_differences, field_differences):
            within, rows = told(old, new, differing)
            yield from rows
            differing = differing[~within]
        stretches = _stretches(differing, pieces)
        for start, end, known in stretches[: MAX_SHOWN - shown]:
            yield _row(old, new, start, end, known)
        shown += len(stretches)
    if shown > MAX_SHOWN:
        yield "data", None, common, "", f"{shown - MAX_SHOWN} more stretches of bytes", ""
    if ends[0] != ends[1]:
        more, less = (f"{end - common} bytes" if end > common else "" for end in ends)
        yield "appended", None, common, "", more, less
    signatures = [len(sites.image.data) - sites.image.end for sites in (old, new)]
    laid = [sum(b.laid for b in s.blocks) for s in (old, new)]
    if old.image.path == new.image.path:  # what it was is a view of what it is, without the end
        signatures[0] += sum(len(block.cut) for block in new.blocks)
        laid[0] = 0
    for kind, sizes in (
        ("signature", signatures),
        ("laid in", laid),
        ("journal", [sum(b.end - b.start for b in s.blocks) for s in (old, new)]),
    ):
        if sizes[0] != sizes[1]:
            old_size, new_size = (f"{size} bytes" if size else "" for size in sizes)
            yield kind, None, max(ends), "", old_size, new_size


def _end(sites: Sites) -> int:
    """Start of what ftpatch inserted: the length before the first of its blocks."""
    blocks = sites.blocks
    return blocks[-1].length - len(blocks[-1].cut) if blocks else sites.image.end


def _differing(old: Sites, new: Sites, common: int) -> Iterator[NDArray[np.int64]]:
    """Offsets of differing bytes below ``common``, int64[n], a part of the file at a time."""
    shared = _by_journal(old, new)
    if shared is not None:
        where = shared[shared < common]
        yield where[old.image.data[where] != new.image.data[where]]
        return
    if not (old.image.elf.mapped and new.image.elf.mapped):
        yield np.flatnonzero(old.image.data[:common] != new.image.data[:common])
        return
    # Read, not by way of the mapping: the pages of two kernels would all stay in memory.
    with old.image.path.open("rb") as first, new.image.path.open("rb") as second:
        for start in range(0, common, STEP):
            size = min(STEP, common - start)
            a, b = (np.fromfile(file, np.uint8, size) for file in (first, second))
            if len(a) == len(b) and not np.array_equal(a, b):
                yield np.flatnonzero(a != b) + start


def _by_journal(old: Sites, new: Sites) -> NDArray[np.int64] | None:
    """Offsets that the journal names, if both images are views of one file; else None."""
    if old.image.path != new.image.path:
        return None
    where, within = Changes.concat([block.changes for block in new.blocks]).spread()
    return np.unique(where[within])


def _pieces(old: Sites, new: Sites) -> NDArray[np.int64]:
    """(start, end), file offsets, int64[n, 2], of the code that the journals say was changed: each
    begins with an instruction."""
    changes = Changes.concat([b.changes for s in (old, new) for b in s.blocks])
    changes = changes.take(changes.kind == Kind.CODE)
    both = np.stack([changes.offset, changes.offset + changes.width], axis=1)
    return np.unique(both, axis=0)


def _stretches(
    differing: NDArray[np.int64], pieces: NDArray[np.int64]
) -> list[tuple[int, int, bool]]:
    """Differing file offsets, int64[n], as (start, end, whether that is one of the pieces)."""
    at = np.searchsorted(pieces[:, 0], differing, side="right") - 1
    known = at >= 0
    if len(pieces):
        known &= differing < pieces[at, 1]
    found = [(*pieces[row].tolist(), True) for row in np.unique(at[known]).tolist()]
    rest = differing[~known]
    cuts = np.flatnonzero(np.diff(rest) > GAP) + 1
    parts = np.split(rest, cuts) if len(rest) else []
    return sorted(found + [(int(part[0]), int(part[-1]) + 1, False) for part in parts])


def _owned(sites: Sites, where: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Test which file offsets are within a site's code or literal, a slot of the table or the
    relocation of a slot: what the pairs of sites already tell."""
    word = sites.image.elf.word
    relocations = sites.original.relocations
    rows = sites.table_before.relocation
    rows = rows[rows >= 0]
    parts: list[tuple[NDArray[np.int64], NDArray[np.uint8] | int]] = [
        (sites.offset, sites.width),
        (sites.table_before.offset, word),
        (relocations.entry[rows], RELOCATION_WORDS * word),
        (literal_offsets(sites), 8),
        *call_entries(sites),
    ]
    start = np.concatenate([offset for offset, _ in parts])
    end = np.concatenate([offset + width for offset, width in parts])
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    if not len(start):
        return np.zeros(len(where), bool)
    at = np.searchsorted(start, where, side="right") - 1
    return np.asarray((at >= 0) & (where < end[at]))


def _row(old: Sites, new: Sites, start: int, end: int, known: bool) -> Row:
    """A stretch of differing bytes; with ``known`` an instruction begins at its start."""
    elf, sections = old.image.elf, old.image.elf.sections
    load = next((r for r in elf.loads.tolist() if r[2] <= start < r[2] + r[1]), None)
    address = None if load is None else load[0] + start - load[2]
    symbol, kind = "", "header" if end <= ELF_HEADER else "data"
    if any(s.type == Section.SHT_RELR and s.offset <= start < s.offset + s.size for s in sections):
        kind = "relocation"
    elif address is not None and _is_code(old, address):
        kind = "code"
        widen = to_instruction if known else whole_instructions
        low, high = widen(old, address, address + end - start)
        start, end, address = start - (address - low), start + high - address, low
    if address is not None:
        symbol = old.image.kallsyms.places(addresses(address))[0]
    sides = [sites.image.data[start:end].tobytes() for sites in (old, new)]
    if kind == "code" and address is not None:
        words = [
            code_text(sites, side, address) for sites, side in zip((old, new), sides, strict=True)
        ]
    else:
        words = [_short(side) for side in sides]
    return kind, address, start, symbol, words[0], words[1]


def _is_code(sites: Sites, address: int) -> bool:
    where = addresses(address)
    return bool(sites.image.elf.offset_of(where, executable=True)[0] >= 0)


def _short(side: bytes) -> str:
    """Bytes in hexadecimal, the first 24 of them."""
    return side[:24].hex(" ") + (" ..." if len(side) > 24 else "")
