# SPDX-License-Identifier: MIT
"""Pads in which a call has no room: -fpatchable-function-entry with too few NOPs."""

from __future__ import annotations

import numpy as np

from ftpatch.arch import State
from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.instruction_set import instruction_set
from ftpatch.ftrace.sites import Sites

__all__ = ["too_short"]

SAMPLE = 8
"""Sites to examine."""


def too_short(sites: Sites) -> str:
    """Explain that all pads of an image are too short, and what to do; empty if they are not."""
    image, arch = sites.original, sites.arch
    if not len(sites) or not (sites.state == State.UNEXPECTED).all():
        return ""
    rows = np.linspace(0, len(sites) - 1, min(len(sites), SAMPLE)).astype(np.intp)
    begin = sites.ip[rows] - np.uint64(sites.lead)
    code, there = image.elf.gather(image.elf.offset_of(begin, executable=True), arch.around)
    sizes, needed = set(), arch.pad_size
    second = instruction_set(arch.name)
    if second is not None and second.holds(code[0].tobytes()):
        needed = second.pad_size
    for at, held, known in zip(begin.tolist(), code, there.tolist(), strict=True):
        size = 0
        for insn in disassemble(arch.name, held.tobytes(), at) if known else ():
            whole = f"{insn.mnemonic} {insn.operands}"
            if not arch.nop_texts & {insn.mnemonic, whole}:
                break
            size += insn.size
        sizes.add(size)
    if 0 in sizes or max(sizes, default=0) >= needed:
        return ""
    size = min(sizes)
    have = f"its pads have {size} byte{'s' * (size > 1)}, but a call takes {needed}"
    return f"{have}; compile with -fpatchable-function-entry={arch.pad_nops}"
