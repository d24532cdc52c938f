# SPDX-License-Identifier: MIT
"""The stub that carries the ops pointer where .rela.dyn has no room for a literal's relocation.

adrp x11, ftrace_nop_ops
add  x11, x11, #:lo12:ftrace_nop_ops
b    the instruction of ftrace_caller behind its own load of x11
"""

from __future__ import annotations

import numpy as np

from .independent import R_NONE, Vmlinux

__all__ = ["STUB_SIZE", "needs_stub", "reads_as_stub", "was_padding"]

STUB_SIZE = 12
NOP = bytes.fromhex("1f2003d5")


def needs_stub(original: Vmlinux, calls: int) -> bool:
    """Whether the literals of so many sites have too few entries: the free ones of .rela.dyn, or,
    where the table itself is relocated by it, those of the dropped records."""
    if not original.call_ops or not len(original.rela):  # not relocatable: the value does
        return False
    start, end = original.table
    own = (original.rela["offset"] >= start) & (original.rela["offset"] < end)
    free = int((original.rela["info"] == R_NONE).sum())
    return calls > free and not own.any()


def reads_as_stub(original: Vmlinux, patched: Vmlinux, at: int) -> bool:
    """Whether Capstone reads the stub at an address, with the right pointer and way on."""
    code = patched.code(np.array([at], np.uint64), STUB_SIZE)[0].tobytes()
    adrp, add, branch = list(patched.disassembler.disasm_lite(code, at))
    assert [insn[2] for insn in (adrp, add, branch)] == ["adrp", "add", "b"], (adrp, add, branch)
    page, low = int(adrp[3].split("#")[1], 16), int(add[3].split("#")[1], 16)
    assert adrp[3].startswith("x11, ")
    assert add[3].startswith("x11, x11, ")
    caller = original.address("ftrace_caller")
    head = original.code(np.array([caller], np.uint64), 16)[0].tobytes()
    loads = [text[2:] for text in original.disassembler.disasm_lite(head, caller)]
    # It goes on right behind `ldur x11, [x11, #-0x10]`.
    behind = loads.index(("ldur", "x11, [x11, #-0x10]")) + 1
    assert page + low == original.address("ftrace_nop_ops")
    assert int(branch[3].removeprefix("#"), 16) == caller + 4 * behind
    return True


def was_padding(original: Vmlinux, at: int) -> bool:
    """Whether these bytes were zeros or NOPs that no symbol and no record claims."""
    code = original.code(np.array([at], np.uint64), STUB_SIZE)[0].tobytes()
    assert code in (bytes(STUB_SIZE), NOP * 3), code.hex()
    records = original.records
    assert not ((records + np.uint64(32) > at) & (records < at + STUB_SIZE)).any()
    return True
