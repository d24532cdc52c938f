# SPDX-License-Identifier: MIT
"""An assembler for the instructions of riscv64's own code; Keystone has no RISC-V.

Each is four bytes: there are no compressed forms, which a processor need not have. Encodings: The
RISC-V Instruction Set Manual, volume I, "RV32/64G Instruction Set Listings" and "RISC-V Assembly
Programmer's Handbook"; volume II, "CSR Listing".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ftpatch.arch.assembler import Assembler
from ftpatch.arch.riscv64.encode import RV
from ftpatch.arch.riscv64.registers import REGISTERS

__all__ = ["ASSEMBLER"]

CSR: Final = {"sstatus": 0x100}
FORMS: Final = {
    # mnemonic: what its operands are, in their order, and all other bits
    "add": ("rd rs1 rs2", 0x33),
    "or": ("rd rs1 rs2", 0x6033),
    "sub": ("rd rs1 rs2", 0x4000_0033),
    "subw": ("rd rs1 rs2", 0x4000_003B),
    "addi": ("rd rs1 low", 0x13),
    "addiw": ("rd rs1 low", 0x1B),
    "andi": ("rd rs1 low", 0x7013),
    "ori": ("rd rs1 low", 0x6013),
    "slli": ("rd rs1 shift", 0x1013),
    "srli": ("rd rs1 shift", 0x5013),
    "srai": ("rd rs1 shift", 0x4000_5013),
    "mv": ("rd rs1", 0x13),  # addi rd, rs1, 0
    "nop": ("", 0x13),  # addi x0, x0, 0
    "lui": ("rd high", 0x37),
    "auipc": ("rd high", 0x17),
    "lw": ("rd load", 0x2003),
    "ld": ("rd load", 0x3003),
    "sb": ("rs2 store", 0x23),
    "sw": ("rs2 store", 0x2023),
    "sd": ("rs2 store", 0x3023),
    "amoadd.w": ("rd rs2 place", 0x202F),
    "lr.d": ("rd place", 0x1000_302F),
    "sc.d": ("rd rs2 place", 0x1800_302F),
    "amoswap.w.aq": ("rd rs2 place", 0x0C00_202F),
    "fence": ("before after", 0xF),
    "beq": ("rs1 rs2 near", 0x63),
    "bne": ("rs1 rs2 near", 0x1063),
    "bnez": ("rs1 near", 0x1063),  # bne rs1, x0
    "beqz": ("rs1 near", 0x63),  # beq rs1, x0
    "blez": ("rs2 near", 0x5063),  # bge x0, rs2
    "bltz": ("rs1 near", 0x4063),  # blt rs1, x0
    "blt": ("rs1 rs2 near", 0x4063),
    "bltu": ("rs1 rs2 near", 0x6063),
    "bgeu": ("rs1 rs2 near", 0x7063),
    "jal": ("rd far", RV.JAL),
    "j": ("far", RV.JAL),  # jal x0
    "jr": ("rs1", RV.JALR),  # jalr x0, 0(rs1)
    "jalr": ("rd load", RV.JALR),
    "ret": ("", RV.JALR | RV.RA << 15),  # jalr x0, 0(ra)
    "csrrci": ("rd csr bits", 0x7073),
    "csrs": ("csr rs1", 0x2073),  # csrrs x0, csr, rs1
    "rdtime": ("rd", 0xC010_2073),  # csrrs rd, time, x0
    "ecall": ("", 0x73),
    "ebreak": ("", 0x0010_0073),
}
MEMORY: Final = re.compile(r"(-?\w*)\((\w+)\)")
ORDERS: Final = "wroi"
"""Bits of a fence's sets, the lowest first."""


def _register(at: int) -> Callable[[str, int], int]:
    return lambda text, _: REGISTERS.numbers[text] << at


def _number(bits: int, at: int, *, signed: bool = False) -> Callable[[str, int], int]:
    """A number of so many bits."""

    def encoded(text: str, _: int) -> int:
        value = int(text, 0)
        low = -(1 << bits - 1) if signed else 0
        if not low <= value < low + (1 << bits):
            raise ValueError(f"{text} does not fit into {bits} bits")
        return (value & (1 << bits) - 1) << at

    return encoded


def _memory(*, store: bool) -> Callable[[str, int], int]:
    """``12(sp)``: rs1, and twelve bits that a store keeps in two parts."""

    def encoded(text: str, _: int) -> int:
        found = MEMORY.fullmatch(text)
        if found is None:
            raise ValueError(f"{text} is no place in memory")
        number = _number(12, 0, signed=True)(found[1] or "0", 0)
        placed = number >> 5 << 25 | (number & 31) << 7 if store else number << 20
        return placed | REGISTERS.numbers[found[2]] << 15

    return encoded


def _place(text: str, _: int) -> int:
    """``(sp)``: rs1 of an atomic instruction, which has no distance."""
    return REGISTERS.numbers[text.removeprefix("(").removesuffix(")")] << 15


def _target(form: str, bits: int) -> Callable[[str, int], int]:
    """Where a branch goes: an address that is so many bits away, the lowest of which is 0."""

    def encoded(text: str, here: int) -> int:
        distance = int(text, 0) - here
        if not -(1 << bits - 1) <= distance < 1 << bits - 1 or distance % 2:
            raise ValueError(f"{text} is out of a branch's reach from {here:#x}")
        word = 0
        for to, count, at in RV.FIELDS[form]:
            word |= (distance >> at & (1 << count) - 1) << to
        return word

    return encoded


def _fence(at: int) -> Callable[[str, int], int]:
    return lambda text, _: sum(1 << ORDERS.index(one) for one in text) << at


OPERANDS: Final[dict[str, Callable[[str, int], int]]] = {
    "rd": _register(7),
    "rs1": _register(15),
    "rs2": _register(20),
    "low": _number(12, 20, signed=True),
    "shift": _number(6, 20),
    "high": _number(20, 12),
    "load": _memory(store=False),
    "store": _memory(store=True),
    "place": _place,
    "near": _target("branch", 13),
    "far": _target("jal", 21),
    "before": _fence(24),
    "after": _fence(20),
    "csr": lambda text, _: CSR[text] << 20,
    "bits": _number(5, 15),
}


def _assembled(text: str, at: int) -> bytes:
    name, _, rest = text.partition(" ")
    given = [one.strip() for one in rest.split(",")] if rest else []
    kinds, word = FORMS.get(name, ("?", 0))
    wanted = kinds.split()
    if len(given) != len(wanted) or "?" in wanted:
        raise ValueError(f"riscv64: cannot assemble {text!r}")
    for kind, one in zip(wanted, given, strict=True):
        try:
            word |= OPERANDS[kind](one, at)
        except KeyError:
            raise ValueError(f"riscv64: cannot assemble {text!r}") from None
    return word.to_bytes(4, "little")


ASSEMBLER: Final[Assembler] = _assembled
