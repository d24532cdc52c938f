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

from ftpatch.arch.assemble import template
from ftpatch.arch.contract import U8, U64, Abi, Arch, State

__all__ = ["ARM64"]

NOP = 0xD503201F  # nop
MOV_X9_LR = 0xAA1E03E9  # mov x9, x30
BL, BL_MASK = 0x94000000, 0xFC000000  # bl imm26
B, B_MASK = 0x14000000, 0xFC000000  # b imm26
BTI = (0xD503245F, 0xD503249F, 0xD50324DF, 0xD503241F)  # bti c; bti j; bti jc; bti
REACH = 1 << 27  # bytes either way of an imm26 branch: +-128 MB
WRAP = 0xFFFF_FFFF_FFFF_FFFF


def words(code: U8) -> NDArray[np.uint32]:
    """Rows of bytes as rows of little-endian instructions."""
    return np.ascontiguousarray(code).view("<u4")


def branch(opcode: int, ip: U64, addr: U64) -> NDArray[np.uint32]:
    """``opcode`` with the distance from ip to addr in its imm26, uint32[n]."""
    distance = (addr - ip).view(np.int64) >> 2
    return (np.uint32(opcode) | (distance & 0x03FF_FFFF).astype(np.uint32)).astype("<u4")


def branch_target(insn: NDArray[np.uint32], ip: U64) -> U64:
    """Where imm26 branches at ip go, uint64[n]."""
    imm = (insn << np.uint32(6)).view(np.int32).astype(np.int64) >> 6
    return ip + (imm << 2).view(np.uint64)


