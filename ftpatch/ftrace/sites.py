"""Records become sites: where each is, what stands there, and what it calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Abi, Arch, State, arch_of
from ftpatch.arch.contract import U8, U64
from ftpatch.core.columns import among
from ftpatch.core.journal import Block, read_blocks
from ftpatch.errors import InputError, NoTable
from ftpatch.ftrace.abi import certain_abi, read_abi
from ftpatch.ftrace.call_adjust import adjust
from ftpatch.ftrace.callees import CALLERS, Targets, read_targets
from ftpatch.ftrace.find_kernel_table import find_kernel_table
from ftpatch.ftrace.find_table import find_table
from ftpatch.ftrace.function_entries import function_starts, prefixes
from ftpatch.ftrace.site_code import read_code
from ftpatch.ftrace.table import Span, Table, read_table, table_span
from ftpatch.image import Image
from ftpatch.image.injected import laid_in_by
from ftpatch.image.language import how_to_compile
from ftpatch.io.known_files import OTHER, elf_words

__all__ = ["Sites", "read_sites"]

FENTRY = "__fentry__"
NO_TABLE = "no __mcount_loc and no __patchable_function_entries"


@dataclass(frozen=True)
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


def read_sites(image: Image, *, named: bool = False, bare: bool = False) -> Sites:
    """The sites of an image; with ``named`` only of a table that a section or a symbol names: of
    many files few have one, and what looks like one need not be. Raises NoTable where there is
    none, unless ``bare`` images will do, which have no sites; InputError where it cannot be read.
    """
    skeleton = image.elf.skeleton
    arch = arch_of(skeleton.machine, skeleton.elf_class)
    if arch is None:
        raise InputError(image.path, f"{elf_words(image.data.data)}, which is not supported", OTHER)
    blocks = read_blocks(image.path, image.data[: image.end])
    changes = [block.changes for block in blocks]
    length = blocks[-1].length - len(blocks[-1].cut) if blocks else None
    original = image.altered(changes, old=True, length=length) if blocks else image
    image = image.laid_out_as(original)
    left = image.altered(reversed(changes)) if blocks else image
    span = table_span(original, arch)
    # What is not linked has sections. A program that has some, and no table among them, has none.
    if span is None and image.is_kernel and not image.is_loose:
        span = find_kernel_table(original, arch)
    elif span is None and not image.elf.sections and not named:
        span = find_table(original, arch)
    if span is None and bare:
        span = Span("", ())
    if span is None:
        if image.container == "module":
            raise NoTable(image.path, NO_TABLE, "the functions of this module are not traced")
        by = laid_in_by(image)
        if by is not None:
            raise NoTable(image.path, NO_TABLE, f"`ftpatch {by} FILE` lists what was inserted")
        fentry = FENTRY in arch.mcount_names
        raise NoTable(image.path, NO_TABLE, how_to_compile(image, arch.pad_nops, fentry=fentry))
    before = read_table(original, arch, span)
    now = before
    if blocks:  # a module's headers may tell of fewer records now
        now = read_table(image, arch, (table_span(image, arch) if image.is_loose else None) or span)
    live = np.flatnonzero(~among(before.value, arch.skips))
    record = before.value[live]
    null_seen = bool((before.value[:1] == 0).any())
    prefix, placed = np.zeros(len(live), np.int64), np.ones(len(live), bool)
    abi = certain_abi(original, arch, null_seen=null_seen)
    if abi is None:
        found, certain = prefixes(original, arch, record)
        pads = "," in span.name
        abi = read_abi(original, arch, record, found, null_seen=null_seen, pads=pads)
        if abi.kernel or not abi.pad:  # the kernel's call_adjust knows one prefix for all
            prefix = np.full(len(live), abi.prefix, np.int64)
            if abi.pad and not len(function_starts(original)):
                placed = certain  # and which one that is, only names can tell
        else:
            prefix, placed = found, certain
    ip = adjust(original, arch, abi, record, prefix)
    offset = image.elf.offset_of(ip - np.uint64(arch.lead(abi)), executable=True)

    def decode(of: Image) -> tuple[U8, U8, U64, U8, NDArray[np.bool_]]:
        code, there = read_code(of, arch, abi, ip, offset)
        state, addr, width, got = arch.decode(code, ip, abi)
        state[~there] = State.UNEXPECTED
        return code, state, np.where(state == State.CALL, addr, np.uint64(0)), width, got

    code, state, addr, width, got = decode(image)
    # A site must be in one piece: its last byte where the first says it is.
    last = ip - np.uint64(arch.lead(abi)) + width - np.uint64(1)
    whole = image.elf.offset_of(last, executable=True) == offset + width - 1
    offset = np.where(whole, offset, -1)
    state[~whole] = State.UNEXPECTED
    addr = np.where(whole, addr, np.uint64(0))
    calls = state == State.CALL
    targets = read_targets(image, arch, addr[calls], got[calls])
    # A pad that lies wholly before its function leaves what the function happens to begin with.
    compiled = decode(original)[1] if blocks else state
    known = targets.are((*arch.mcount_names, *CALLERS))
    entered = (compiled == State.NOP) | (calls & np.isin(addr, known))
    kept = ((prefix == 0) | image.is_traced | _mostly(entered, prefix)) & (ip != 0)
    rows = live[kept]
    if image.is_loose and blocks:
        gone = ~np.isin(before.value, now.value)
    else:
        gone = among(now.value, arch.skips)
    return Sites(
        image,
        original,
        left,
        blocks,
        arch,
        abi,
        span.name,
        now,
        before,
        rows,
        ip[kept],
        offset[kept],
        code[kept],
        state[kept],
        addr[kept],
        width[kept],
        got[kept],
        placed[kept],
        dropped=gone[rows],
        targets=targets,
        null=len(before.value) - len(live),
        unexecuted=int((~kept).sum()),
    )


def _mostly(entered: NDArray[np.bool_], prefix: NDArray[np.int64]) -> NDArray[np.bool_]:
    """``entered``, or whether it holds for most records of the same prefix: one damaged site among
    many is no function without a pad."""
    _, which = np.unique(prefix, return_inverse=True)
    share = np.bincount(which, entered) / np.maximum(np.bincount(which), 1)
    return np.asarray(entered | (share[which] > 0.5))
