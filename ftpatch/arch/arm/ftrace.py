# SPDX-License-Identifier: MIT
"""32-bit ARM (EM_ARM, little-endian), in A32 (ARM) or T32 (Thumb).

With -pg, as kernels are compiled, the record names the second instruction, behind the prologue:

    Compiled              Disabled             Enabled
    push {lr}             push {lr}            push {lr}           ip - 4 (T32: ip - 2)
    bl __gnu_mcount_nc    add sp, sp, #4       bl ftrace_caller    ip

The callee takes the function's return address off the stack and puts it into lr, and returns to the
lr that it was called with; all other registers but ip (r12) stay. Kernels before v5.18 have ``pop
{lr}`` for the NOP.

With -fpatchable-function-entry=2 (T32: =3) a call takes the same form, so that it has the same
callees:

    Compiled              Disabled             Enabled
    nop                   nop                  push {lr}           ip
    nop                   nop                  bl ftrace_caller    ip + 4
    nop; nop; nop         nop; nop; nop        push {lr}; bl ...   ip (T32)

In pads the NOPs say which set it is; in the other form it is the callee's, by bit 0 of its address.

ftrace_init_nop compares the call, but nothing in .init.text: there a linker's veneer may stand in
between (see init_text.py).

Updates: arch/arm/kernel/ftrace.c, Linux kernel commit ad1c2f39fda0 ("ARM: ftrace: use ADD not POP
to counter PUSH at entry") (in v5.18).
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.arm.encode import A32, T32, halves, link, linked, stub_target, words
from ftpatch.arch.common import Common
from ftpatch.arch.contract import U8, U64, Abi, Arch, State
from ftpatch.core.byte_order import LITTLE, ByteOrder
from ftpatch.core.columns import addresses

__all__ = ["ARM"]

WIDE, SHORT, CALL = 8, 6, 4
"""Widths of sites: a pad in A32, a pad in T32, and a call."""


class _Arm(Common):
    name: ClassVar[str] = "arm"
    machine: ClassVar[int] = 40  # EM_ARM
    elf_class: ClassVar[int] = 32
    order: ClassVar[ByteOrder] = LITTLE
    keystone: ClassVar[tuple[str, ...]] = ()  # it has one set at a time
    capstone: ClassVar[tuple[str, ...]] = ("CS_ARCH_ARM", "CS_MODE_ARM")
    relative: ClassVar[int] = 23  # R_ARM_RELATIVE, ELF for the Arm Architecture, 4.6.1.9
    irelative: ClassVar[int] = 160  # R_ARM_IRELATIVE
    got: ClassVar[tuple[int, ...]] = (21, 22)  # R_ARM_GLOB_DAT, R_ARM_JUMP_SLOT
    page: ClassVar[int] = 65536  # what link editors align to
    absolute: ClassVar[int] = 2  # R_ARM_ABS32
    calls: ClassVar[tuple[int, ...]] = (28, 1, 10)  # R_ARM_CALL, R_ARM_PC24, R_ARM_THM_CALL
    module_tables: ClassVar[tuple[str, ...]] = ("__mcount_loc",)
    neutral: ClassVar[int] = 0  # R_ARM_NONE: apply_relocate in arch/arm/kernel/module.c
    align: ClassVar[int] = 2
    width: ClassVar[int] = WIDE
    landing_size: ClassVar[int] = 2
    pad_size: ClassVar[int] = WIDE
    pad_nops: ClassVar[int] = 3  # two in A32, but T32 is the default of most compilers
    apart: ClassVar[int] = SHORT + 2
    insn_size: ClassVar[int] = 4
    veneer_size: ClassVar[int] = 4
    skips: ClassVar[tuple[int, ...]] = (0, 1)
    mcount_is_pad: ClassVar[bool] = False
    nop_texts: ClassVar[frozenset[str]] = frozenset({"nop", "mov r0, r0", "mov r8, r8"})
    mcount_names: ClassVar[tuple[str, ...]] = ("__gnu_mcount_nc", "mcount")

    def prefix(self, code: U8) -> NDArray[np.int64]:
        """Count the bytes of NOPs of either set at the start of each row."""
        long = np.minimum.accumulate(np.isin(words(code), A32.NOPS), axis=1).sum(axis=1) * 4
        short = np.minimum.accumulate(np.isin(halves(code), T32.NOPS), axis=1).sum(axis=1) * 2
        return np.asarray(np.maximum(long, short), np.int64)

    def call_adjust(self, entry: U64, code: U8, abi: Abi) -> U64:
        """The address without bit 0, which recordmcount leaves in those of T32."""
        return entry & ~np.uint64(1)

    def decode(self, code: U8, ip: U64, abi: Abi) -> tuple[U8, U64, U8, NDArray[np.bool_]]:
        """A pad of either set; the one instruction of the -pg form."""
        state = np.full(len(ip), State.UNEXPECTED, np.uint8)
        none = np.zeros(len(ip), bool)
        if not abi.pad:
            insn, thumb = words(code)[:, 0], _thumb(abi, len(ip))
            call, addr = linked(insn, ip, thumb)
            idle = np.where(thumb, *(np.isin(insn, (s.ADD_SP, s.POP_LR)) for s in (T32, A32)))
            state[idle] = State.NOP
            state[call] = State.CALL
            return state, addr, np.full(len(ip), CALL, np.uint8), none
        whole, half = words(code), halves(code)
        long, long_addr = linked(whole[:, 1], ip + np.uint64(4), none)
        long &= np.isin(whole[:, 0], A32.PUSH_LR)
        short, short_addr = linked(words(code[:, 2:6])[:, 0], ip + np.uint64(2), ~none)
        short &= half[:, 0] == T32.PUSH_LR
        nops = np.isin(whole[:, :2], A32.NOPS).all(axis=1)
        short_nops = np.isin(half[:, :3], T32.NOPS).all(axis=1)
        state[nops | short_nops] = State.NOP
        state[long | short] = State.CALL
        narrow = short | short_nops
        # What is neither is of the set that most are of.
        narrow |= (state == State.UNEXPECTED) & bool(narrow.sum() > (long | nops).sum())
        addr = np.where(long, long_addr, np.where(short, short_addr, np.uint64(0)))
        return state, addr, np.where(narrow, SHORT, WIDE).astype(np.uint8), none

    def make_nop(self, width: U8, nop: bytes, abi: Abi) -> U8:
        """``add sp, sp, #4`` behind a ``push {lr}``; in pads NOPs, as the compiler left them."""
        out = np.zeros((len(width), WIDE), np.uint8)
        if not abi.pad:
            thumb = _thumb(abi, len(width))
            words(out)[:, 0] = np.where(thumb, np.uint32(T32.ADD_SP), np.uint32(A32.ADD_SP))
            return out
        words(out)[:] = A32.NOPS[0]
        short = width == SHORT
        out[short] = np.array([[0x00, 0xBF] * 3 + [0, 0]], np.uint8)  # nop; nop; nop
        return out

    def make_call(self, ip: U64, addr: U64, width: U8, abi: Abi) -> U8:
        """``bl addr``, or ``blx`` into the other set; in pads behind ``push {lr}``."""
        out = np.zeros((len(ip), WIDE), np.uint8)
        if not abi.pad:
            words(out)[:, 0] = link(ip, addr, _thumb(abi, len(ip)))
            return out
        short = width == SHORT
        whole = words(out)
        whole[:, 0] = A32.PUSH_LR[0]
        whole[:, 1] = link(ip + np.uint64(4), addr, np.zeros(len(ip), bool))
        insn = link(ip + np.uint64(2), addr, np.ones(len(ip), bool))
        half = halves(out)
        half[short, 0] = T32.PUSH_LR
        half[short, 1], half[short, 2] = insn[short] & 0xFFFF, insn[short] >> 16
        half[short, 3] = 0
        return out

    def unlinked(self, code: U8, abi: Abi) -> U8:
        """``bl`` of itself, so that S stands in place of ip: eb fffffe; f7ff fffe."""
        out = np.ascontiguousarray(code).copy()
        state, _, width, _ = self.decode(out, np.zeros(len(out), np.uint64), abi)
        call, short = state == State.CALL, width == SHORT
        if abi.pad:
            words(out)[call & ~short, 1] = A32.UNLINKED
            halves(out)[call & short, 1:3] = T32.UNLINKED & 0xFFFF, T32.UNLINKED >> 16
        else:
            words(out)[call, 0] = T32.UNLINKED if abi.mcount % 2 else A32.UNLINKED
        return out

    def compiled(self, ip: U64, code: U8, width: U8, abi: Abi) -> U8:
        """The call of __gnu_mcount_nc; in pads NOPs, of the kind that stands there."""
        if not abi.pad:
            return self.make_call(ip, np.full(len(ip), abi.mcount, np.uint64), width, abi)
        out = self.make_nop(width, b"", abi)
        for nops, kind, size in ((T32.NOPS, halves, SHORT), (A32.NOPS, words, WIDE)):
            held = kind(code)[:, : size // kind(code).dtype.itemsize]
            same = (held == nops[1]).all(axis=1) & (width == size)
            out[same] = code[same]
        return out

    def init_expects(self, ip: U64, abi: Abi) -> tuple[int, U8]:
        """ftrace_make_nop(mod, rec, MCOUNT_ADDR) compares the call."""
        width = np.full(len(ip), CALL, np.uint8)
        return 0, self.compiled(ip, np.zeros((len(ip), WIDE), np.uint8), width, abi)[:, :CALL]

    def after_init(self, ip: U64, abi: Abi) -> U8:
        """``add sp, sp, #4``"""
        return self.make_nop(np.full(len(ip), CALL, np.uint8), b"", abi)[:, :CALL]

    def branch_at(self, ip: U64, width: U8, abi: Abi) -> U64:
        """Behind a pad's ``push {lr}``; with bit 0 in T32."""
        if not abi.pad:
            return ip | _thumb(abi, len(ip)).astype(np.uint64)
        return ip + np.where(width == SHORT, np.uint64(2 | 1), np.uint64(4))

    def reachable(self, ip: U64, addr: U64) -> NDArray[np.bool_]:
        """32 MB either way from A32, 16 MB from T32: to A32 what is a multiple of four bytes from
        there, to T32 of two."""
        thumb, to_thumb = ip % np.uint64(2) == 1, addr % np.uint64(2) == 1
        limit = np.where(thumb, T32.REACH, A32.REACH)
        pc = np.where(thumb, ip + np.uint64(3), ip + np.uint64(8))
        pc = np.where(thumb & ~to_thumb, pc & ~np.uint64(3), pc)
        distance = (addr - to_thumb.astype(np.uint64) - pc).astype(np.uint32).view(np.int32)
        near = (distance >= -limit) & (distance < limit)
        return np.asarray(near & (addr % np.uint64(4) != 2))

    def veneer(self, at: int, addr: int) -> bytes:
        """``b addr``, from A32 to A32: it changes no register, and reaches as far again."""
        from_, to = addresses(at), addresses(addr)
        if addr % 4 or at % 4 or not self.reachable(from_, to)[0]:
            return b""
        insn = link(from_, to, np.zeros(1, bool))
        return (insn & np.uint32(A32.IMM) | np.uint32(A32.B)).astype("<u4").tobytes()

    def veneer_target(self, code: bytes, at: int) -> int:
        """A veneer of ours or of a link editor; a PLT entry, after ``bx pc; nop`` in T32."""
        return stub_target(code, at)

    def skipped(self, abi: Abi) -> tuple[int, ...]:
        """Null, and what call_adjust makes null, where that comes first."""
        return (0,) if abi.null_seen else (0, 1)

    def named_site_code(self, name: str, ip: int, addr: int, abi: Abi) -> bytes:
        """``bl addr``; ``b addr`` or ``mov r0, r0`` at ftrace_graph_call
        (ftrace_modify_graph_caller)."""
        if not addr:
            return A32.NOPS[1].to_bytes(4, "little")
        insn = link(addresses(ip), addresses(addr), np.zeros(1, bool))
        if "graph" in name:
            insn = insn & np.uint32(A32.IMM) | np.uint32(A32.B)
        return insn.astype("<u4").tobytes()

    def named_site_target(self, name: str, code: bytes, ip: int) -> int | None:
        """Target of the branch; 0 for a NOP at ftrace_graph_call."""
        insn = np.frombuffer(code[:4], "<u4")
        if "graph" in name:
            if int(insn[0]) in A32.NOPS:
                return 0
            if int(insn[0]) >> 24 != A32.B >> 24:
                return None
            insn = insn | np.uint32(A32.BL)
        call, addr = linked(insn, addresses(ip), np.zeros(1, bool))
        return int(addr[0]) if call[0] else None

    def named_site_rest(self, name: str) -> str:
        """ftrace_graph_call is a NOP when disabled, the others call ftrace_stub."""
        return "" if "graph" in name else "ftrace_stub"


def _thumb(abi: Abi, count: int) -> NDArray[np.bool_]:
    """Whether the calls of the -pg form are in T32, as their callee is."""
    return np.full(count, abi.mcount % 2 == 1)


ARM: Final[Arch] = _Arm()
