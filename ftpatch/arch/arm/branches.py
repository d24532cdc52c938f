# SPDX-License-Identifier: MIT
"""Branches of 32-bit ARM. Nothing in a stripped file tells the sets from each other, or from data,
so that every second byte is taken for the start of an instruction of T32, every fourth one of A32:

    b, bl, blx                32 MB either way                A32
    b.w, bl, blx              16 MB
    beq.w, bne.w, ...         1 MB
    b                         2 KB
    beq, bne, ...             256 bytes
    cbz, cbnz                 126 bytes, forward

Entries of a PLT are left out: in these words of A32 the immediates look like short branches.

Of a function, what control reaches from its start is read; literals and tables lie in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.arm.encode import PLT_FIRST, PLT_LAST, PLT_NEXT
from ftpatch.arch.arm_sets.a32 import ends_a32, leads_a32, literal_a32
from ftpatch.arch.arm_sets.t32 import LITERALS, ends_t32, form_t32, leads_t32, literal_t32
from ftpatch.arch.branches import I64, Branches, jumps_out
from ftpatch.arch.contract import U8
from ftpatch.arch.disassemble import Instruction, engine

__all__ = ["BRANCHES"]

NEAR: Final = 2048 + 4
EXCLUSIVE: Final = ("ldrex", "ldaex")
RELEASES: Final = ("strex", "stlex", "clrex")
CONTEXT: Final = 16
"""Instructions of a loop from ldrex to strex at most."""


def _signed(value: NDArray[np.int64], bits: int) -> I64:
    return np.asarray((value ^ 1 << bits - 1) - (1 << bits - 1), np.int64)


def _long(code: U8, address: int) -> I64:
    """All targets, even; int64, sorted."""
    lead = -address % 4
    whole = np.frombuffer(code[lead : lead + (len(code) - lead) // 4 * 4].tobytes(), "<u4")
    plt = _is_plt(whole)
    found = [_of_a32(whole.astype(np.int64), address + lead)]
    half = np.frombuffer(code[: len(code) // 2 * 2].tobytes(), "<u2").astype(np.int64)
    shown = np.ones(len(half), bool)
    shown[lead // 2 : lead // 2 + 2 * len(plt)] = ~np.repeat(plt, 2)
    found += _of_t32(half, address, shown)
    return np.sort(np.concatenate(found))


def _is_plt(whole: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Test which words are the three of a PLT entry."""
    top = whole >> np.uint32(12)
    first = np.zeros(len(whole), bool)
    first[:-2] = (top[:-2] == PLT_FIRST) & (top[1:-1] == PLT_NEXT) & (top[2:] == PLT_LAST)
    second, third = np.roll(first, 1), np.roll(first, 2)
    return np.asarray(first | second | third)


def _of_a32(whole: I64, address: int) -> I64:
    at = np.flatnonzero(whole >> 25 & 7 == 5)
    insn = whole[at]
    half = np.where(insn >> 28 == 0xF, insn >> 23 & 2, 0)
    return np.asarray(address + 4 * at + 8 + 4 * _signed(insn & 0xFF_FFFF, 24) + half, np.int64)


def _of_t32(half: I64, address: int, shown: NDArray[np.bool_]) -> Iterator[I64]:
    second = np.append(half[1:], 0)
    branch = shown & (half >> 11 == 0x1E) & (second >> 15 == 1)
    here = address + 4 + 2 * np.arange(len(half))
    s, j1, j2 = half >> 10 & 1, second >> 13 & 1, second >> 11 & 1
    low = (second & 0x7FF) << 1
    far = s << 24 | (1 ^ j1 ^ s) << 23 | (1 ^ j2 ^ s) << 22 | (half & 0x3FF) << 12 | low
    rows = branch & (second & 0x5000 != 0)
    base = np.where(second & 0x1000, here, here & ~3)
    yield (base + _signed(far, 25))[rows]
    rows = branch & (second & 0x5000 == 0) & (half >> 6 & 0xF < 14)
    conditional = s << 20 | j2 << 19 | j1 << 18 | (half & 0x3F) << 12 | low
    yield (here + _signed(conditional, 21))[rows]
    rows = shown & (half >> 11 == 0x1C)
    yield (here + 2 * _signed(half & 0x7FF, 11))[rows]
    rows = shown & (half >> 12 == 0xD) & (half >> 8 & 0xF < 14)
    yield (here + 2 * _signed(half & 0xFF, 8))[rows]
    rows = shown & (half & 0xF500 == 0xB100)
    yield (here + (half >> 3 & 0x1F | half >> 4 & 0x20) * 2)[rows]


def _short(code: U8, address: int) -> I64:
    """There are none that the real instructions decide about."""
    del code, address
    return np.empty(0, np.int64)


