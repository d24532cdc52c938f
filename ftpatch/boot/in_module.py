# SPDX-License-Identifier: MIT
"""The boot tracer in a module: a copy for each section that has traced sites.

The loader places sections where it likes (.init.text far from .text, and frees it). So a copy
counts its places from where this layout would begin if its section were where the layout has it:

    places      ip - start of .text.ftpatch, both in the file's layout
    the copy    the call's return address - (a symbol of its section + what the layout adds to that)

They are distances in one layout then, whichever copy sent them, and the reader needs no more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import COPY, BootTracer, TracerCode, Wanted
from ftpatch.elf.headers import Section
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import SiteRefused, UsageError
from ftpatch.ftrace.addr import Callee
from ftpatch.ftrace.laid_callee import DATA, Entry, LaidCallee, Reference, place_of_code
from ftpatch.ftrace.plan import Plan, plan_enable, plan_laid
from ftpatch.ftrace.sites import Sites

__all__ = ["plan_in_module"]

DISTANCE = 1 << 24
"""Any distance of the word: a loader fills in the real one."""
NAME = "ftpatch_boot"


def plan_in_module(
    sites: Sites,
    mask: NDArray[np.bool_],
    last: NDArray[np.bool_],
    tracer: BootTracer,
    wanted: Wanted,
    most: int,
) -> Plan:
    """Plan calls to a tracer that is laid into the module, from the sites in ``mask``, bool[n];
    those in ``last`` stop it. ``wanted`` has any ``word`` if there is one, which begins with
    ``most``. Raises UsageError for an architecture whose modules cannot have it, and SiteRefused.
    """
    path = sites.image.path
    if not tracer.field:
        raise UsageError(path, f"no boot tracer for {tracer.name} modules", "use --to SYMBOL")
    if not mask.any():  # one of many modules
        return plan_enable(sites, mask, Callee(0))
    counts = wanted.word is not None
    wanted = replace(wanted, word=DISTANCE if counts else None, apart=True)
    code = tracer.assemble(wanted)
    stride = -(-len(code.code) // COPY) * COPY
    section = _sections(sites)
    used = np.unique(section[mask])
    copy = np.searchsorted(used, section)
    start = place_of_code(sites.image, COPY)
    entries, references = list[Entry](), list[Reference]()
    for number, index in enumerate(used.tolist()):
        own = sites.image.elf.sections[index]
        at = stride * number
        ends = (len(code.code) if not code.last else code.last, len(code.code))
        entries.append(Entry(f"{NAME}{own.name}", at + code.entry, ends[0] - code.entry))
        if code.last:
            entries.append(Entry(f"{NAME}_last{own.name}", at + code.last, ends[1] - code.last))
        references += _references(sites, code, own, at, start)
    step = 2 if code.last else 1
    return plan_laid(
        sites,
        mask,
        LaidCallee(
            code=code.code.ljust(stride, b"\0") * len(used),
            align=COPY,
            start=start,
            entries=tuple(entries),
            called=np.where(mask, copy * step + (last if code.last else 0), 0),
            data=most.to_bytes(4, "little") + bytes(4) if counts else b"",
            named=f"{NAME}_word",
            references=tuple(references),
            type=tracer.field,
        ),
    )


def _sections(sites: Sites) -> NDArray[np.intp]:
    """Index of the section of each site, intp[n]; 0 for none."""
    wanted = Section.SHF_ALLOC | Section.SHF_EXECINSTR
    found = np.zeros(len(sites), np.intp)
    for section in sites.image.elf.sections:
        if section.flags & wanted == wanted and section.type != Section.SHT_NOBITS:
            inside = sites.ip - np.uint64(section.address) < np.uint64(section.size)
            found[inside] = section.index
    return found


def _references(
    sites: Sites, code: TracerCode, section: Section, at: int, start: int
) -> list[Reference]:
    """What a loader must fill into the copy ``at`` bytes behind ``start``."""
    symbols = sites.image.symbols
    rows = np.flatnonzero(symbols.section == section.index)
    if not len(rows):
        raise SiteRefused(sites.image.path, f"no symbol of section {section.name}")
    anchor = int(rows[(symbols.type[rows] != Symbols.STT_SECTION).argmin()])
    bias = start - int(symbols.value[anchor])
    return [
        Reference(at + field.at, DATA, field.more)
        if field.word
        else Reference(at + field.at, anchor, field.more + bias)
        for field in code.fields
    ]
