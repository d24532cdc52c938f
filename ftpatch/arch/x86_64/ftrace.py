# SPDX-License-Identifier: MIT
"""x86_64 (EM_X86_64)."""

from __future__ import annotations

from typing import ClassVar, Final

from ftpatch.arch.contract import Arch
from ftpatch.arch.x86.common import X86
from ftpatch.arch.x86.nops import CLANG_PADS, P6
from ftpatch.core.byte_order import LITTLE, ByteOrder

__all__ = ["X86_64"]


class _X8664(X86):
    name: ClassVar[str] = "x86_64"
    machine: ClassVar[int] = 62  # EM_X86_64
    elf_class: ClassVar[int] = 64
    order: ClassVar[ByteOrder] = LITTLE
    keystone: ClassVar[tuple[str, ...]] = ("KS_ARCH_X86", "KS_MODE_64")
    capstone: ClassVar[tuple[str, ...]] = ("CS_ARCH_X86", "CS_MODE_64")
    wrap: ClassVar[int] = 0xFFFF_FFFF_FFFF_FFFF
    relative: ClassVar[int] = 8  # R_X86_64_RELATIVE, x86-64 psABI table 4.9
    irelative: ClassVar[int] = 37  # R_X86_64_IRELATIVE, x86-64 psABI table 4.9
    got: ClassVar[tuple[int, ...]] = (6, 7)  # R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
    chain: ClassVar[bytes] = b"\x41\x52"  # push %r10
    page: ClassVar[int] = 4096
    shadow_stack: ClassVar[tuple[int, int]] = (0xC000_0002, 2)  # GNU_PROPERTY_X86_FEATURE_1_SHSTK
    absolute: ClassVar[int] = 1  # R_X86_64_64
    calls: ClassVar[tuple[int, ...]] = (4, 2)  # R_X86_64_PLT32, R_X86_64_PC32
    neutral: ClassVar[int] = 0  # R_X86_64_NONE
    wide: ClassVar[tuple[int, ...]] = (24, 25, 33)  # R_X86_64_PC64, R_X86_64_GOTOFF64, SIZE64
    pads: ClassVar[tuple[bytes, ...]] = (
        b"\x90\x90\x90\x90\x90",  # gcc: five nop
        *CLANG_PADS,
        P6,  # -mnop-mcount
        b"\x67\x0f\x1f\x04\x00",  # nopl (%eax,%eax,1)
    )
    # arch_init_ideal_nops() of arch/x86/kernel/alternative.c, up to v5.12: P6_NOP5_ATOMIC and
    # K8_NOP5_ATOMIC of asm/nops.h.
    chosen_nops: ClassVar[tuple[bytes, ...]] = (X86.nops["p6"], X86.nops["nop5"])
    poked_nop: ClassVar[bytes] = X86.nops["p6"]
    own_nops: ClassVar[frozenset[bytes]] = frozenset(X86.nops.values())


X86_64: Final[Arch] = _X8664()
