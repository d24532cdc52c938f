# SPDX-License-Identifier: MIT
"""ppc64le (EM_PPC64, little-endian, ELFv2): two instructions at the local entry of a function.

    Compiled     Disabled     Enabled
    nop          nop          mflr r0               ip - 4
    nop          nop          bl   ftrace_caller    ip

The call loses LR, so r0 carries it: the callee returns to ip + 4 with LR = r0. The local entry
comes behind the two instructions that make r2 of r12 (psABI, ELFv2, 2.3.2.1), if a function has
them. A running kernel leaves ``mflr r0; nop`` in disabled sites; ftrace_init_nop compares both NOPs
and puts the mflr there. In a file both are changed.

Kernels compiled with -pg -mprofile-kernel have the call, and their records are its ip:

    Compiled     Disabled     Enabled
    mflr r0      mflr r0      mflr r0               ip - 4
    bl  _mcount  nop          bl   ftrace_caller    ip

Since v6.13 there is one NOP at a site, and the rest in a stub for each (PPC_FTRACE_OUT_OF_LINE),
all of which ftrace_init_nop writes after it compared that NOP:

    Compiled     Disabled     Enabled
    nop          nop          b stub                ip

    stub         the ops (8 bytes); mflr r0; bl ftrace_caller; mtlr r0; b ip + 4

Such sites are read and foretold, and not enabled: before the kernel boots there are no stubs.

bl reaches 32 MB; what is farther off is called by way of ``b``, which reaches as far again.

Updates: arch/powerpc/kernel/trace/ftrace.c, Linux kernel commits 153086644fd1 ("powerpc/ftrace: Add
support for -mprofile-kernel ftrace ABI") (in v4.6) 0f71dcfb4aef ("powerpc/ftrace: Add support for
-fpatchable-function-entry") (in v6.6) and eec37961a56a ("powerpc64/ftrace: Move ftrace sequence out
of line") (in v6.13).
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.assemble import template
from ftpatch.arch.common import Common
from ftpatch.arch.contract import U8, U64, Abi, Arch, State
from ftpatch.arch.ppc64le.encode import PPC, branch, branch_target, is_branch, words
from ftpatch.core.byte_order import LITTLE, ByteOrder
from ftpatch.core.columns import addresses

__all__ = ["PPC64LE"]

EF_PPC64_ABI: Final = 3
"""Bits of e_flags: 1 for ELFv1, 2 for ELFv2 (binutils' include/elf/ppc64.h)."""


class _Ppc64le(Common):
    name: ClassVar[str] = "ppc64le"
    machine: ClassVar[int] = 21  # EM_PPC64
    elf_class: ClassVar[int] = 64
    order: ClassVar[ByteOrder] = LITTLE
    keystone: ClassVar[tuple[str, ...]] = (
        "KS_ARCH_PPC",
        "KS_MODE_PPC64",
        "KS_MODE_LITTLE_ENDIAN",
    )
    capstone: ClassVar[tuple[str, ...]] = ("CS_ARCH_PPC", "CS_MODE_64", "CS_MODE_LITTLE_ENDIAN")
    relative: ClassVar[int] = 22  # R_PPC64_RELATIVE, psABI (ELFv2) 3.5.3
    irelative: ClassVar[int] = 248  # R_PPC64_IRELATIVE
    got: ClassVar[tuple[int, ...]] = (20, 21, 38)  # R_PPC64_GLOB_DAT, JMP_SLOT, ADDR64
    page: ClassVar[int] = 65536
    absolute: ClassVar[int] = 38  # R_PPC64_ADDR64
    calls: ClassVar[tuple[int, ...]] = (10, 116)  # R_PPC64_REL24, R_PPC64_REL24_NOTOC
    module_tables: ClassVar[tuple[str, ...]] = ("__patchable_function_entries", "__mcount_loc")
    # Linux knows no R_PPC64_NONE (apply_relocate_add in arch/powerpc/kernel/module_64.c);
    # R_PPC64_TOCSAVE is a hint for linkers.
    neutral: ClassVar[int] = 109
    # R_PPC64_UADDR64, REL64, TOC, DTPMOD64, TPREL64, DTPREL64, PCREL34, GOT_PCREL34
    wide: ClassVar[tuple[int, ...]] = (43, 44, 51, 68, 73, 78, 132, 133)
    align: ClassVar[int] = 4
    width: ClassVar[int] = 8
    landing_size: ClassVar[int] = 8
    pad_size: ClassVar[int] = 8
    pad_nops: ClassVar[int] = 2
    apart: ClassVar[int] = 12
    insn_size: ClassVar[int] = 4
    word_size: ClassVar[int] = 4
    veneer_size: ClassVar[int] = 4
    plt_sections: ClassVar[tuple[str, ...]] = (".text",)
    skips: ClassVar[tuple[int, ...]] = (0, -4 & PPC.WRAP)
    mcount_is_pad: ClassVar[bool] = True

    def other_abi(self, flags: int) -> str:
        """ELFv1: its symbols are those of descriptors, which are data. 0 may be either."""
        return "ELFv1" if flags & EF_PPC64_ABI == 1 else ""

    def lead(self, abi: Abi) -> int:
        """``mflr r0``; with stubs that is there."""
        return 0 if abi.stubs else 4

    def prefix(self, code: U8) -> NDArray[np.int64]:
        """Count the bytes of NOPs at the start of each row."""
        run = np.minimum.accumulate(words(code) == PPC.NOP, axis=1).sum(axis=1)
        return np.asarray(run * 4, np.int64)

    def landing(self, code: U8) -> NDArray[np.bool_]:
        """Test for a global entry, which makes r2 of r12: ``addis; addi``, or, in the large code
        model, ``ld; add``."""
        first, second = (words(code)[:, n] for n in (0, 1))
        made = first & np.uint32(~PPC.IMM & 0xFFFF_FFFF)
        small = np.isin(made, PPC.FIRST[:2])
        small &= second & np.uint32(~PPC.IMM & 0xFFFF_FFFF) == PPC.ADDI_R2_R2
        return np.asarray(small | ((made == PPC.FIRST[2]) & (second == PPC.ADD_R2_R2_R12)))

    def call_adjust(self, entry: U64, code: U8, abi: Abi) -> U64:
        """The second NOP, in programs after a global entry (-msplit-patch-nops); the call's own
        record is its ip."""
        if not abi.pad or abi.stubs:
            return entry
        skip = self.landing(code).astype(np.uint64) * np.uint64(0 if abi.kernel else 8)
        return entry + skip + np.uint64(4)

    def decode(self, code: U8, ip: U64, abi: Abi) -> tuple[U8, U64, U8, NDArray[np.bool_]]:
        """The pair: a call or a NOP after ``mflr r0``, or two NOPs."""
        insn = words(code)
        if abi.stubs:
            return self._branches(insn[:, 0], ip)
        saved = insn[:, 0] == PPC.MFLR_R0
        call = saved & is_branch(insn[:, 1], PPC.BL)
        nop = (insn[:, 1] == PPC.NOP) & (saved | (insn[:, 0] == PPC.NOP))
        state = np.full(len(ip), State.UNEXPECTED, np.uint8)
        state[nop] = State.NOP
        state[call] = State.CALL
        addr = np.where(call, branch_target(insn[:, 1], ip), np.uint64(0))
        width = np.full(len(ip), self.width, np.uint8)
        return state, addr, width, np.zeros(len(ip), bool)

    def make_nop(self, width: U8, nop: bytes, abi: Abi) -> U8:
        """Two NOPs, as the compiler left them, so ftrace_init accepts it; with -mprofile-kernel
        ``mflr r0; nop``."""
        idle = template(self.name, "nop", ("nop",))
        code = idle + (bytes(4) if abi.stubs else idle)
        if not abi.pad:
            code = template(self.name, "mflr 0", ("mflr",)) + idle
        return np.tile(np.frombuffer(code, np.uint8), (len(width), 1))

    def make_call(self, ip: U64, addr: U64, width: U8, abi: Abi) -> U8:
        """``mflr r0; bl addr``."""
        bl = template(self.name, "bl 0x101000", ("bl",))
        opcode = int.from_bytes(bl, "little") & ~PPC.LI
        insn = np.empty((len(ip), 2), "<u4")
        insn[:, 0] = int.from_bytes(template(self.name, "mflr 0", ("mflr",)), "little")
        insn[:, 1] = branch(opcode, ip, addr)
        return insn.view(np.uint8).reshape(-1, self.width)

    def unlinked(self, code: U8, abi: Abi) -> U8:
        """``bl`` with an LI of zero."""
        insn = words(code).copy()
        insn[is_branch(insn[:, 1], PPC.BL), 1] = PPC.BL
        return insn.view(np.uint8)

    def compiled(self, ip: U64, code: U8, width: U8, abi: Abi) -> U8:
        """Two NOPs, or what a running kernel turns them into; ``mflr r0; bl _mcount``."""
        if not abi.pad:
            return self.make_call(ip, np.full(len(ip), abi.mcount, np.uint64), width, abi)
        insn = words(code)
        pair = words(self.make_nop(width, b"", abi)).copy()
        if abi.stubs:
            return pair.view(np.uint8)
        pair[(insn[:, 0] == PPC.MFLR_R0) & (insn[:, 1] == PPC.NOP), 0] = PPC.MFLR_R0
        return pair.view(np.uint8)

    def init_expects(self, ip: U64, abi: Abi) -> tuple[int, U8]:
        """ftrace_init_nop compares both NOPs; with stubs the one; with -mprofile-kernel the call,
        and the mflr only since v6.6."""
        width = np.full(len(ip), self.width, np.uint8)
        code = self.compiled(ip, np.zeros((len(ip), self.width), np.uint8), width, abi)
        if abi.stubs:
            return 0, code[:, :4]
        return (-4, code) if abi.pad else (0, code[:, 4:])

    def after_init(self, ip: U64, abi: Abi) -> U8:
        """``mflr r0; nop``, or the NOP alone."""
        if abi.stubs or not abi.pad:
            return np.tile(np.array([PPC.NOP], "<u4").view(np.uint8), (len(ip), 1))
        return np.tile(np.array([PPC.MFLR_R0, PPC.NOP], "<u4").view(np.uint8), (len(ip), 1))

    def reachable(self, ip: U64, addr: U64) -> NDArray[np.bool_]:
        """32 MB either way."""
        distance = (addr - ip).view(np.int64)
        return np.asarray((distance >= -PPC.REACH) & (distance < PPC.REACH) & (distance % 4 == 0))

    def veneer(self, at: int, addr: int) -> bytes:
        """``b addr``, which changes no register."""
        from_, to = addresses(at), addresses(addr)
        if not self.reachable(from_, to)[0]:
            return b""
        opcode = int.from_bytes(template(self.name, "b 0x101000", ("b",)), "little") & ~PPC.LI
        return branch(opcode, from_, to).tobytes()

    def veneer_target(self, code: bytes, at: int) -> int:
        """Target of ``b``. PLT entries add to r2, of which their code says nothing."""
        insn = np.frombuffer(code[:4], "<u4")
        return int(branch_target(insn, addresses(at))[0]) if is_branch(insn, PPC.B)[0] else 0

    def skipped(self, abi: Abi) -> tuple[int, ...]:
        """Null if it is tested before call_adjust, -4 if that adds 4."""
        if not abi.pad or abi.stubs:
            return (0,)
        return (*((0,) if abi.null_seen else ()), -4 & PPC.WRAP)

    def drop(self, abi: Abi) -> int | None:
        """Null if it is tested before call_adjust; else what call_adjust makes null."""
        return 0 if abi.null_seen or not abi.pad or abi.stubs else -4 & PPC.WRAP

    def named_site_code(self, name: str, ip: int, addr: int, abi: Abi) -> bytes:
        """``bl addr``; ``b addr`` at ftrace_graph_call (ftrace_modify_ftrace_graph_caller)."""
        if not addr:
            return template(self.name, "nop", ("nop",))
        opcode = PPC.B if "graph" in name else PPC.BL
        return branch(opcode, addresses(ip), addresses(addr)).tobytes()

    def named_site_target(self, name: str, code: bytes, ip: int) -> int | None:
        """Target of the branch."""
        insn = np.frombuffer(code[:4], "<u4")
        if not is_branch(insn, PPC.B if "graph" in name else PPC.BL)[0]:
            return None
        return int(branch_target(insn, addresses(ip))[0])

    def named_site_rest(self, name: str) -> str:
        """A stub of its own for either."""
        return "ftrace_graph_stub" if "graph" in name else "ftrace_stub"

    @staticmethod
    def _branches(insn: NDArray[np.uint32], ip: U64) -> tuple[U8, U64, U8, NDArray[np.bool_]]:
        """One instruction each: a NOP, or the branch to its stub."""
        state = np.full(len(ip), State.UNEXPECTED, np.uint8)
        state[insn == PPC.NOP] = State.NOP
        call = is_branch(insn, PPC.B)
        state[call] = State.CALL
        addr = np.where(call, branch_target(insn, ip), np.uint64(0))
        return state, addr, np.full(len(ip), 4, np.uint8), np.zeros(len(ip), bool)


PPC64LE: Final[Arch] = _Ppc64le()
