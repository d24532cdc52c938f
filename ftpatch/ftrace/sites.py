# SPDX-License-Identifier: MIT
"""Sites, read from records: the place, code and callee of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Abi, Arch, State, arch_of
from ftpatch.arch.contract import U8, U64
from ftpatch.core.columns import among
from ftpatch.core.journal import Block
from ftpatch.elf.known_files import elf_words, supported
from ftpatch.elf.segments import header_field
from ftpatch.errors import InputError, NoTable
from ftpatch.ftrace.abi import certain_abi, read_abi
from ftpatch.ftrace.call_adjust import adjust
from ftpatch.ftrace.callees import CALLERS, Targets, read_targets
from ftpatch.ftrace.find_kernel_table import find_kernel_table
from ftpatch.ftrace.find_table import find_table
from ftpatch.ftrace.function_entries import function_starts, prefixes
from ftpatch.ftrace.null_records import skips_null
from ftpatch.ftrace.site_code import read_code
from ftpatch.ftrace.table import Span, Table, read_table, table_span
from ftpatch.image import Image
from ftpatch.image.injected import laid_in_by
from ftpatch.image.language import how_to_compile

__all__ = ["Sites", "read_sites", "reread"]

FENTRY = "__fentry__"
NO_TABLE = "no __mcount_loc and no __patchable_function_entries"


@dataclass(frozen=True, kw_only=True)
class Sites:
    """The n sites of an image, in the order of its table.

    ``original`` is the image before all of the journal, ``left`` as the journal says that it was
    left; both are the image itself where there is no journal. ``table`` has all records as they
    are now (those dropped from a module are not there any more), ``table_before`` as they were,
    ``row`` intp[n] the row of each site there.

    ``ip`` uint64[n]; ``offset`` int64[n]: file offset of the site's code, which begins ``lead``
    bytes before ip, -1 where that is not in executable text; ``code`` uint8[n, k] and ``state``,
    ``addr``, ``width``, ``got`` as the architecture decodes it; ``placed`` bool[n]: it is certain
    that the site is executed from its start; ``dropped`` bool[n]: the record was dropped. ``null``
    counts null records, ``unexecuted`` those whose pad lies wholly before the function.
    """

    image: Image
    original: Image = field(repr=False)
    left: Image = field(repr=False)
    blocks: Sequence[Block] = field(repr=False)
    arch: Arch
    abi: Abi
    table_name: str
    table: Table = field(repr=False)
    table_before: Table = field(repr=False)
    row: NDArray[np.intp]
    ip: NDArray[np.uint64]
    offset: NDArray[np.int64]
    code: NDArray[np.uint8]
    state: NDArray[np.uint8]
    addr: NDArray[np.uint64]
    width: NDArray[np.uint8]
    got: NDArray[np.bool_]
    placed: NDArray[np.bool_]
    dropped: NDArray[np.bool_]
    targets: Targets
    null: int
    unexecuted: int

    def __len__(self) -> int:
        return len(self.ip)

    @property
    def lead(self) -> int:
        """Bytes of a site's code before its ip."""
        return self.arch.lead(self.abi)

    @property
    def branch(self) -> NDArray[np.uint64]:
        """Addresses of the sites' branches, uint64[n], as Arch.reachable() takes them."""
        return self.arch.branch_at(self.ip, self.width, self.abi)


def read_sites(image: Image, *, named: bool = False, bare: bool = False) -> Sites:
    """The sites of an image; with ``named`` only of a table that a section or a symbol names: of
    many files few have one, and what looks like one need not be. Raises NoTable where there is
    none, unless ``bare`` images will do, which have no sites; InputError where it cannot be read.
    """
    arch = _arch_of(image)
    blocks = image.blocks
    image, original, left = _versions(image, blocks)
    span = _find_span(image, original, arch, named=named) or (Span("", ()) if bare else None)
    if span is None:
        raise _no_table(image, arch)
    before = read_table(original, arch, span)
    now = before
    if blocks:  # a module's table may be shorter now
        own = table_span(image, arch) if image.is_relocatable else None
        now = read_table(image, arch, own or span)
    live = np.flatnonzero(~among(before.value, arch.skips))
    abi, prefix, placed = _prefixed(original, arch, span, before, live)
    ip = adjust(original, arch, abi, before.value[live], prefix)
    offset = image.elf.offset_of(ip - np.uint64(arch.lead(abi)), executable=True)
    code = _decode(image, arch, abi, ip, offset)
    whole = _in_one_piece(image, arch, abi, ip, offset, width=code.width)
    offset = np.where(whole, offset, -1)
    code = code.where(whole)
    calls = code.state == State.CALL
    targets = read_targets(image, arch, code.addr[calls], code.got[calls])
    # A pad that lies wholly before its function leaves what the function happens to begin with.
    compiled = _decode(original, arch, abi, ip, offset).state if blocks else code.state
    known = targets.are((*arch.mcount_names, *CALLERS))
    entered = (compiled == State.NOP) | (calls & np.isin(code.addr, known))
    kept = ((prefix == 0) | image.has_table | _mostly(entered, prefix)) & (ip != 0)
    row = live[kept]
    return Sites(
        image=image,
        original=original,
        left=left,
        blocks=blocks,
        arch=arch,
        abi=abi,
        table_name=span.name,
        table=now,
        table_before=before,
        row=row,
        ip=ip[kept],
        offset=offset[kept],
        code=code.code[kept],
        state=code.state[kept],
        addr=code.addr[kept],
        width=code.width[kept],
        got=code.got[kept],
        placed=placed[kept],
        dropped=_dropped(image, arch, before, now, blocks)[row],
        targets=targets,
        null=len(before.value) - len(live),
        unexecuted=int((~kept).sum()),
    )


