# SPDX-License-Identifier: MIT
"""s390x (EM_S390, 64 bits): six bytes at the start of a function.

    Compiled                 Disabled                Enabled
    brcl 0, .                the same                brasl %r0, ftrace_caller
    nopr; nopr; nopr         brcl 0, .               brasl %r1, ftrace_caller
    brasl %r0, __fentry__    brcl 0, .               brasl %r1, addr

In kernels %r0 is the way back into the function, and a callee may change %r0 and %r1 alone. In
programs a nested function has its static chain in %r0 (gcc, STATIC_CHAIN_REGNUM in s390.h): the way
back is in %r1, but for a call of what the compiler calls. %r14 stays the function's own return
address.

ftrace_init_nop wants the compiled form, all six bytes, and leads each site to a trampoline of its
own, which a running kernel switches on and off by the branch's mask:

    brcl 0, trampoline       disabled                the distance is no longer 0
    brcl 15, trampoline      enabled

    trampoline   c0 15 disp32    brasl %r1, shared: lmg %r0, %r1, 2(%r1); br %r1
            +8   ip + 6          goes to %r0
           +16   interceptor     goes to %r1, and is branched to

So ftrace_caller is entered with the address behind the site in %r0, just as a brasl leaves it: an
enabled site needs no trampoline, and a kernel with ``brasl`` compiled in takes the same way. Later
kernels do so themselves where the processor fetches instructions in sequence.

Linux kernel commits de5012b41e5c ("s390/ftrace: implement hotpatching") (in v5.15);
arch/s390/kernel/ftrace.c and mcount.S. The calling convention: gcc's -mfentry, -mhotpatch.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.common import Common
from ftpatch.arch.contract import U8, U64, Abi, Arch, Deadly, State
from ftpatch.arch.s390x.encode import Z, branch, branch_target, opcodes
from ftpatch.core.byte_order import BIG, ByteOrder
from ftpatch.core.columns import addresses

__all__ = ["S390X"]

INTERCEPTOR: Final = slice(16, 24)


class _S390x(Common):
    name: ClassVar[str] = "s390x"
    machine: ClassVar[int] = 22  # EM_S390
    elf_class: ClassVar[int] = 64
    order: ClassVar[ByteOrder] = BIG
    keystone: ClassVar[tuple[str, ...]] = ()  # it counts branches from another place
    capstone: ClassVar[tuple[str, ...]] = ("CS_ARCH_SYSZ", "CS_MODE_BIG_ENDIAN")
    relative: ClassVar[int] = 12  # R_390_RELATIVE, s390x ELF ABI "Relocation Types"
    irelative: ClassVar[int] = 61  # R_390_IRELATIVE
    got: ClassVar[tuple[int, ...]] = (10, 11)  # R_390_GLOB_DAT, R_390_JMP_SLOT
    records_nested: ClassVar[bool] = True  # gcc's -Wcannot-profile
    page: ClassVar[int] = 4096
    absolute: ClassVar[int] = 22  # R_390_64
    calls: ClassVar[tuple[int, ...]] = (20, 19)  # R_390_PLT32DBL, R_390_PC32DBL
    module_tables: ClassVar[tuple[str, ...]] = ("__mcount_loc",)
    call_field: ClassVar[int] = 2
    call_addend: ClassVar[int] = 2  # the field is counted from the instruction, two bytes before it
    neutral: ClassVar[int] = 0  # R_390_NONE: apply_rela in arch/s390/kernel/module.c
    wide: ClassVar[tuple[int, ...]] = (23, 49)  # R_390_PC64, R_390_PLT64
    align: ClassVar[int] = 2
    width: ClassVar[int] = 6
    landing_size: ClassVar[int] = 2
    pad_size: ClassVar[int] = 6
    pad_nops: ClassVar[int] = 3
    apart: ClassVar[int] = 8
    insn_size: ClassVar[int] = 6
    trampoline: ClassVar[int] = 24  # SIZEOF_FTRACE_HOTPATCH_TRAMPOLINE
    mcount_is_pad: ClassVar[bool] = True
    named_sites: ClassVar[dict[str, tuple[str, ...]]] = {}  # ftrace_func is a variable
    nop_texts: ClassVar[frozenset[str]] = frozenset({"bcr 0, %r0", "bcr 0, %r7", "bc 0, 0"})
    mcount_names: ClassVar[tuple[str, ...]] = ("__fentry__", "_mcount")

    def prefix(self, code: U8) -> NDArray[np.int64]:
        """Count the bytes of NOPs, of two, four or six bytes each, at the start of each row."""
        half = BIG.unsigned(np.ascontiguousarray(code), 2).reshape(len(code), code.shape[1] // 2)
        padded = np.pad(half, ((0, 0), (0, 2)), constant_values=1)
        after = padded[:, 1:-1]
        run = np.zeros(len(code), np.int64)
        row = np.arange(len(code))
        for _ in range(half.shape[1]):
            at = np.minimum(run // 2, half.shape[1] - 1)
            first, second = half[row, at], after[row, at]
            size = np.select(
                [first == Z.NOPR, (first == 0x4700) & (second == 0), first == Z.BRCL_0], [2, 4, 6]
            )
            size[run + size > code.shape[1]] = 0
            if not size.any():
                break
            run += size
        return run

    def decode(self, code: U8, ip: U64, abi: Abi) -> tuple[U8, U64, U8, NDArray[np.bool_]]:
        """``brasl`` and, in a running kernel, ``brcl 15``; every NOP of compilers, and ``brcl 0``
        wherever it leads."""
        opcode = opcodes(code)
        other = Z.BRCL_15 if abi.kernel else Z.BRASL_R1
        call = (opcode == Z.BRASL_R0) | (opcode == other)
        nop = (opcode == Z.BRCL_0) | (code[:, : Z.SIZE] == Z.PADS[1]).all(axis=1)
        state = np.full(len(ip), State.UNEXPECTED, np.uint8)
        state[nop] = State.NOP
        state[call] = State.CALL
        width = np.full(len(ip), self.width, np.uint8)
        target = np.where(call, branch_target(code, ip), np.uint64(0))
        return state, target, width, np.zeros(len(ip), bool)

    def make_nop(self, width: U8, nop: bytes, abi: Abi) -> U8:
        """``brcl 0, .``"""
        return np.tile(Z.PADS[0], (len(width), 1))

    def make_call(self, ip: U64, addr: U64, width: U8, abi: Abi) -> U8:
        """``brasl %r0, addr``; ``brasl %r1, addr``"""
        compiled = (addr == np.uint64(abi.mcount)) & (not abi.pad)
        own = np.where(compiled | abi.kernel, Z.BRASL_R0, Z.BRASL_R1)
        return branch(own, ip, addr)

    def unlinked(self, code: U8, abi: Abi) -> U8:
        """``brasl`` with a distance of zero."""
        out = code.copy()
        out[np.isin(opcodes(code), (Z.BRASL_R0, Z.BRASL_R1)), 2:] = 0
        return out

    def compiled(self, ip: U64, code: U8, width: U8, abi: Abi) -> U8:
        """One of the pads; ``brasl %r0, __fentry__``."""
        if not abi.pad:
            return self.make_call(ip, np.full(len(ip), abi.mcount, np.uint64), width, abi)
        out = np.tile(Z.PADS[0], (len(ip), 1))
        if not abi.kernel:  # whose compiler may have left the other one
            out[(code[:, : Z.SIZE] == Z.PADS[1]).all(axis=1)] = Z.PADS[1]
        return out

    def init_expects(self, ip: U64, abi: Abi) -> tuple[int, U8]:
        """``brcl 0, .``, as compiled."""
        return 0, np.tile(Z.PADS[0], (len(ip), 1))

    def deadly(
        self, record: U64, ip: U64, there: NDArray[np.bool_], abi: Abi
    ) -> tuple[Deadly, ...]:
        """ftrace_init_nop reads the site by memcmp(), or, as Debian's 6.12.107 has it, refuses it,
        since it reads by copy_from_kernel_nofault(). Kernels of the latter kind skip such a record
        of their own; which of them loads a module, that does not tell."""
        reason = "ftrace_init_nop reads there unchecked: it is not mapped"
        return (Deadly(~there & bool(abi.trampolines), reason),)

    def after_init(self, ip: U64, abi: Abi) -> U8:
        """``brcl 0`` to the trampoline of the record before: each record takes the next one. Where
        the trampolines are unknown, as in a module, the distance is too, but never 0."""
        if not abi.trampolines:
            return np.tile(
                np.array([*BIG.packed(Z.BRCL_0, 2), *[0xFF] * 4], np.uint8), (len(ip), 1)
            )
        before = np.arange(-1, len(ip) - 1, dtype=np.int64) * self.trampoline
        return branch(Z.BRCL_0, ip, np.uint64(abi.trampolines) + before.view(np.uint64))

    def reachable(self, ip: U64, addr: U64) -> NDArray[np.bool_]:
        """4 GB either way, in halfwords."""
        distance = (addr - ip).view(np.int64)
        near = (distance >= -Z.REACH) & (distance < Z.REACH)
        return np.asarray(near & (distance % 2 == 0))

    def veneer_target(self, code: bytes, at: int) -> int:
        """The interceptor of a trampoline in a running kernel; a PLT entry (larl %r1; lg %r1,
        0(%r1); br %r1)."""
        head = np.frombuffer(code[: Z.SIZE].ljust(Z.SIZE, b"\0"), np.uint8).reshape(1, -1)
        opcode = int(opcodes(head)[0])
        if opcode == Z.BRASL_R1:
            return BIG.integer(code[INTERCEPTOR])
        if opcode != Z.LARL_R1 or code[Z.SIZE : Z.SIZE + len(Z.LG_R1)] != Z.LG_R1:
            return 0
        return -int(branch_target(head, addresses(at))[0])


S390X: Final[Arch] = _S390x()
