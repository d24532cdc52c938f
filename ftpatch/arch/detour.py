"""Prologue of a detour: calls the probes with everything as it was, and goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ftpatch.arch import feature

__all__ = ["OFFSET", "RESTORE", "Detour", "cfa_offset", "detour_of", "uleb"]

DEF_CFA_OFFSET = 0x0E
OFFSET = 0x80
RESTORE = 0xC0
"""DW_CFA_*; the last two with a register in the lower bits."""


@dataclass(frozen=True, kw_only=True)
class Detour:
    """``size`` bytes; ``make(at, place, caller)``: those at address ``at``, which tell the number
    of the place to what is at address ``caller``. ``frames(offset, held)``: what unwinders are told
    of them, (distance from their start, DW_CFA instructions), where the CFA is ``offset`` bytes
    from register ``stack`` (as DWARF counts) at the place, and the return address is ``held`` in
    memory."""

    size: int
    make: Callable[[int, int, int], bytes]
    stack: int
    frames: Callable[[int, bool], list[tuple[int, bytes]]]
    link: int
    """The register with the return address, as DWARF counts."""


def detour_of(arch: str) -> Detour:
    """The detour of an architecture. Raises InputError where there is none."""
    found: Detour = feature(arch, "detour")
    return found


def cfa_offset(offset: int) -> bytes:
    """DW_CFA_def_cfa_offset."""
    return bytes([DEF_CFA_OFFSET]) + uleb(offset)


def uleb(number: int) -> bytes:
    """A number as unsigned LEB128."""
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])