def reread(sites: Sites, image: Image) -> Sites:
    """The same sites with the code of another version of their image, which has the same layout."""
    code = _decode(image, sites.arch, sites.abi, sites.ip, sites.offset).where(sites.offset >= 0)
    calls = code.state == State.CALL
    return replace(
        sites,
        image=image,
        code=code.code,
        state=code.state,
        addr=code.addr,
        width=code.width,
        got=code.got,
        targets=read_targets(image, sites.arch, code.addr[calls], code.got[calls]),
    )


def _arch_of(image: Image) -> Arch:
    skeleton = image.elf.skeleton
    arch = arch_of(skeleton.machine, skeleton.elf_class)
    if arch is None:
        reason = f"{elf_words(image.data.data)}, which is not supported"
        raise InputError(image.path, reason, supported(image.data.data))
    if image.elf.has_header and (other := arch.other_abi(header_field(image.elf, "e_flags"))):
        reason = f"{elf_words(image.data.data)} of {other}, which is not supported"
        raise InputError(image.path, reason)
    return arch


def _versions(image: Image, blocks: Sequence[Block]) -> tuple[Image, Image, Image]:
    """The image now, before all of its journal, and as the journal left it."""
    if not blocks:
        return image, image, image
    changes = [block.changes for block in blocks]
    length = blocks[-1].length - len(blocks[-1].cut)
    original = image.altered(changes, old=True, length=length)
    image = image.laid_out_as(original)
    return image, original, image.altered(reversed(changes))


def _find_span(image: Image, original: Image, arch: Arch, *, named: bool) -> Span | None:
    """The place of the table, or None. Where nothing names it, it is found by contents, but only
    in a kernel or in a program without sections."""
    span = table_span(original, arch)
    if span is not None:
        return span
    if image.is_kernel and not image.is_relocatable:
        return find_kernel_table(original, arch)
    if not image.elf.sections and not named:
        return find_table(original, arch)
    return None


def _no_table(image: Image, arch: Arch) -> NoTable:
    """Explain why an image has no table, and what to do."""
    if image.is_module:
        return NoTable(image.path, NO_TABLE, "the functions of this module are not traced")
    by = laid_in_by(image)
    if by is not None:
        return NoTable(image.path, NO_TABLE, f"`ftpatch {by} FILE` lists what was inserted")
    fentry = FENTRY in arch.mcount_names
    return NoTable(image.path, NO_TABLE, how_to_compile(image, arch.pad_nops, fentry=fentry))


def _prefixed(
    original: Image, arch: Arch, span: Span, table: Table, live: NDArray[np.intp]
) -> tuple[Abi, NDArray[np.int64], NDArray[np.bool_]]:
    """The ABI, and for each ``live`` record its distance to its function in bytes, int64[n], and
    whether that is certain, bool[n]."""
    record = table.value[live]
    none, all_ = np.zeros(len(live), np.int64), np.ones(len(live), bool)
    null_seen = skips_null(original, table.value)
    abi = certain_abi(original, arch, null_seen=null_seen)
    if abi is not None:
        return abi, none, all_
    found, certain = prefixes(original, arch, record)
    pads = "," in span.name
    abi = read_abi(original, arch, record, found, null_seen=null_seen, pads=pads)
    if not abi.kernel and abi.pad:
        return abi, found, certain
    # The kernel's call_adjust has one prefix for all records, and only symbols tell which.
    placed = certain if abi.pad and not len(function_starts(original)) else all_
    return abi, np.full(len(live), abi.prefix, np.int64), placed


@dataclass(frozen=True, kw_only=True)
class _Decoded:
    """Code of n sites and what it is, as in Sites."""

    code: U8
    state: U8
    addr: U64
    width: U8
    got: NDArray[np.bool_]

    def where(self, whole: NDArray[np.bool_]) -> _Decoded:
        """Mark the sites that are not ``whole``, bool[n], as unexpected."""
        state = np.where(whole, self.state, np.uint8(State.UNEXPECTED))
        return replace(self, state=state, addr=np.where(whole, self.addr, np.uint64(0)))


def _decode(image: Image, arch: Arch, abi: Abi, ip: U64, offset: NDArray[np.int64]) -> _Decoded:
    code, there = read_code(image, arch, abi, ip, offset)
    state, addr, width, got = arch.decode(code, ip, abi)
    state[~there] = State.UNEXPECTED
    return _Decoded(
        code=code,
        state=state,
        addr=np.where(state == State.CALL, addr, np.uint64(0)),
        width=width,
        got=got,
    )


def _in_one_piece(
    image: Image, arch: Arch, abi: Abi, ip: U64, offset: NDArray[np.int64], *, width: U8
) -> NDArray[np.bool_]:
    """Test whether the last byte of each site is in the file at its place after the first,
    bool[n]."""
    last = ip - np.uint64(arch.lead(abi)) + width - np.uint64(1)
    return np.asarray(image.elf.offset_of(last, executable=True) == offset + width - 1)


def _dropped(
    image: Image, arch: Arch, before: Table, now: Table, blocks: Sequence[Block]
) -> NDArray[np.bool_]:
    """Test which of the records ``before`` were dropped, bool[m]."""
    if image.is_relocatable and blocks:
        return ~np.isin(before.value, now.value)
    return among(now.value, arch.skips)


def _mostly(entered: NDArray[np.bool_], prefix: NDArray[np.int64]) -> NDArray[np.bool_]:
    """``entered``, or what holds for most records with the same prefix: one damaged site among many
    does not make a function without a pad."""
    _, which = np.unique(prefix, return_inverse=True)
    share = np.bincount(which, entered) / np.maximum(np.bincount(which), 1)
    return np.asarray(entered | (share[which] > 0.5))
