# SPDX-License-Identifier: MIT
"""arm64 (EM_AARCH64): a pair of instructions at the start of a function.

    Compiled     Disabled      Enabled
    nop          nop           mov x9, lr            ip - 4
    nop          nop           bl  ftrace_caller     ip

A running kernel leaves ``mov x9, lr; nop`` in disabled sites, since it cannot change two
instructions at once; ftrace_init_nop puts the mov there and compares the first NOP only. In a file
both are changed. Kernels compiled with -pg instead have one instruction, ``bl _mcount``, at ip.

With -fpatchable-function-entry=4,2 (CALL_OPS) eight bytes before the function hold a pointer:

    literal (8)  nop, nop      &ftrace_nop_ops       aligned to 8
    function     [bti c], then the pair

Encodings: Arm ARM (DDI 0487) C6.2, of NOP, ORR (MOV register), BL, B, ADRP, ADD (immediate), BR.
Updates: arch/arm64/kernel/ftrace.c, Linux kernel commit 3b23e4991fb6 ("arm64: implement ftrace
with regs") (in v5.5).
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.arm64.encode import A64, address_of, branch, branch_target, words
from ftpatch.arch.assemble import template
from ftpatch.arch.common import Common
from ftpatch.arch.contract import U8, U64, Abi, Arch, Deadly, State
from ftpatch.core.byte_order import LITTLE, ByteOrder
from ftpatch.core.columns import addresses

__all__ = ["ARM64"]


class _Arm64(Common):
    name: ClassVar[str] = "arm64"
    machine: ClassVar[int] = 183  # EM_AARCH64
    elf_class: ClassVar[int] = 64
    order: ClassVar[ByteOrder] = LITTLE
    keystone: ClassVar[tuple[str, ...]] = ("KS_ARCH_ARM64", "KS_MODE_LITTLE_ENDIAN")
    capstone: ClassVar[tuple[str, ...]] = ("CS_ARCH_ARM64", "CS_MODE_ARM")
    relative: ClassVar[int] = 1027  # R_AARCH64_RELATIVE, AArch64 ELF table "Dynamic relocations"
    irelative: ClassVar[int] = 1032  # R_AARCH64_IRELATIVE
    got: ClassVar[tuple[int, ...]] = (1025, 1026)  # R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT
    page: ClassVar[int] = 65536
    shadow_stack: ClassVar[tuple[int, int]] = (0xC000_0000, 4)  # GNU_PROPERTY_AARCH64_FEATURE_1_GCS
    absolute: ClassVar[int] = 257  # R_AARCH64_ABS64
    calls: ClassVar[tuple[int, ...]] = (283,)  # R_AARCH64_CALL26
    module_tables: ClassVar[tuple[str, ...]] = ("__patchable_function_entries", "__mcount_loc")
    neutral: ClassVar[int] = 0  # R_AARCH64_NONE
    wide: ClassVar[tuple[int, ...]] = (260,)  # R_AARCH64_PREL64
    align: ClassVar[int] = 4
    width: ClassVar[int] = 8
    landing_size: ClassVar[int] = 4
    pad_size: ClassVar[int] = 8
    pad_nops: ClassVar[int] = 2
    apart: ClassVar[int] = 12
    insn_size: ClassVar[int] = 4
    veneer_size: ClassVar[int] = 12
    skips: ClassVar[tuple[int, ...]] = (0, -4 & A64.WRAP)
    mcount_is_pad: ClassVar[bool] = True
    named_sites: ClassVar[dict[str, tuple[str, ...]]] = {
        "ftrace_call": ("ftrace_call",),
        "ftrace_graph_call": ("ftrace_graph_call",),
    }

    def lead(self, abi: Abi) -> int:
        """The pair's first instruction; the -pg form has none."""
        return 4 if abi.pad else 0

    def prefix(self, code: U8) -> NDArray[np.int64]:
        """Count the bytes of NOPs at the start of each row."""
        run = np.minimum.accumulate(words(code) == A64.NOP, axis=1).sum(axis=1)
        return np.asarray(run * 4, np.int64)

    def landing(self, code: U8) -> NDArray[np.bool_]:
        """Test for any BTI."""
        return np.isin(words(code)[:, 0], A64.BTI)

    def call_adjust(self, entry: U64, code: U8, abi: Abi) -> U64:
        """After a BTI, the second instruction of the pair; the -pg form's record is its ip. With
        CALL_OPS, 0 if the literal would not be aligned ("Misaligned patch-site")."""
        if not abi.pad:
            return entry
        skip = self.landing(code).astype(np.uint64) * np.uint64(4) + np.uint64(4)
        misaligned = bool(abi.nop_ops) & (entry % np.uint64(8) != 0)
        return np.where(misaligned, np.uint64(0), entry + skip)

    def decode(self, code: U8, ip: U64, abi: Abi) -> tuple[U8, U64, U8, NDArray[np.bool_]]:
        """The pair, or the one instruction of the -pg form."""
        insn = words(code)
        last = insn[:, 1] if abi.pad else insn[:, 0]
        saved = insn[:, 0] == A64.MOV_X9_LR if abi.pad else np.ones(len(ip), bool)
        call = saved & ((last & np.uint32(A64.BL_MASK)) == A64.BL)
        nop = (last == A64.NOP) & (saved | (insn[:, 0] == A64.NOP))
        state = np.full(len(ip), State.UNEXPECTED, np.uint8)
        state[nop] = State.NOP
        state[call] = State.CALL
        width = np.full(len(ip), 8 if abi.pad else 4, np.uint8)
        addr = np.where(call, branch_target(last, ip), np.uint64(0))
        return state, addr, width, np.zeros(len(ip), bool)

    def make_nop(self, width: U8, nop: bytes, abi: Abi) -> U8:
        """NOPs over the whole site: as the compiler left it, so ftrace_init accepts it."""
        code = template(self.name, "nop", ("nop",))
        return np.tile(np.frombuffer(code * 2, np.uint8), (len(width), 1))

    def make_call(self, ip: U64, addr: U64, width: U8, abi: Abi) -> U8:
        """``mov x9, lr; bl addr``, in this order; ``bl addr`` in the -pg form."""
        bl = template(self.name, "bl 0x101000", ("bl",))
        opcode = int.from_bytes(bl, "little") & A64.BL_MASK
        insn = np.zeros((len(ip), 2), "<u4")
        if abi.pad:
            insn[:, 0] = int.from_bytes(template(self.name, "mov x9, lr", ("mov",)), "little")
        insn[:, 1 if abi.pad else 0] = branch(opcode, ip, addr)
        return insn.view(np.uint8).reshape(-1, 8)

    def unlinked(self, code: U8, abi: Abi) -> U8:
        """``bl`` with an imm26 of zero."""
        insn = words(code).copy()
        last = insn[:, 1 if abi.pad else 0]
        last[(last & np.uint32(A64.BL_MASK)) == A64.BL] = A64.BL
        return insn.view(np.uint8)

    def compiled(self, ip: U64, code: U8, width: U8, abi: Abi) -> U8:
        """Two NOPs, or what a running kernel turns them into; ``bl _mcount``."""
        if abi.pad:
            insn = words(code)
            pair = words(self.make_nop(width, b"", abi)).copy()
            pair[(insn[:, 0] == A64.MOV_X9_LR) & (insn[:, 1] == A64.NOP), 0] = A64.MOV_X9_LR
            return pair.view(np.uint8)
        return self.make_call(ip, np.full(len(ip), abi.mcount, np.uint64), width, abi)

    def init_expects(self, ip: U64, abi: Abi) -> tuple[int, U8]:
        """ftrace_init_nop compares the first NOP; with -pg, ``bl _mcount``."""
        width = np.full(len(ip), 4, np.uint8)
        return -self.lead(abi), self.compiled(ip, np.zeros((len(ip), 8), np.uint8), width, abi)[
            :, :4
        ]

    def deadly(
        self, record: U64, ip: U64, there: NDArray[np.bool_], abi: Abi
    ) -> tuple[Deadly, ...]:
        """With CALL_OPS call_adjust reads the code at a record, and ftrace_init_nop writes the
        literal before it compares: Linux kernel commit baaf553d3bc3 ("arm64: Implement
        HAVE_DYNAMIC_FTRACE_WITH_CALL_OPS") (in v6.3)."""
        if not self._call_ops(abi):
            return ()
        unmapped = "ftrace_call_adjust reads the code there, which is not mapped: a page fault"
        null = (
            "not aligned to 8 bytes: ftrace_call_adjust makes it null, and ftrace_init_nop "
            "writes a literal before that: BUG_ON(!page) in patch_map()"
        )
        crooked = record % np.uint64(8) != 0
        return Deadly(~there & ~crooked, unmapped, early=True), Deadly(crooked, null)

    def after_init(self, ip: U64, abi: Abi) -> U8:
        """``mov x9, lr``; with -pg a NOP."""
        left = A64.MOV_X9_LR if abi.pad else A64.NOP
        return np.tile(np.array([left], "<u4").view(np.uint8), (len(ip), 1))

    def reachable(self, ip: U64, addr: U64) -> NDArray[np.bool_]:
        """imm26 words: 128 MB either way."""
        distance = (addr - ip).view(np.int64)
        return np.asarray((distance >= -A64.REACH) & (distance < A64.REACH) & (distance % 4 == 0))

    def veneer(self, at: int, addr: int) -> bytes:
        """adrp x16, addr; add x16, x16, :lo12:addr; br x16. Reaches 4 GB either way."""
        loaded = address_of(at, addr, "x16")
        return loaded and loaded + template(self.name, "br x16", ("br",))

    def ops_stub(self, at: int, caller: bytes, addr: int, ops: int) -> bytes:
        """adrp x11, ops; add x11, x11, :lo12:ops; b past the two instructions that load it in the
        caller."""
        insn = [int.from_bytes(caller[i : i + 4], "little") for i in range(0, 12, 4)]
        skip = 1 if insn[0] in A64.BTI else 0
        on = addr + 4 * (skip + len(A64.LOAD_OPS))
        from_, to = addresses(at + 8), addresses(on)
        if tuple(insn[skip : skip + 2]) != A64.LOAD_OPS or not self.reachable(from_, to)[0]:
            return b""
        loaded = address_of(at, ops, "x11")
        return loaded and loaded + branch(A64.B, from_, to).tobytes()

    def is_ops_stub(self, code: bytes) -> bool:
        """adrp x11; add x11, x11; b."""
        insn = [int.from_bytes(code[i : i + 4], "little") for i in range(0, 12, 4)]
        return (
            insn[0] & 0x9F00_001F == 0x9000_000B  # adrp x11, imm
            and insn[1] & 0xFFC0_03FF == 0x9100_016B  # add x11, x11, #imm
            and insn[2] & A64.B_MASK == A64.B
        )

    def veneer_target(self, code: bytes, at: int) -> int:
        """A veneer, or a PLT entry (adrp x16; ldr x17, [x16, #]; add; br x17), after a BTI."""
        insn = [int.from_bytes(code[i : i + 4], "little") for i in range(0, 20, 4)]
        if self.is_ops_stub(code):
            last = np.array([insn[2]], "<u4")
            return int(branch_target(last, addresses(at + 8))[0])
        if insn[0] in A64.BTI:
            insn, at = insn[1:], at + 4
        if insn[0] & 0x9F00_001F != 0x9000_0010:  # adrp x16, imm
            return 0
        pages = (insn[0] >> 5 & 0x7FFFF) << 2 | insn[0] >> 29 & 3
        page = ((at >> 12) + (pages - (1 << 21) if pages >> 20 else pages) << 12) & A64.WRAP
        if insn[1] & 0xFFC0_03FF == 0x9100_0210 and insn[2] == 0xD61F_0200:
            return (page + (insn[1] >> 10 & 0xFFF)) & A64.WRAP  # add x16, x16, #lo12; br x16
        if insn[1] & 0xFFC0_03FF == 0xF940_0211 and insn[3] == 0xD61F_0220:
            slot = page + (insn[1] >> 10 & 0xFFF) * 8  # ldr x17, [x16, #]; ...; br x17
            return -(slot & A64.WRAP)
        return 0

    def skipped(self, abi: Abi) -> tuple[int, ...]:
        """Null if it is tested before call_adjust, -4 if that adds 4."""
        first = (0,) if abi.null_seen or not abi.pad else ()
        return first if abi.nop_ops or not abi.pad else (*first, -4 & A64.WRAP)

    def drop(self, abi: Abi) -> int | None:
        """Null if it is tested before call_adjust; else what call_adjust makes null. With CALL_OPS
        that reads the code at the record, so no value but a tested null is safe."""
        if abi.null_seen or not abi.pad:
            return 0
        return None if abi.nop_ops else -4 & A64.WRAP

    def literal(self, ip: U64) -> U64:
        """8-aligned, 12 or 16 before the branch: ftrace_caller finds it through the link
        register."""
        return ((ip + np.uint64(4)) & ~np.uint64(7)) - np.uint64(16)

    def named_site_code(self, name: str, ip: int, addr: int, abi: Abi) -> bytes:
        """``b addr`` or NOP at ftrace_graph_call (ftrace_modify_graph_caller), ``bl`` elsewhere."""
        if not addr:
            return template(self.name, "nop", ("nop",))
        text, mnemonic = ("b 0x101000", "b") if "graph" in name else ("bl 0x101000", "bl")
        opcode = int.from_bytes(template(self.name, text, (mnemonic,)), "little") & A64.BL_MASK
        at, to = addresses(ip), addresses(addr)
        return branch(opcode, at, to).tobytes()

    def named_site_target(self, name: str, code: bytes, ip: int) -> int | None:
        """Target of the branch; 0 for a NOP at ftrace_graph_call."""
        insn = np.frombuffer(code[:4], "<u4")
        if "graph" in name and insn[0] == A64.NOP:
            return 0
        if int(insn[0]) & A64.B_MASK != (A64.B if "graph" in name else A64.BL):
            return None
        return int(branch_target(insn, addresses(ip))[0])

    def named_site_rest(self, name: str) -> str:
        """ftrace_graph_call is a NOP when disabled, ftrace_call branches to ftrace_stub."""
        return "" if "graph" in name else "ftrace_stub"

    @staticmethod
    def _call_ops(abi: Abi) -> bool:
        """Return whether literals precede functions. A module does not name ftrace_nop_ops."""
        return bool(abi.nop_ops) or (abi.kernel and abi.pad and abi.prefix == 8)


ARM64: Final[Arch] = _Arm64()
