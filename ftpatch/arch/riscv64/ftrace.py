# SPDX-License-Identifier: MIT
"""riscv64 (EM_RISCV, 64 bits): eight bytes at the start of a function.

    Compiled          Disabled     Enabled
    c.nop, c.nop      nop          auipc t0, %pcrel_hi(ftrace_caller)
    c.nop, c.nop      nop          jalr  t0, %pcrel_lo(ftrace_caller)(t0)

t0 is the way back into the function; ra stays the function's own return address. Without the C
extension two NOPs of four bytes are compiled in.

With CALL_OPS (-fpatchable-function-entry=8,4) eight bytes before the function hold a pointer, and
ip is that of the second instruction, the only one that a running kernel changes:

    literal (8)  c.nop x 4     &ftrace_nop_ops       aligned to 8
    ip - 4       c.nop x 2     auipc t0              written by ftrace_init_nop
    ip           c.nop x 2     jalr t0, or nop

ftrace_init_nop compares nothing: it turns whatever is at a record into a NOP. Kernels compiled
with -pg instead have ``call _mcount``, a pair with ra.

The alternate link register t0: The RISC-V Instruction Set Manual, volume I, JALR; lpad: Zicfilp.
Updates: arch/riscv/kernel/ftrace.c, Linux kernel commits 6724a76cff85 ("riscv: ftrace: Reduce the
detour code size to half") (in v6.3) and c217157bcd1d ("riscv: Implement
HAVE_DYNAMIC_FTRACE_WITH_CALL_OPS") (in v6.16).
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.common import Common
from ftpatch.arch.contract import U8, U64, Abi, Arch, Deadly, State
from ftpatch.arch.riscv64.encode import RV, is_pair, opcodes, pair, pair_target, words
from ftpatch.core.byte_order import LITTLE, ByteOrder
from ftpatch.core.columns import addresses

__all__ = ["RISCV64"]


class _Riscv64(Common):
    name: ClassVar[str] = "riscv64"
    machine: ClassVar[int] = 243  # EM_RISCV
    elf_class: ClassVar[int] = 64
    order: ClassVar[ByteOrder] = LITTLE
    keystone: ClassVar[tuple[str, ...]] = ()
    capstone: ClassVar[tuple[str, ...]] = ("CS_ARCH_RISCV", "CS_MODE_RISCV64", "CS_MODE_RISCVC")
    relative: ClassVar[int] = 3  # R_RISCV_RELATIVE, RISC-V psABI "Relocations"
    irelative: ClassVar[int] = 58  # R_RISCV_IRELATIVE
    got: ClassVar[tuple[int, ...]] = (2, 5)  # R_RISCV_64 (there is no GLOB_DAT), R_RISCV_JUMP_SLOT
    page: ClassVar[int] = 4096
    absolute: ClassVar[int] = 2  # R_RISCV_64
    calls: ClassVar[tuple[int, ...]] = (19, 18)  # R_RISCV_CALL_PLT, R_RISCV_CALL
    module_tables: ClassVar[tuple[str, ...]] = ("__patchable_function_entries", "__mcount_loc")
    # Linux knows no R_RISCV_NONE (apply_relocate_add in arch/riscv/kernel/module.c); R_RISCV_RELAX
    # is a hint for linkers.
    neutral: ClassVar[int] = 51
    # auipc and jalr: R_RISCV_CALL, R_RISCV_CALL_PLT; R_RISCV_ADD64, R_RISCV_SUB64
    wide: ClassVar[tuple[int, ...]] = (18, 19, 36, 40)
    align: ClassVar[int] = 2
    width: ClassVar[int] = 8
    landing_size: ClassVar[int] = 4
    pad_size: ClassVar[int] = 8
    pad_nops: ClassVar[int] = 4
    apart: ClassVar[int] = 10
    insn_size: ClassVar[int] = 8
    mcount_is_pad: ClassVar[bool] = True
    nop_texts: ClassVar[frozenset[str]] = frozenset({"nop", "c.nop"})

    def lead(self, abi: Abi) -> int:
        """With CALL_OPS ip is that of the jalr."""
        return 4 if abi.nop_ops else 0

    def prefix(self, code: U8) -> NDArray[np.int64]:
        """Count the bytes of NOPs, of two or four bytes each, at the start of each row."""
        half = np.ascontiguousarray(code).view("<u2")
        following = np.pad(half[:, 1:], ((0, 0), (0, 1)), constant_values=1)
        long = (half == RV.NOP) & (following == 0)
        second = np.pad(long[:, :-1], ((0, 0), (1, 0)))  # the zeros of one of four bytes
        run = np.minimum.accumulate((half == RV.C_NOP) | long | second, axis=1).sum(axis=1)
        return np.asarray(run * 2, np.int64)

    def landing(self, code: U8) -> NDArray[np.bool_]:
        """lpad: auipc x0, the label."""
        return np.asarray(words(code)[:, 0] & np.uint32(RV.AUIPC_MASK) == RV.AUIPC)

    def call_adjust(self, entry: U64, code: U8, abi: Abi) -> U64:
        """The address itself, in programs after an lpad; with CALL_OPS, plus MCOUNT_AUIPC_SIZE."""
        skip = self.landing(code).astype(np.uint64) * np.uint64(0 if abi.kernel else 4)
        return entry + skip + np.uint64(self.lead(abi))

    def decode(self, code: U8, ip: U64, abi: Abi) -> tuple[U8, U64, U8, NDArray[np.bool_]]:
        """A pair with t0 (-pg: with ra), and every NOP that compilers and kernels leave."""
        insn = words(code)
        call = is_pair(insn, RV.T0 if abi.pad else RV.RA)
        nop = np.any([(insn == form).all(axis=1) for form in RV.PADS], axis=0) | self._idle(insn)
        state = np.full(len(ip), State.UNEXPECTED, np.uint8)
        state[nop] = State.NOP
        state[call] = State.CALL
        target = pair_target(insn, ip - np.uint64(self.lead(abi)))
        width = np.full(len(ip), self.width, np.uint8)
        return state, np.where(call, target, np.uint64(0)), width, np.zeros(len(ip), bool)

    def make_nop(self, width: U8, nop: bytes, abi: Abi) -> U8:
        """Two four-byte NOPs, as in the kernel: they need no C extension."""
        return np.tile(RV.PADS[1].view(np.uint8), (len(width), 1))

    def make_call(self, ip: U64, addr: U64, width: U8, abi: Abi) -> U8:
        """``auipc t0; jalr t0``; with -pg ``auipc ra; jalr ra``."""
        code = pair(RV.T0 if abi.pad else RV.RA, ip - np.uint64(self.lead(abi)), addr)
        return code.view(np.uint8).reshape(-1, self.width)

    def unlinked(self, code: U8, abi: Abi) -> U8:
        """The pair with immediates of zero."""
        insn = words(code).copy()
        link = RV.T0 if abi.pad else RV.RA
        insn[is_pair(insn, link)] = opcodes(link)
        return insn.view(np.uint8)

    def compiled(self, ip: U64, code: U8, width: U8, abi: Abi) -> U8:
        """One of the pads, or what a running kernel turns them into; ``call _mcount``."""
        if not abi.pad:
            return self.make_call(ip, np.full(len(ip), abi.mcount, np.uint64), width, abi)
        insn = words(code)
        out = np.tile(RV.PADS[0], (len(ip), 1))
        out[(insn == RV.PADS[1]).all(axis=1)] = RV.PADS[1]
        idle = self._idle(insn)
        out[idle, 0], out[idle, 1] = insn[idle, 0], RV.NOP
        return out.view(np.uint8)

    def init_expects(self, ip: U64, abi: Abi) -> tuple[int, U8]:
        """Nothing: ftrace_init_nop writes without comparing."""
        return -self.lead(abi), np.empty((len(ip), 0), np.uint8)

    def deadly(
        self, record: U64, ip: U64, there: NDArray[np.bool_], abi: Abi
    ) -> tuple[Deadly, ...]:
        """ftrace_init_nop maps the page of the site to write into it: patch_map(), Linux kernel
        commit 043cb41a85de ("riscv: introduce interfaces to patch kernel code") (in v5.7)."""
        reason = "ftrace_init_nop writes there unchecked: BUG_ON(!page) in patch_map()"
        return (Deadly(~there, reason),)

    def after_init(self, ip: U64, abi: Abi) -> U8:
        """Nothing is compared."""
        return np.empty((len(ip), 0), np.uint8)

    def reachable(self, ip: U64, addr: U64) -> NDArray[np.bool_]:
        """2 GB either way, shifted by the rounding, from ip and from the auipc of CALL_OPS."""
        distance = (addr - ip).view(np.int64)
        near = (distance >= -RV.REACH - RV.ROUND) & (distance < RV.REACH - RV.ROUND - 4)
        return np.asarray(near & (distance % 2 == 0))

    def veneer_target(self, code: bytes, at: int) -> int:
        """A PLT entry (auipc t3; ld t3, (t3); jalr t1, t3), with or without an lpad before it."""
        insn = np.frombuffer(code[:16], "<u4")
        if insn[0] & RV.AUIPC_MASK == RV.AUIPC:  # lpad
            insn, at = insn[1:], at + 4
        if int(insn[0]) & RV.AUIPC_MASK != RV.AUIPC | RV.T3 << 7 or int(insn[2]) != RV.JALR_T1_T3:
            return 0
        slot = int(pair_target(insn[:2].reshape(1, 2), addresses(at))[0])
        return -slot if int(insn[1]) & RV.JALR_MASK == RV.LD_T3 else 0

    def literal(self, ip: U64) -> U64:
        """8-aligned, 12 before the jalr: ftrace_caller finds it through t0."""
        return (ip - np.uint64(12)) & ~np.uint64(7)

    def named_site_code(self, name: str, ip: int, addr: int, abi: Abi) -> bytes:
        """``auipc ra; jalr ra``; two NOPs for no ``addr``."""
        return (pair(RV.RA, addresses(ip), addresses(addr)) if addr else RV.PADS[1]).tobytes()

    def named_site_target(self, name: str, code: bytes, ip: int) -> int | None:
        """Target of the pair; 0 for the NOPs of a disabled ftrace_graph_call."""
        insn = np.frombuffer(code[:8], "<u4").reshape(1, 2)
        if "graph" in name and (insn == RV.PADS[1]).all():
            return 0
        return int(pair_target(insn, addresses(ip))[0]) if is_pair(insn, RV.RA)[0] else None

    def named_site_rest(self, name: str) -> str:
        """All are compiled to call ftrace_stub."""
        return "ftrace_stub"

    @staticmethod
    def _idle(insn: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """auipc t0; nop: what a kernel since v6.16 leaves in disabled sites."""
        auipc, _ = opcodes(RV.T0)
        return np.asarray((insn[:, 0] & np.uint32(RV.AUIPC_MASK) == auipc) & (insn[:, 1] == RV.NOP))


RISCV64: Final[Arch] = _Riscv64()
