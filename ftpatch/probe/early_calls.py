# SPDX-License-Identifier: MIT
"""Functions that run before a program does: IFUNC resolvers, which the dynamic linker calls while
it relocates, those that constructors of libraries call, and what these call.

No signal handler is there by then, so a trap in one of them is the program's death:

    ld.so: R_X86_64_IRELATIVE  ->  resolver: call __cpu_indicator_init  ->  int3  ->  SIGTRAP
"""

from __future__ import annotations

import numpy as np

from ftpatch.arch import arch_of
from ftpatch.arch.disassemble import disassemble
from ftpatch.elf.relocations import Form
from ftpatch.names.functions import Functions
from ftpatch.probe.interposed import interposed

__all__ = ["called_early"]

MAX_EARLY = 1 << 15
"""Maximum number of functions to look into."""
MAX_SIZE = 1 << 14
"""Maximum size of one (bytes)."""


def called_early(functions: Functions) -> frozenset[int]:
    """Find the link addresses of IFUNC resolvers, by their symbols (STT_GNU_IFUNC) and by
    R_*_IRELATIVE relocations, of functions that libraries call in place of their own, and of what
    they call directly."""
    left = [*functions.resolvers, *_relocated(functions), *interposed(functions.image)]
    found: set[int] = set()
    while left and len(found) < MAX_EARLY:
        around = functions.around(left.pop())
        if around is None or around[0] in found:
            continue
        start, end = around
        found.add(start)
        place = np.array([start], np.uint64)
        offset = int(functions.image.elf.offset_of(place, executable=True)[0])
        if offset < 0:
            continue
        code = functions.image.data[offset : offset + min(end - start, MAX_SIZE)].tobytes()
        insns = disassemble(functions.arch, code, functions.marked(start))
        left += [one.target for one in insns if one.target is not None]
    return frozenset(found)


def _relocated(functions: Functions) -> list[int]:
    image = functions.image
    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    relocations = image.relocations
    if arch is None or not len(relocations.place):
        return []
    rows = (relocations.type == arch.irelative) & (relocations.form != Form.RELR)
    addend = relocations.addend[rows]
    in_place = relocations.form[rows] == Form.REL
    if in_place.any():  # REL: the addend is what the slot holds
        offset = image.elf.offset_of(relocations.place[rows])
        held = [image.elf.word_at(at) if at >= 0 else 0 for at in offset.tolist()]
        addend = np.where(in_place, np.array(held, np.int64), addend)
    return [int(one) for one in addend.tolist()]
