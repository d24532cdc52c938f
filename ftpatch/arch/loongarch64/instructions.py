# SPDX-License-Identifier: MIT
"""Instructions of LoongArch that stand at sites, in veneers, PLT entries, at functions' starts and
ends, as GNU objdump prints them; all branches, with their targets as addresses; ``.word`` for the
others.

Encodings: LoongArch Reference Manual, volume 1, appendix B ("Table of Instruction Encoding").
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.instructions import Instruction
from ftpatch.arch.loongarch64.encode import LA, branch_form, distance_of, signed, upper

__all__ = ["read"]

REGISTERS: Final = (
    *("$zero", "$ra", "$tp", "$sp"),
    *(f"$a{number}" for number in range(8)),
    *(f"$t{number}" for number in range(9)),
    *("$r21", "$fp"),
    *(f"$s{number}" for number in range(9)),
)
"""LoongArch ELF psABI, "Register Convention"."""
OR, OR_MASK = 0x0015_0000, 0xFFFF_FC00  # or rd, rj, $zero: move
JIRL = 0x4C00_0000  # jirl rd, rj, offs16
RET = 0x4C00_0020  # ret: jirl $zero, $ra, 0
JR, JR_MASK = 0x4C00_0000, 0xFFFF_FC1F  # jirl $zero, rj, 0
THREE_MASK: Final = 0xFFFF_8000
THREE: Final = {0x0010_8000: "add.d", 0x0011_8000: "sub.d", 0x0015_0000: "or", 0x0015_8000: "xor"}
"""rd, rj, rk."""
CODE: Final = {0x002A_0000: "break", 0x002A_8000: "dbcl", 0x002B_0000: "syscall"}
"""A number of 15 bits."""
SI20_MASK: Final = 0xFE00_0000
SI20: Final = {
    0x1400_0000: "lu12i.w",
    0x1800_0000: "pcaddi",
    0x1A00_0000: "pcalau12i",
    0x1C00_0000: "pcaddu12i",
    0x1E00_0000: "pcaddu18i",
}
"""rd, si20."""
SI12_MASK: Final = 0xFFC0_0000
SI12: Final = {
    0x0280_0000: "addi.w",
    0x02C0_0000: "addi.d",
    0x2880_0000: "ld.w",
    0x28C0_0000: "ld.d",
    0x2980_0000: "st.w",
    0x29C0_0000: "st.d",
}
"""rd, rj, si12."""
ORI: Final = 0x0380_0000  # ori rd, rj, ui12
LOADED: Final = {"addi.w": "li.w", "addi.d": "li.d", "ori": "li.w"}
"""Those that load a number if rj is zero."""
ZERO: Final = {"blt": ("bltz", "bgtz"), "bge": ("bgez", "blez")}
"""Of a comparison with zero: that of rj, and that of rd."""


def read(code: bytes, address: int) -> list[Instruction]:
    """Read all whole words of ``code`` at ``address``."""
    places = range(0, len(code) // 4 * 4, 4)
    return [_instruction(int.from_bytes(code[n : n + 4], "little"), address + n) for n in places]


def _instruction(word: int, address: int) -> Instruction:
    if form := branch_form(word):
        target = address + distance_of(word, form) & 0xFFFF_FFFF_FFFF_FFFF
        mnemonic, registers = _branch(word, form)
        return Instruction(address, 4, mnemonic, ", ".join([*registers, hex(target)]), target)
    mnemonic, operands = _other(word)
    return Instruction(address, 4, mnemonic, operands, None)


def _branch(word: int, form: str) -> tuple[str, list[str]]:
    """Mnemonic and registers."""
    rd, rj = REGISTERS[word & 31], REGISTERS[word >> 5 & 31]
    if form in ("b", "bl", "jiscr0", "jiscr1"):
        return form, []
    if form in ("bceqz", "bcnez"):
        return form, [f"$fcc{word >> 5 & 7}"]
    if form in ("beqz", "bnez"):
        return form, [rj]
    if form in ZERO and "$zero" in (rd, rj):
        of_rj, of_rd = ZERO[form]
        return (of_rj, [rj]) if rd == "$zero" else (of_rd, [rd])
    return form, [rj, rd]


def _other(word: int) -> tuple[str, str]:
    """Mnemonic and operands of what is no branch to a fixed target."""
    rd, rj, rk = (REGISTERS[word >> at & 31] for at in (0, 5, 10))
    if word == LA.NOP:
        return "nop", ""
    if word & OR_MASK == OR:
        return "move", f"{rd}, {rj}"
    if word == RET:
        return "ret", ""
    if word & JR_MASK == JR:
        return "jr", rj
    if word & LA.OPCODE == JIRL:
        return "jirl", f"{rd}, {rj}, {signed(word >> 10, 16) * 4}"
    if name := THREE.get(word & THREE_MASK):
        return name, f"{rd}, {rj}, {rk}"
    if name := CODE.get(word & THREE_MASK):
        return name, hex(word & 0x7FFF)
    if name := SI20.get(word & SI20_MASK):
        return name, f"{rd}, {upper(word)}"
    if word & SI12_MASK == ORI:
        name, value = "ori", hex(word >> 10 & 0xFFF)
    elif name := SI12.get(word & SI12_MASK, ""):
        value = str(signed(word >> 10, 12))
    else:
        return ".word", f"{word:#010x}"
    if rj == "$zero" and name in LOADED:
        return LOADED[name], f"{rd}, {value}"
    return name, f"{rd}, {rj}, {value}"
