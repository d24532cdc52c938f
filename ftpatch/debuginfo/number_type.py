# SPDX-License-Identifier: MIT
"""The types of numbers, from DWARF."""

from __future__ import annotations

from ftpatch.core.number_types import FLOATS, TYPES
from ftpatch.debuginfo.dies import DIE, children, number
from ftpatch.debuginfo.value_parts import POINTERS, size_of, stripped

__all__ = ["number_type"]

# Encodings of base types: DW_ATE_*.
ADDRESS, BOOLEAN, FLOAT, SIGNED, SIGNED_CHAR, UNSIGNED, UNSIGNED_CHAR = 1, 2, 4, 5, 6, 7, 8
UTF = 0x10
LETTERS = {FLOAT: "f", SIGNED: "s", SIGNED_CHAR: "s"}
LETTERS |= dict.fromkeys((ADDRESS, BOOLEAN, UNSIGNED, UNSIGNED_CHAR, UTF), "u")
MAX_NAMES = 1 << 10
"""Enumerators looked at for a negative one."""


def number_type(die: DIE | None) -> str:
    """The type that a value of the type ``die`` is compared as, such as ``s32``; empty for what is
    no number, or of another size than those have. Raises NoValueError."""
    if die is None:
        return ""
    letter = ""
    if die.tag == "DW_TAG_base_type":
        letter = LETTERS.get(number(die, "DW_AT_encoding", 0), "")
    elif die.tag == "DW_TAG_enumeration_type":
        letter = "s" if _is_signed(die) else "u"
    elif die.tag in POINTERS:
        letter = "u"
    type = f"{letter}{8 * size_of(die)}" if letter else ""
    return type if type in TYPES and (letter != "f" or type in FLOATS) else ""


def _is_signed(die: DIE) -> bool:
    under = stripped(die) if "DW_AT_type" in die.attributes else None
    encoding = number(under, "DW_AT_encoding", 0) if under is not None else 0
    if encoding:
        return encoding in (SIGNED, SIGNED_CHAR)
    for count, child in enumerate(children(die)):
        if child.tag == "DW_TAG_enumerator" and number(child, "DW_AT_const_value", 0) < 0:
            return True
        if count == MAX_NAMES:
            break
    return False
