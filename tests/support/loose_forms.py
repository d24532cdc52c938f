# SPDX-License-Identifier: MIT
"""How compilers leave sites in kernel modules, and what ftpatch makes of them, by architecture."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CALLING", "FORMS", "PADS", "Form"]

ARM64_NOP, C_NOP = bytes.fromhex("1f2003d5"), b"\x01\x00"


@dataclass(frozen=True)
class Form:
    """How sites are compiled for one architecture: ``site`` stands at the record, the function
    begins ``before`` bytes behind it. ``call`` is the relocation type of calls, ``field`` where in
    a call it writes, ``body`` a call of printk; with ``mcount`` the site is itself such a call.

    ``enabled`` and ``disabled``: what ftpatch leaves in the function, ``place`` where in that the
    call's relocation is, ``lead`` where ip is, ``neutral`` the type of one that does nothing."""

    arch: str
    machine: int
    table: str
    site: bytes
    absolute: int
    call: int
    body: bytes
    ret: bytes
    enabled: bytes
    disabled: bytes
    place: int
    neutral: int
    before: int = 0
    lead: int = 0
    bits: int = 64
    field: int = 0
    addend: int = 0
    mcount: str = ""
    rela: bool = True
    big: bool = False

    @property
    def word(self) -> int:
        """Bytes of an address."""
        return self.bits // 8

    @property
    def pad(self) -> bytes:
        """What the compiler leaves in the function itself."""
        return self.site[self.before :]


def _x86(name: str, machine: int, bits: int, call: bytes, type_: int, nop: str) -> Form:
    return Form(
        name,
        machine,
        "__mcount_loc",
        call,
        1,  # R_X86_64_64, R_386_32
        type_,
        call,
        b"\xc3",
        call,
        bytes.fromhex(nop),
        place=1,
        neutral=0 if bits == 64 else 1,  # R_X86_64_NONE; R_386_32 of symbol 0
        bits=bits,
        field=1,
        addend=-4,
        mcount="__fentry__",
        rela=bits == 64,
    )


def _arm64(nops: int) -> Form:
    bl, ret = bytes.fromhex("00000094"), bytes.fromhex("c0035fd6")
    return Form(
        "arm64",
        183,
        "__patchable_function_entries",
        ARM64_NOP * nops,
        257,  # R_AARCH64_ABS64
        283,  # R_AARCH64_CALL26
        bl,
        ret,
        bytes.fromhex("e9031eaa") + bl,  # mov x9, x30
        ARM64_NOP * 2,
        place=4,
        neutral=0,  # R_AARCH64_NONE
        before=4 * nops - 8,
        lead=4,
    )


def _riscv64(nops: int) -> Form:
    return Form(
        "riscv64",
        243,
        "__patchable_function_entries",
        C_NOP * nops,
        2,  # R_RISCV_64
        19,  # R_RISCV_CALL_PLT
        bytes.fromhex("97000000e7800000"),  # auipc ra; jalr ra
        b"\x82\x80",
        bytes.fromhex("97020000e7820200"),  # auipc t0; jalr t0
        bytes.fromhex("13000000") * 2,
        place=0,
        neutral=51,  # R_RISCV_RELAX
        before=2 * nops - 8,
    )


FORMS = {
    "x86_64": _x86("x86_64", 62, 64, b"\xe8" + bytes(4), 4, "0f1f440000"),
    "i386": _x86("i386", 3, 32, b"\xe8\xfc\xff\xff\xff", 2, "3e8d742600"),
    "arm64": _arm64(2),
    "arm64-ops": _arm64(4),
    "riscv64": _riscv64(4),
    "riscv64-ops": _riscv64(8),
}
"""The compilers' forms; ``-ops`` as kernels with CALL_OPS have them."""
CALLING = tuple(name for name, form in FORMS.items() if form.mcount)
PADS = tuple(name for name, form in FORMS.items() if not form.mcount)
