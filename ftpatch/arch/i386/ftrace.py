# SPDX-License-Identifier: MIT
"""i386 (EM_386)."""

from __future__ import annotations

from typing import ClassVar, Final

from ftpatch.arch.contract import Arch
from ftpatch.arch.x86.common import X86
from ftpatch.arch.x86.nops import CLANG_PADS, P6
from ftpatch.core.byte_order import LITTLE, ByteOrder

__all__ = ["I386"]


class _I386(X86):
    name: ClassVar[str] = "i386"
    machine: ClassVar[int] = 3  # EM_386
    elf_class: ClassVar[int] = 32
    order: ClassVar[ByteOrder] = LITTLE
    keystone: ClassVar[tuple[str, ...]] = ("KS_ARCH_X86", "KS_MODE_32")
    capstone: ClassVar[tuple[str, ...]] = ("CS_ARCH_X86", "CS_MODE_32")
    wrap: ClassVar[int] = 0xFFFF_FFFF
    relative: ClassVar[int] = 8  # R_386_RELATIVE, i386 psABI table 4.9
    irelative: ClassVar[int] = 42  # R_386_IRELATIVE
    got: ClassVar[tuple[int, ...]] = (6, 7)  # R_386_GLOB_DAT, R_386_JMP_SLOT
    chain: ClassVar[bytes] = b""
    page: ClassVar[int] = 4096
    shadow_stack: ClassVar[tuple[int, int]] = (0xC000_0002, 2)  # GNU_PROPERTY_X86_FEATURE_1_SHSTK
    absolute: ClassVar[int] = 1  # R_386_32
    calls: ClassVar[tuple[int, ...]] = (2, 4)  # R_386_PC32, R_386_PLT32
    # Linux knows no R_386_NONE (apply_relocate in arch/x86/kernel/module.c); R_386_32 of symbol 0,
    # whose value is 0, adds nothing.
    neutral: ClassVar[int] = 1
    wide: ClassVar[tuple[int, ...]] = ()
    pads: ClassVar[tuple[bytes, ...]] = (
        b"\x90\x90\x90\x90\x90",  # gcc: five nop
        *CLANG_PADS,  # for -march=i686 and later
        b"\x66\x90\x66\x90\x90",  # clang: xchg %ax,%ax, twice; nop
        b"\x66\x90\x66\x90\x66",  # the same, longer: what is left begins with 90, a nop
        P6,  # -mnop-mcount
        b"\x3e\x8d\x74\x26\x00",  # GNU as without nopl: lea %ds:0x0(%esi,%eiz,1),%esi
    )
    module_nop: ClassVar[bytes] = b"\x3e\x8d\x74\x26\x00"  # the lea above: an i486 has no nopl
    # As on x86_64, with those of a K7 and of any other: GENERIC_NOP5_ATOMIC, K7_NOP5_ATOMIC.
    chosen_nops: ClassVar[tuple[bytes, ...]] = (
        X86.nops["p6"],
        X86.nops["nop5"],
        pads[-1],
        b"\x3e\x8d\x44\x20\x00",  # lea %ds:0x0(%eax,%eiz,1),%eax
    )
    poked_nop: ClassVar[bytes] = b""
    own_nops: ClassVar[frozenset[bytes]] = frozenset({*X86.nops.values(), pads[-1]})


I386: Final[Arch] = _I386()
