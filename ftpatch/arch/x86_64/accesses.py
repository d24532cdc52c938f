# SPDX-License-Identifier: MIT
"""Memory accesses of x86_64 instructions, by mnemonic.

Capstone's own table has many errors (movups, cmpxchg and stos among them, in version 5), so this
one goes by mnemonics, and gives no answer for unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ftpatch.arch.accesses import NEITHER, READ, UNKNOWN, WRITE, Access
from ftpatch.arch.disassemble import engine

__all__ = ["accesses"]

_NEVER = re.compile(r"lea|nop|prefetch|clflush|clwb|cldemote")
"""Instructions with a memory operand that they do not access, as far as breakpoints can see."""
_READ = re.compile(
    r"cmp[bwlq]?|test[bwlq]?|v?u?comis[sd]|bt[wlq]?|v?p?test\w*|call[q]?|jmp[q]?|push\w*|"
    r"i?mul[bwlq]?|i?div[bwlq]?|ldmxcsr|fldcw|f(i?ld|i?addl?|i?mull?|i?subr?|i?divr?|i?comp?)[slt]?|"
    r"fild\w*|fld\w*|scas\w?|lods\w?"
)
"""Those whose last operand, in AT&T order, is memory that they only read."""
_WRITTEN = re.compile(
    r"v?mov(?!dir|s[bwlq]$)\w*|set\w+|stos\w?|pop\w*|f(n?st|ist|isttp)\w*|v?stmxcsr|"
    r"v?p?extr(act)?\w*|v?maskmov\w*|vcvtps2ph"
)
"""... and which only write it."""
_BOTH = re.compile(
    r"(inc|dec|add|sub|adc|sbb|and|or|xor|not|neg|shl|shr|sal|sar|rol|ror|rcl|rcr|shld|shrd|bts|btr|"
    r"btc|xadd|xchg|cmpxchg)[bwlq]?|cmpxchg(8|16)b"
)
"""... and do both. A cmpxchg that compares unequal writes back the old value."""
_MOVS = re.compile(r"movs[bwlq]")
MEMORY = 3
"""CS_OP_MEM."""
REPEAT = (0xF2, 0xF3)


def accesses(code: bytes, address: int) -> Iterator[Access]:
    """Disassemble ``code`` at ``address``, up to the first invalid byte."""
    for insn in engine("x86_64").disasm(code, address):
        repeats = insn.prefix[0] in REPEAT and _is_string(insn)
        yield Access(insn.address, insn.address + insn.size, _kind(insn), repeats)


def _is_string(insn: Any) -> bool:  # noqa: ANN401 - Capstone has no types
    name = insn.mnemonic.split()[-1]
    return re.fullmatch(r"(movs|stos|lods|scas|cmps)[bwlq]", name) is not None


def _kind(insn: Any) -> int:  # noqa: ANN401
    operands = list(insn.operands)
    memory = [number for number, one in enumerate(operands) if one.type == MEMORY]
    name = insn.mnemonic.split()[-1]
    if not memory:
        return NEITHER
    if _MOVS.fullmatch(name) and len(memory) == 2:
        return UNKNOWN  # one is read, and one is written
    if _NEVER.match(name):
        return NEITHER
    if memory[-1] != len(operands) - 1 or len(memory) > 1 or _READ.fullmatch(name):
        return UNKNOWN if name.startswith(("xchg", "xadd", "movdir", "enqcmd")) else READ
    if _BOTH.fullmatch(name):
        return READ | WRITE
    return WRITE if _WRITTEN.fullmatch(name) else UNKNOWN
