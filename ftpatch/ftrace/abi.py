# SPDX-License-Identifier: MIT
"""ABI of an image's sites: read off the image, not off its version, since
distributions backport."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Abi, Arch, State
from ftpatch.arch.init_text import init_text
from ftpatch.core.columns import addresses
from ftpatch.elf.dynamic import Tag, dynamic_tags
from ftpatch.ftrace.call_adjust import adjust
from ftpatch.ftrace.callees import read_targets
from ftpatch.ftrace.local_entries import entered_at
from ftpatch.ftrace.site_code import read_code
from ftpatch.image import Image

__all__ = ["certain_abi", "got_base", "read_abi"]

NOP_SIZE = 5
"""Bytes of the NOP that ``x86_nops[NOP_SIZE]`` points at."""

TRAMPOLINES = "__ftrace_hotpatch_trampolines_start"
"""Symbol of the trampolines that a kernel's ``ftrace_init_nop`` hands out."""


def certain_abi(image: Image, arch: Arch, *, null_seen: bool) -> Abi | None:
    """The abi of a kernel or module that has the compiled-in callee, so that its ftrace_init
    expects calls whatever stands there now; None for any other image."""
    if not image.has_table or arch.mcount_is_pad:
        return None
    mcount = _symbol(image, arch)
    if not mcount:
        return None
    nop = arch.module_nop if image.is_relocatable else _own_nop(image, arch)
    chosen = not nop and image.symbols.find("ideal_nops") is not None
    return Abi(
        mcount=mcount,
        nop=nop,
        chosen=arch.chosen_nops if chosen else (),
        unchecked=_unchecked(image, arch),
        kernel=True,
        null_seen=null_seen,
    )


def read_abi(
    image: Image,
    arch: Arch,
    record: NDArray[np.uint64],
    prefix: NDArray[np.int64],
    *,
    null_seen: bool,
    pads: bool,
) -> Abi:
    """The abi of any other image in its original state; ``record`` and ``prefix`` are those of its
    non-null records. ``pads``: one of several tables is known to list pads."""
    common = _majority(prefix)
    call = Abi(
        kernel=image.has_table,
        null_seen=null_seen,
        got_base=got_base(image),
        unchecked=_unchecked(image, arch),
    )
    pad = replace(call, pad=True, prefix=common)
    as_pad, pad_addr, pad_got = _decode(image, arch, record + prefix.view(np.uint64), pad)
    if image.has_table and int((as_pad == State.NOP).sum()) * 2 < len(record):
        short = replace(pad, stubs=True)
        read = _decode(image, arch, record + prefix.view(np.uint64), short)
        if int((read[0] == State.NOP).sum()) > int((as_pad == State.NOP).sum()):
            pad, (as_pad, pad_addr, pad_got) = short, read
    as_call, addr, got = as_pad, pad_addr, pad_got
    if arch.mcount_is_pad or common:  # else both forms are read alike
        as_call, addr, got = _decode(image, arch, record, call)
    calls = as_call == State.CALL
    if pads or int((as_pad == State.NOP).sum()) >= int(calls.sum()):
        nop_ops = image.symbols.find("ftrace_nop_ops") if common == 8 else None
        return replace(
            pad,
            mcount=_symbol(image, arch),
            nop=_own_nop(image, arch),
            nop_ops=nop_ops or 0 if image.is_kernel else 0,
            trampolines=image.symbols.find(TRAMPOLINES) or 0,
        )
    mcount, mcount_got = _callee(image, arch, addr[calls], got[calls])
    return replace(call, mcount=mcount, mcount_got=mcount_got, nop=_own_nop(image, arch))


def _majority(values: NDArray[np.int64]) -> int:
    if not len(values):
        return 0
    distinct, count = np.unique(values, return_counts=True)
    return int(distinct[count.argmax()])


def _decode(
    image: Image, arch: Arch, entry: NDArray[np.uint64], abi: Abi
) -> tuple[NDArray[np.uint8], NDArray[np.uint64], NDArray[np.bool_]]:
    ip = adjust(image, arch, abi, entry, np.zeros(len(entry), np.int64))
    offset = image.elf.offset_of(ip - np.uint64(arch.lead(abi)))
    code, _ = read_code(image, arch, abi, ip, offset)
    state, addr, _, got = arch.decode(code, ip, abi)
    return state, addr, got


def _symbol(image: Image, arch: Arch) -> int:
    rows = (row for name in arch.mcount_names for row in image.symbols.rows_named(name)[:1])
    found = (entered_at(image, arch, int(row)) for row in rows)
    return next((address for address in found if address), 0)


def _callee(
    image: Image, arch: Arch, addr: NDArray[np.uint64], got: NDArray[np.bool_]
) -> tuple[int, int]:
    """Address and GOT slot of the compiled-in callee. By name; in a file without names it is what
    most sites call."""
    targets = read_targets(image, arch, addr, got)
    named = np.array([name in arch.mcount_names for name in targets.name], bool)
    counts = np.bincount(targets.index(addr), minlength=len(targets.addr))
    chosen: dict[bool, int] = {False: 0, True: 0}
    for slot in (False, True):
        rows = np.flatnonzero((targets.got == slot) & named)
        if not len(rows) and not named.any():
            rows = np.flatnonzero((targets.got == slot) & (counts * 2 > len(addr)))
        if len(rows):
            chosen[slot] = int(targets.addr[rows[counts[rows].argmax()]])
    if image.has_table or not chosen[False]:
        chosen[False] = _symbol(image, arch) or chosen[False]
    return chosen[False], chosen[True]


def got_base(image: Image) -> int:
    """_GLOBAL_OFFSET_TABLE_, which DT_PLTGOT names on x86 (i386 psABI, "Dynamic Section")."""
    base = dynamic_tags(image.elf).get(Tag.PLTGOT)
    return base or image.symbols.find("_GLOBAL_OFFSET_TABLE_") or 0


def _unchecked(image: Image, arch: Arch) -> tuple[int, int]:
    """Start and end of a kernel's text in which its ftrace_init compares nothing."""
    text = init_text(arch.name)
    if text is None or not image.is_kernel or image.symbols.find(text.sign) is None:
        return 0, 0
    return image.symbols.find(text.start) or 0, image.symbols.find(text.end) or 0


def _own_nop(image: Image, arch: Arch) -> bytes:
    """Read what ``x86_nops[5]`` points at (arch/x86/kernel/alternative.c), if it is a NOP that we
    know; else empty."""
    table = image.symbols.find("x86_nops")
    if table is None:
        return b""
    elf = image.elf
    place = addresses(table + NOP_SIZE * elf.word)
    at = int(elf.offset_of(place)[0])
    if not 0 <= at <= len(elf.data) - elf.word:
        return b""
    pointed = int(elf.offset_of(addresses(elf.word_at(at)))[0])
    if not 0 <= pointed <= len(elf.data) - NOP_SIZE:
        return b""
    nop = elf.data[pointed : pointed + NOP_SIZE].tobytes()
    return nop if nop in arch.own_nops else b""
