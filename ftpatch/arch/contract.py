# SPDX-License-Identifier: MIT
"""Contract of an architecture's call sites: pure functions over columns.

Shapes: n sites, addresses uint64[n], code uint8[n, k]. The code of a site is the row of bytes from
``ip - lead`` on that an update may write: on x86 the instruction at ip, on arm64 the pair whose
second instruction is at ip.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.byte_order import ByteOrder

__all__ = ["U8", "U64", "Abi", "Arch", "Deadly", "State"]

U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]


class State(IntEnum):
    """State of a site."""

    NOP = 0
    CALL = 1
    UNEXPECTED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Abi:
    """ABI of an image's sites; read off the image, not off its version.

    ``mcount``: address of the compiled-in callee (``__fentry__``, ``mcount``, ``_mcount``), 0 where
    there is none. ``mcount_got``: address of the GOT slot that holds it, 0 if there is none.
    ``got_base``: what a register holds that points at the GOT (i386: ebx), 0 where unknown.
    ``pad``: the compiled-in form is NOPs. ``prefix``: bytes of pad before the function (M of
    ``-fpatchable-function-entry=N,M``) that most records point at. ``nop``: the image's own NOP,
    empty where it names none; ``chosen``: those of which its kernel takes one when it boots.
    ``nop_ops``: address of ``ftrace_nop_ops`` where sites carry a literal (CALL_OPS), else 0.
    ``trampolines``: address of those that ``ftrace_init_nop`` hands out one after the other, 0
    where there are none. ``stubs``: sites branch to stubs outside of their function, which
    ftrace_init writes, and are no more than that branch. ``unchecked``: start and end of the text
    in which ftrace_init compares nothing, 0, 0 where there is none. ``kernel``: ``ftrace_init``
    will run over the table. ``null_seen``: this kernel tests for null records before
    ``ftrace_call_adjust``, and skips records that are not in its text.
    """

    mcount: int = 0
    mcount_got: int = 0
    got_base: int = 0
    pad: bool = False
    prefix: int = 0
    nop: bytes = b""
    chosen: tuple[bytes, ...] = ()
    nop_ops: int = 0
    trampolines: int = 0
    stubs: bool = False
    unchecked: tuple[int, int] = (0, 0)
    kernel: bool = False
    null_seen: bool = False


@dataclass(frozen=True, slots=True)
class Deadly:
    """Records that ftrace_init does not refuse but crashes on, bool[n], and the reason. ``early``:
    in ftrace_call_adjust, which sees all of them before the first site is compared."""

    mask: NDArray[np.bool_]
    reason: str
    early: bool = False


class Arch(Protocol):
    """One per architecture; the constants' units are bytes."""

    name: ClassVar[str]
    """That of its folder."""
    machine: ClassVar[int]
    order: ClassVar[ByteOrder]
    """That of its files; code may have another."""
    elf_class: ClassVar[int]
    keystone: ClassVar[tuple[str, ...]]
    """Keystone's constants for it, architecture and modes; empty if Keystone lacks it."""
    capstone: ClassVar[tuple[str, ...]]
    """The same for Capstone; empty if it lacks it, and the folder has ``instructions.py``."""
    relative: ClassVar[int]
    """R_*_RELATIVE."""
    irelative: ClassVar[int]
    """R_*_IRELATIVE: what the function at B + A returns."""
    got: ClassVar[tuple[int, ...]]
    """R_*_GLOB_DAT, R_*_JUMP_SLOT: relocations that name what a GOT slot holds."""
    absolute: ClassVar[int]
    """R_*_64 or R_*_32: a word that holds S + A."""
    calls: ClassVar[tuple[int, ...]]
    """Relocations of a call in a relocatable file; a new call gets the first."""
    call_field: ClassVar[int]
    """Bytes from ip to the relocated field."""
    call_addend: ClassVar[int]
    """A of a call of S itself."""
    module_tables: ClassVar[tuple[str, ...]]
    """Section of the table in modules, as the kernel's loader names it; where kernels differ, the
    later one's first."""
    module_nop: ClassVar[bytes]
    """The five-byte NOP for modules, which do not record their kernel's own; empty: any."""
    neutral: ClassVar[int]
    """Relocation type that, with symbol 0, every loader ignores."""
    wide: ClassVar[tuple[int, ...]]
    """Further relocations that write eight bytes where others write four."""
    align: ClassVar[int]
    """Alignment of an instruction."""
    chain: ClassVar[bytes]
    """Bytes before the site of a nested function, whose static chain is on the stack when
    __fentry__ is called; empty: nothing."""
    records_nested: ClassVar[bool]
    """True if the compiler records nested functions although it calls no __fentry__ in them."""
    page: ClassVar[int]
    """The largest page size of a kernel."""
    shadow_stack: ClassVar[tuple[int, int]]
    """Type and bit of the program property that requests a shadow stack; 0, 0: none."""
    around: ClassVar[int]
    """Number of bytes from a record or entry on that prefix and call_adjust need."""
    width: ClassVar[int]
    """k: the widest site."""
    pad_size: ClassVar[int]
    """Bytes of pad that a call takes."""
    pad_nops: ClassVar[int]
    """The number of NOPs in these: N of -fpatchable-function-entry."""
    apart: ClassVar[int]
    """Minimum distance between sites of two functions: a pad and a return."""
    insn_size: ClassVar[int]
    """MCOUNT_INSN_SIZE: bytes that ftrace_bug shows."""
    word_size: ClassVar[int]
    """Bytes of which instructions have one or more, where the mover tells where none begins
    (``joined``); 0 where it takes a disassembler."""
    says_expected: ClassVar[bool]
    """True if ftrace_bug prints what was expected (ftrace_expected is set)."""
    veneer_size: ClassVar[int]
    """Bytes of a veneer; 0 if there is none."""
    plt_sections: ClassVar[tuple[str, ...]]
    """The sections that have PLT entries, as link editors name them."""
    trampoline: ClassVar[int]
    """Bytes of the trampoline that ftrace_init_nop leads each site to; 0 if there is none."""
    nops: ClassVar[dict[str, bytes]]
    """Names and bytes of the NOPs that ``--nop`` offers."""
    skips: ClassVar[tuple[int, ...]]
    """Values that no kernel takes for records: null, and what call_adjust makes null."""
    signed_char: ClassVar[bool]
    """True if C's char is signed."""
    chosen_nops: ClassVar[tuple[bytes, ...]]
    """Five-byte NOPs among which kernels with ``ideal_nops`` select by processor."""
    poked_nop: ClassVar[bytes]
    """The NOP that BPF's fentry replaces itself if ftrace has no record of the function
    (bpf_arch_text_poke); empty: it does not."""
    own_nops: ClassVar[frozenset[bytes]]
    """NOPs that an image may declare as its own."""
    nop_texts: ClassVar[frozenset[str]]
    """NOPs of compilers as Capstone prints them: a name, with operands where it needs them."""
    mcount_names: ClassVar[tuple[str, ...]]
    """Names of the compiled-in callee, most likely first."""
    mcount_is_pad: ClassVar[bool]
    """In the pad form MCOUNT_ADDR stands for what the compiler left: a call of it is no change."""
    named_sites: ClassVar[dict[str, tuple[str, ...]]]
    """Named sites -> the sites that are updated together."""

    def other_abi(self, flags: int) -> str:
        """Name the ABI that ``flags`` (e_flags) say an image has; empty if it is this one."""
        ...

    def lead(self, abi: Abi) -> int:
        """Number of bytes of a site before its ip."""
        ...

    def prefix(self, code: U8) -> NDArray[np.int64]:
        """Count the bytes of NOPs at the start of each row, int64[n]."""
        ...

    def landing(self, code: U8) -> NDArray[np.bool_]:
        """Test which rows begin with a landing pad (endbr, BTI) of ``landing_size`` bytes."""
        ...

    landing_size: ClassVar[int]

    def call_adjust(self, entry: U64, code: U8, abi: Abi) -> U64:
        """ftrace_call_adjust, after it skipped the pad before the function: ip of the site of each
        entry (uint64[n]), 0 for none; code is what stands there, uint8[n, around]."""
        ...

    def decode(self, code: U8, ip: U64, abi: Abi) -> tuple[U8, U64, U8, NDArray[np.bool_]]:
        """State, addr (0 unless CALL), width, and whether addr is that of a GOT slot."""
        ...

    def make_nop(self, width: U8, nop: bytes, abi: Abi) -> U8:
        """The NOP for sites of these widths; ``nop`` is the selected five-byte form, if any."""
        ...

    def make_call(self, ip: U64, addr: U64, width: U8, abi: Abi) -> U8:
        """The call of ``addr`` at each ip; targets must be reachable."""
        ...

    def unlinked(self, code: U8, abi: Abi) -> U8:
        """Code of sites as it stands in a relocatable file: calls without their distance, with A
        in its place where relocations carry none."""
        ...

    def compiled(self, ip: U64, code: U8, width: U8, abi: Abi) -> U8:
        """The compiler's own form at each ip. Where there are several pads, the one that stands
        there is chosen if it is one of them."""
        ...

    def init_expects(self, ip: U64, abi: Abi) -> tuple[int, U8]:
        """(start relative to ip, bytes uint8[n, w]) that the kernel's ftrace_init_nop compares; w
        is 0 where it compares nothing and makes a NOP of whatever stands there."""
        ...

    def extends_bytes(self, code: bytes, at: int) -> bool:
        """Return whether the function ``code`` at address ``at`` reads a byte as a signed char."""
        ...

    def deadly(
        self, record: U64, ip: U64, there: NDArray[np.bool_], abi: Abi
    ) -> tuple[Deadly, ...]:
        """Find records that crash a kernel that does not skip them, uint64[n]: ``ip`` uint64[n] is
        call_adjust's result, ``there`` bool[n] whether memory is mapped there."""
        ...

    def after_init(self, ip: U64, abi: Abi) -> U8:
        """Return what ftrace_init leaves in the bytes it compared, uint8[n, w]. A second record of
        the same site sees this."""
        ...

    def branch_at(self, ip: U64, width: U8, abi: Abi) -> U64:
        """The address of each site's branch, for reachable(), with the bit that says in which
        instruction set it is, where there are two."""
        ...

    def reachable(self, ip: U64, addr: U64) -> NDArray[np.bool_]:
        """Return whether one branch at ip (branch_at()) reaches addr."""
        ...

    def veneer(self, at: int, addr: int) -> bytes:
        """A veneer at address ``at`` that branches to ``addr``; empty if out of reach."""
        ...

    def ops_stub(self, at: int, caller: bytes, addr: int, ops: int) -> bytes:
        """A stub at address ``at`` that has the ops pointer and goes on in ftrace_caller at
        ``addr``, whose code begins ``caller``, behind the load of the literal; empty where that
        does not begin as expected."""
        ...

    def is_ops_stub(self, code: bytes) -> bool:
        """Return whether code begins like such a stub."""
        ...

    def veneer_target(self, code: bytes, at: int) -> int:
        """Target of the veneer or PLT entry ``code`` at address ``at``; 0 if it is none.
        A PLT entry gives the address of its GOT slot, negated."""
        ...

    def skipped(self, abi: Abi) -> tuple[int, ...]:
        """The values that this kernel skips as records."""
        ...

    def drop(self, abi: Abi) -> int | None:
        """The value that this kernel skips as a record; None if there is none."""
        ...

    def literal(self, ip: U64) -> U64:
        """Address of each site's literal (CALL_OPS), uint64[n]."""
        ...

    def named_site_code(self, name: str, ip: int, addr: int, abi: Abi) -> bytes:
        """The code of the named site that goes to ``addr``; addr 0 where it is to be a NOP."""
        ...

    def named_site_target(self, name: str, code: bytes, ip: int) -> int | None:
        """Target of a named site's code, 0 for a NOP; None for anything else."""
        ...

    def named_site_rest(self, name: str) -> str:
        """Symbol that a disabled named site branches to; empty if it is a NOP."""
        ...