def _read(code: bytes, address: int) -> list[Instruction] | None:
    """The instructions that control reaches; None if one cannot be decoded, unless it is data
    behind a call that does not return: a literal is between them."""
    thumb, start = address % 2 == 1, address & ~1
    found: dict[int, Instruction] = {}
    literals, failed, left = set[int](), list[tuple[int, int]](), [start]
    while left:
        at = left.pop()
        behind = -1
        for one, insn, block in _run(code, start, at, thumb):
            at = one.address + one.size
            if one.address in found:
                at = -1
                break
            found[one.address] = one
            literals.add(_literal(insn, one.address, thumb))
            if _is_call(one):
                behind = at
            elif one.target is not None:
                left.append(one.target)
            if not block and (
                ends_t32(insn) if thumb else ends_a32(int.from_bytes(insn, "little"))
            ):
                at = -1
                break
        left = [to for to in left if start <= to < start + len(code) and to not in found]
        if 0 <= at < start + len(code):
            failed.append((behind, at))
    for behind, at in failed:
        if behind < 0 or not any(behind <= literal <= at for literal in literals):
            return None
    return [found[at] for at in sorted(found)] or None


def _literal(insn: bytes, address: int, thumb: bool) -> int:
    """The address that an instruction reads or makes from pc, -1 for none."""
    if not thumb:
        word = int.from_bytes(insn, "little")
        literal = literal_a32(word, address) if word >> 16 & 0xF == 0xF else None
        return -1 if literal is None else literal
    try:
        form = form_t32(insn)
    except ValueError:
        return -1
    return literal_t32(insn, address, form) if form in LITERALS else -1


def _run(
    code: bytes, start: int, at: int, thumb: bool
) -> Iterator[tuple[Instruction, bytes, bool]]:
    """The instructions from an address on, with their bytes, and whether they are conditional by an
    IT block."""
    reader, left = engine("arm", "CS_MODE_THUMB" if thumb else ""), 0
    for insn in reader.disasm(code[at - start :], at):
        held = bytes(insn.bytes)
        target = leads_t32(held, at) if thumb else leads_a32(int.from_bytes(held, "little"), at)
        at += insn.size
        even = None if target is None else target & ~1
        one = Instruction(insn.address, insn.size, insn.mnemonic, insn.op_str, even)
        yield one, held, left > 0
        left = max(left - 1, 0)
        if thumb and insn.mnemonic.startswith("it"):
            left = len(insn.mnemonic) - 1


def _begins(code: bytes, address: int) -> set[int]:
    """Where instructions begin, but in IT blocks, and between ldrex and its strex."""
    insns, out = _read(code, address) or [], set[int]()
    block, joined, behind = 0, 0, 0
    for one in insns:
        if one.address != behind:
            block = joined = 0
        if not block and not joined:
            out.add(one.address)
        behind = one.address + one.size
        block = max(block - 1, 0)
        name = one.mnemonic
        joined = CONTEXT if name.startswith(EXCLUSIVE) else max(joined - 1, 0)
        if name.startswith(RELEASES):
            joined = 0
        if name.startswith("it") and address % 2:
            block = len(name) - 1
    return out


def _is_call(one: Instruction) -> bool:
    """Test for bl and blx, perhaps with a condition: bls is b with one."""
    name = one.mnemonic.split(".")[0]
    return name in ("bl", "blx") or (name.startswith("bl") and len(name) > 3)


def _is_indirect(one: Instruction) -> bool:
    """Test for a jump to where a register or a table leads, which is not a return; ``bx pc`` only
    changes to A32, in front of an entry of the PLT."""
    name, operands = one.mnemonic, one.operands
    if name.startswith(("tbb", "tbh")):
        return True
    if name.startswith("bx"):
        return operands not in ("lr", "pc")
    to_pc = operands.startswith("pc, ")
    if name.startswith("ldr"):
        return to_pc and not operands.startswith("pc, [sp]")
    return to_pc and operands != "pc, lr" and not name.startswith(("str", "cmp", "tst"))


def _has_indirect_jump(instructions: Iterable[Instruction]) -> bool:
    return any(map(_is_indirect, instructions))


def _is_thunk(instructions: Iterable[Instruction]) -> bool:
    """Return whether they only jump to where a caller's register points."""
    first = next(iter(instructions), None)
    return first is not None and _is_indirect(first)


BRANCHES: Final = Branches(
    long_targets=_long,
    short_targets=_short,
    has_indirect_jump=_has_indirect_jump,
    is_thunk=_is_thunk,
    jumps_out=jumps_out(_is_call),
    near=NEAR,
    read=_read,
    begins=_begins,
)
