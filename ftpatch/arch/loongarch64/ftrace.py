# SPDX-License-Identifier: MIT
"""loongarch64 (EM_LOONGARCH, 64 bits): two instructions at the start of a function.

    Compiled     Disabled     Enabled
    nop          nop          move $t0, $ra         ip
    nop          nop          bl   ftrace_caller    ip + 4

The call loses $ra, so $t0 carries it: the callee returns to ip + 8 with $ra = $t0. A running kernel
leaves ``move $t0, $ra; nop`` in disabled sites. ftrace_init_nop compares the first NOP only, and
puts the move there. In a file both are changed.

Programs compiled with -pg have one instruction, ``bl _mcount``, at ip.

bl reaches 128 MB; what is farther off is called by way of ``pcaddu18i $t1; jirl $zero, $t1``, which
reaches 128 GB. A module's loader makes such entries itself.

Updates: arch/loongarch/kernel/ftrace_dyn.c, as of v7.2. Registers: LoongArch ELF psABI, "Register
Convention": $t0 to $t8 belong to the callee. Relocations: there, "Relocation types".
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.common import Common
from ftpatch.arch.contract import U8, U64, Abi, Arch, State
from ftpatch.arch.loongarch64.encode import (
    LA,
    branch,
    branch_target,
    is_branch,
    long_jump,
    signed,
    upper,
    words,
)
from ftpatch.core.byte_order import LITTLE, ByteOrder
from ftpatch.core.columns import addresses

__all__ = ["LOONGARCH64"]


class _LoongArch64(Common):
    name: ClassVar[str] = "loongarch64"
    machine: ClassVar[int] = 258  # EM_LOONGARCH
    elf_class: ClassVar[int] = 64
    order: ClassVar[ByteOrder] = LITTLE
    keystone: ClassVar[tuple[str, ...]] = ()
    capstone: ClassVar[tuple[str, ...]] = ()
    relative: ClassVar[int] = 3  # R_LARCH_RELATIVE
    irelative: ClassVar[int] = 12  # R_LARCH_IRELATIVE
    got: ClassVar[tuple[int, ...]] = (2, 5)  # R_LARCH_64 (no GLOB_DAT), R_LARCH_JUMP_SLOT
    page: ClassVar[int] = 65536
    absolute: ClassVar[int] = 2  # R_LARCH_64
    calls: ClassVar[tuple[int, ...]] = (66,)  # R_LARCH_B26
    module_tables: ClassVar[tuple[str, ...]] = ("__patchable_function_entries", "__mcount_loc")
    call_field: ClassVar[int] = 4  # the second instruction
    neutral: ClassVar[int] = 0  # R_LARCH_NONE: apply_r_larch_none in arch/loongarch/kernel/module.c
    # R_LARCH_TLS_DTPMOD64, DTPREL64, TPREL64, ADD64, SUB64, 64_PCREL, CALL36
    wide: ClassVar[tuple[int, ...]] = (7, 9, 11, 51, 56, 109, 110)
    align: ClassVar[int] = 4
    width: ClassVar[int] = 8
    landing_size: ClassVar[int] = 4
    pad_size: ClassVar[int] = 8
    pad_nops: ClassVar[int] = 2
    apart: ClassVar[int] = 12
    insn_size: ClassVar[int] = 4
    veneer_size: ClassVar[int] = 8
    signed_char: ClassVar[bool] = False  # kernels have -funsigned-char
    mcount_is_pad: ClassVar[bool] = True
    named_sites: ClassVar[dict[str, tuple[str, ...]]] = {
        # ftrace_caller and ftrace_regs_caller share them (ftrace_common).
        "ftrace_call": ("ftrace_call",),
        "ftrace_graph_call": ("ftrace_graph_call",),
    }

    def prefix(self, code: U8) -> NDArray[np.int64]:
        """Count the bytes of NOPs at the start of each row."""
        run = np.minimum.accumulate(words(code) == LA.NOP, axis=1).sum(axis=1)
        return np.asarray(run * 4, np.int64)

    def decode(self, code: U8, ip: U64, abi: Abi) -> tuple[U8, U64, U8, NDArray[np.bool_]]:
        """The pair, or the one instruction of the -pg form."""
        insn = words(code)
        last = self._last(insn, abi)
        saved = insn[:, 0] == LA.MOVE_T0_RA if abi.pad else np.ones(len(ip), bool)
        call = saved & is_branch(last, LA.BL)
        nop = (last == LA.NOP) & (saved | (insn[:, 0] == LA.NOP))
        state = np.full(len(ip), State.UNEXPECTED, np.uint8)
        state[nop] = State.NOP
        state[call] = State.CALL
        width = np.full(len(ip), 8 if abi.pad else 4, np.uint8)
        target = branch_target(last, self._place(ip, abi))
        return state, np.where(call, target, np.uint64(0)), width, np.zeros(len(ip), bool)

    def make_nop(self, width: U8, nop: bytes, abi: Abi) -> U8:
        """NOPs over the whole site: as the compiler left it, so ftrace_init accepts it."""
        pair = np.array([LA.NOP, LA.NOP], "<u4")
        return np.tile(pair.view(np.uint8), (len(width), 1))

    def make_call(self, ip: U64, addr: U64, width: U8, abi: Abi) -> U8:
        """``move $t0, $ra; bl addr``; ``bl addr`` in the -pg form."""
        insn = np.zeros((len(ip), 2), "<u4")
        if abi.pad:
            insn[:, 0] = LA.MOVE_T0_RA
        self._last(insn, abi)[:] = branch(LA.BL, self._place(ip, abi), addr)
        return insn.view(np.uint8).reshape(-1, self.width)

    def unlinked(self, code: U8, abi: Abi) -> U8:
        """``bl`` with a distance of zero."""
        insn = words(code).copy()
        last = self._last(insn, abi)
        last[is_branch(last, LA.BL)] = LA.BL
        return insn.view(np.uint8)

    def compiled(self, ip: U64, code: U8, width: U8, abi: Abi) -> U8:
        """Two NOPs, or what a running kernel turns them into; ``bl _mcount``."""
        if not abi.pad:
            return self.make_call(ip, np.full(len(ip), abi.mcount, np.uint64), width, abi)
        insn = words(code)
        pair = words(self.make_nop(width, b"", abi)).copy()
        pair[(insn[:, 0] == LA.MOVE_T0_RA) & (insn[:, 1] == LA.NOP), 0] = LA.MOVE_T0_RA
        return pair.view(np.uint8)

    def init_expects(self, ip: U64, abi: Abi) -> tuple[int, U8]:
        """ftrace_init_nop compares the first NOP."""
        return 0, np.tile(np.array([LA.NOP], "<u4").view(np.uint8), (len(ip), 1))

    def after_init(self, ip: U64, abi: Abi) -> U8:
        """``move $t0, $ra``"""
        return np.tile(np.array([LA.MOVE_T0_RA], "<u4").view(np.uint8), (len(ip), 1))

    def reachable(self, ip: U64, addr: U64) -> NDArray[np.bool_]:
        """128 MB either way, from ip and from the second instruction."""
        distance = (addr - ip).view(np.int64)
        near = (distance >= -LA.REACH + 4) & (distance < LA.REACH)
        return np.asarray(near & (distance % 4 == 0))

    def veneer(self, at: int, addr: int) -> bytes:
        """``pcaddu18i $t1; jirl $zero, $t1``: as a module's PLT does, it changes $t1 alone."""
        return long_jump(at, addr)

    def veneer_target(self, code: bytes, at: int) -> int:
        """A veneer; a PLT entry (pcaddu12i $t3; ld.d $t3, $t3; jirl $t1, $t3); an entry of a
        module's PLT in a running kernel (lu12i.w, lu32i.d, lu52i.d $t1; jirl $zero, $t1)."""
        first, second, third, fourth = (
            int(insn) for insn in np.frombuffer(code[:16].ljust(16, b"\0"), "<u4")
        )
        if first & LA.SI20 == LA.PCADDU18I_T1 and second & LA.OFFS16 == LA.JIRL_ZERO_T1:
            return at + (upper(first) << 18) + signed(second >> 10, 16) * 4 & _WRAP
        if first & LA.SI20 == LA.PCADDU12I_T3 and second & LA.SI12 == LA.LD_D_T3_T3:
            slot = at + (upper(first) << 12) + signed(second >> 10, 12) & _WRAP
            return -slot if third == LA.JIRL_T1_T3 else 0
        made = first & LA.SI20, second & LA.SI20, third & LA.SI12, fourth & LA.OFFS16
        if made != (LA.LU12I_W_T1, LA.LU32I_D_T1, LA.LU52I_D_T1_T1, LA.JIRL_ZERO_T1):
            return 0
        low = (upper(first) << 12 & 0xFFFF_FFFF) | (upper(second) & 0xF_FFFF) << 32
        return (low | (third >> 10 & 0xFFF) << 52) + signed(fourth >> 10, 16) * 4 & _WRAP

    def named_site_code(self, name: str, ip: int, addr: int, abi: Abi) -> bytes:
        """``bl addr``; ``b addr`` at ftrace_graph_call (ftrace_modify_graph_caller)."""
        if not addr:
            return LA.NOP.to_bytes(4, "little")
        opcode = LA.B if "graph" in name else LA.BL
        return branch(opcode, addresses(ip), addresses(addr)).tobytes()

    def named_site_target(self, name: str, code: bytes, ip: int) -> int | None:
        """Target of the branch; 0 for the NOP of a disabled ftrace_graph_call."""
        insn = np.frombuffer(code[:4], "<u4")
        if "graph" in name and insn[0] == LA.NOP:
            return 0
        if not is_branch(insn, LA.B if "graph" in name else LA.BL)[0]:
            return None
        return int(branch_target(insn, addresses(ip))[0])

    def named_site_rest(self, name: str) -> str:
        """ftrace_call is compiled to call ftrace_stub, the other is a NOP."""
        return "" if "graph" in name else "ftrace_stub"

    @staticmethod
    def _last(insn: NDArray[np.uint32], abi: Abi) -> NDArray[np.uint32]:
        """The instruction that branches."""
        return insn[:, 1 if abi.pad else 0]

    @staticmethod
    def _place(ip: U64, abi: Abi) -> U64:
        """Its address."""
        return ip + np.uint64(4 if abi.pad else 0)


_WRAP: Final = 0xFFFF_FFFF_FFFF_FFFF


LOONGARCH64: Final[Arch] = _LoongArch64()
