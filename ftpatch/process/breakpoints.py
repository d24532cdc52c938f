# SPDX-License-Identifier: MIT
"""Breakpoints that somebody else has set in a process: a debugger, or the kernel for a uprobe.

file     55 48 89 e5    push %rbp; mov %rsp,%rbp
memory   cc 48 89 e5    int3
"""

from __future__ import annotations

import numpy as np

from ftpatch.arch import arch_of, supports
from ftpatch.arch.move import is_breakpoint
from ftpatch.process.loaded import Loaded

__all__ = ["BREAKPOINT", "END_IT", "has_breakpoint"]

BREAKPOINT = "a breakpoint that is not in the file"
END_IT = "end what set it, such as gdb, or a uprobe of perf or bpftrace"
LOOKED_AT = 16
"""Bytes of code: of at least one instruction."""


def has_breakpoint(loaded: Loaded, address: int) -> bool:
    """Test whether an image has a breakpoint at a link address in memory, and not in its file.
    Raises InputError for memory that cannot be read."""
    elf = loaded.file.elf
    arch = arch_of(elf.skeleton.machine, elf.skeleton.elf_class)
    if arch is None or not supports(arch.name, "move"):
        return False
    at = int(elf.offset_of(np.array([address], np.uint64), executable=True)[0])
    if at < 0:
        return False
    now, before = (
        data[at : at + LOOKED_AT].tobytes() for data in (loaded.image.data, loaded.file.data)
    )
    return now != before and is_breakpoint(arch.name, now) and not is_breakpoint(arch.name, before)