class _Arm64:
    name: ClassVar[str] = "arm64"
    machine: ClassVar[int] = 183  # EM_AARCH64
    elf_class: ClassVar[int] = 64
    relative: ClassVar[int] = 1027  # R_AARCH64_RELATIVE, AArch64 ELF table "Dynamic relocations"
    got: ClassVar[tuple[int, ...]] = (1025, 1026)  # R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT
    align: ClassVar[int] = 4
    around: ClassVar[int] = 64
    width: ClassVar[int] = 8
    landing_size: ClassVar[int] = 4
    pad_size: ClassVar[int] = 8
    apart: ClassVar[int] = 12
    insn_size: ClassVar[int] = 4
    says_expected: ClassVar[bool] = False
    veneer_size: ClassVar[int] = 12
    nops: ClassVar[dict[str, bytes]] = {}
    skips: ClassVar[tuple[int, ...]] = (0, -4 & WRAP)
    own_nops: ClassVar[frozenset[bytes]] = frozenset()
    mcount_is_pad: ClassVar[bool] = True
    mcount_names: ClassVar[tuple[str, ...]] = ("_mcount", "mcount")
    gates: ClassVar[dict[str, tuple[str, ...]]] = {
        "ftrace_call": ("ftrace_call",),
        "ftrace_graph_call": ("ftrace_graph_call",),
    }

    def lead(self, abi: Abi) -> int:
        """The pair's first instruction; the -pg form has none."""
        return 4 if abi.pad else 0

    def prefix(self, code: U8) -> NDArray[np.int64]:
        """Bytes of NOPs that each row begins with."""
        run = np.minimum.accumulate(words(code) == NOP, axis=1).sum(axis=1)
        return np.asarray(run * 4, np.int64)

    def landing(self, code: U8) -> NDArray[np.bool_]:
        """Any BTI."""
        return np.isin(words(code)[:, 0], BTI)

    def call_adjust(self, entry: U64, code: U8, abi: Abi) -> U64:
        """Behind a BTI, the second instruction of the pair; the -pg form's record is its ip."""
        if not abi.pad:
            return entry
        skip = self.landing(code).astype(np.uint64) * np.uint64(4) + np.uint64(4)
        return entry + skip

    def decode(self, code: U8, ip: U64, abi: Abi) -> tuple[U8, U64, U8, NDArray[np.bool_]]:
        """The pair, or the one instruction of the -pg form."""
        insn = words(code)
        last = insn[:, 1] if abi.pad else insn[:, 0]
        saved = insn[:, 0] == MOV_X9_LR if abi.pad else np.ones(len(ip), bool)
        call = saved & ((last & np.uint32(BL_MASK)) == BL)
        nop = (last == NOP) & (saved | (insn[:, 0] == NOP))
        state = np.full(len(ip), State.UNEXPECTED, np.uint8)
        state[nop] = State.NOP
        state[call] = State.CALL
        width = np.full(len(ip), 8 if abi.pad else 4, np.uint8)
        addr = np.where(call, branch_target(last, ip), np.uint64(0))
        return state, addr, width, np.zeros(len(ip), bool)

    def make_nop(self, width: U8, nop: bytes, abi: Abi) -> U8:
        """NOPs over the whole site: what the compiler left, so ftrace_init meets what it knows."""
        code = template(self.name, "nop", ("nop",))
        return np.tile(np.frombuffer(code * 2, np.uint8), (len(width), 1))

    def make_call(self, ip: U64, addr: U64, width: U8, abi: Abi) -> U8:
        """``mov x9, lr; bl addr``, in this order; ``bl addr`` in the -pg form."""
        bl = template(self.name, "bl 0x101000", ("bl",))
        opcode = int.from_bytes(bl, "little") & BL_MASK
        insn = np.zeros((len(ip), 2), "<u4")
        if abi.pad:
            insn[:, 0] = int.from_bytes(template(self.name, "mov x9, lr", ("mov",)), "little")
        insn[:, 1 if abi.pad else 0] = branch(opcode, ip, addr)
        return insn.view(np.uint8).reshape(-1, 8)

    def compiled(self, ip: U64, code: U8, width: U8, abi: Abi) -> U8:
        """Two NOPs, or what a running kernel makes of them; ``bl _mcount``."""
        if abi.pad:
            insn = words(code)
            pair = words(self.make_nop(width, b"", abi)).copy()
            pair[(insn[:, 0] == MOV_X9_LR) & (insn[:, 1] == NOP), 0] = MOV_X9_LR
            return pair.view(np.uint8)
        return self.make_call(ip, np.full(len(ip), abi.mcount, np.uint64), width, abi)

    def init_expects(self, ip: U64, abi: Abi) -> tuple[int, U8]:
        """ftrace_init_nop compares the first NOP; with -pg, ``bl _mcount``."""
        width = np.full(len(ip), 4, np.uint8)
        return -self.lead(abi), self.compiled(ip, np.zeros((len(ip), 8), np.uint8), width, abi)[
            :, :4
        ]

    def after_init(self, ip: U64, abi: Abi) -> U8:
        """``mov x9, lr``; with -pg a NOP."""
        left = MOV_X9_LR if abi.pad else NOP
        return np.tile(np.array([left], "<u4").view(np.uint8), (len(ip), 1))

    def reachable(self, ip: U64, addr: U64) -> NDArray[np.bool_]:
        """imm26 words: 128 MB either way."""
        distance = (addr - ip).view(np.int64)
        return np.asarray((distance >= -REACH) & (distance < REACH) & (distance % 4 == 0))

    def veneer(self, at: int, addr: int) -> bytes:
        """adrp x16, addr; add x16, x16, :lo12:addr; br x16. Reaches 4 GB either way."""
        pages = (addr >> 12) - (at >> 12)
        if not -(1 << 20) <= pages < 1 << 20:
            return b""
        text = "adrp x16, 0x1000; add x16, x16, #0; br x16"
        code = template(self.name, text, ("adrp", "add", "br"), 0x1000)
        adrp, add, br = (int.from_bytes(code[i : i + 4], "little") for i in (0, 4, 8))
        adrp |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5  # immlo, immhi
        add |= (addr & 0xFFF) << 10  # imm12
        return b"".join(insn.to_bytes(4, "little") for insn in (adrp, add, br))

    def veneer_target(self, code: bytes, at: int) -> int:
        """A veneer, or a PLT entry (adrp x16; ldr x17, [x16, #]; add; br x17), behind a BTI."""
        insn = [int.from_bytes(code[i : i + 4], "little") for i in range(0, 20, 4)]
        if insn[0] in BTI:
            insn, at = insn[1:], at + 4
        if insn[0] & 0x9F00_001F != 0x9000_0010:  # adrp x16, imm
            return 0
        pages = (insn[0] >> 5 & 0x7FFFF) << 2 | insn[0] >> 29 & 3
        page = ((at >> 12) + (pages - (1 << 21) if pages >> 20 else pages) << 12) & WRAP
        if insn[1] & 0xFFC0_03FF == 0x9100_0210 and insn[2] == 0xD61F_0200:
            return page + (insn[1] >> 10 & 0xFFF)  # add x16, x16, #lo12; br x16
        if insn[1] & 0xFFC0_03FF == 0xF940_0211 and insn[3] == 0xD61F_0220:
            return -(page + (insn[1] >> 10 & 0xFFF) * 8)  # ldr x17, [x16, #]; ...; br x17
        return 0

    def drop(self, abi: Abi) -> int | None:
        """Null where it is tested before call_adjust; else what call_adjust makes null. With
        CALL_OPS it reads the code at the record, so no value but a tested null is safe."""
        if abi.null_seen or not abi.pad:
            return 0
        return None if abi.nop_ops else -4 & WRAP

    def literal(self, ip: U64) -> U64:
        """8-aligned, 12 or 16 before the branch: ftrace_caller takes it off the link register."""
        return ((ip + np.uint64(4)) & ~np.uint64(7)) - np.uint64(16)

    def gate(self, name: str, ip: int, addr: int, abi: Abi) -> bytes:
        """``b addr`` or NOP at ftrace_graph_call (ftrace_modify_graph_caller), ``bl`` elsewhere."""
        if not addr:
            return template(self.name, "nop", ("nop",))
        text, mnemonic = ("b 0x101000", "b") if "graph" in name else ("bl 0x101000", "bl")
        opcode = int.from_bytes(template(self.name, text, (mnemonic,)), "little") & BL_MASK
        at, to = np.array([ip], np.uint64), np.array([addr], np.uint64)
        return branch(opcode, at, to).tobytes()

    def gate_target(self, name: str, code: bytes, ip: int) -> int | None:
        """Target of the branch; 0 for a NOP at ftrace_graph_call."""
        insn = np.frombuffer(code[:4], "<u4")
        if "graph" in name and insn[0] == NOP:
            return 0
        if int(insn[0]) & B_MASK != (B if "graph" in name else BL):
            return None
        return int(branch_target(insn, np.array([ip], np.uint64))[0])

    def gate_rest(self, name: str) -> str:
        """ftrace_graph_call is a NOP when disabled, ftrace_call goes to ftrace_stub."""
        return "" if "graph" in name else "ftrace_stub"


ARM64: Final[Arch] = _Arm64()
