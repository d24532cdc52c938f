# SPDX-License-Identifier: MIT
"""Prologue of a detour: calls the probes with all state intact, and continues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ftpatch.arch import feature

__all__ = ["OFFSET", "RESTORE", "Detour", "FarDetour", "cfa_offset", "detour_of", "uleb"]

DEF_CFA_OFFSET = 0x0E
OFFSET = 0x80
RESTORE = 0xC0
"""DW_CFA_*; the last two with a register in the lower bits."""


@dataclass(frozen=True, kw_only=True)
class FarDetour:
    """A prologue whose callee is anywhere. ``entry(to)``: what leads to the code at address ``to``
    from near detours, once for all of them; ``size`` and ``make(at, place, entry)``: as Detour has
    them, with the address of that."""

    entry: Callable[[int], bytes]
    size: int
    make: Callable[[int, int, int], bytes]


@dataclass(frozen=True, kw_only=True)
class Detour:
    """``size`` bytes; ``make(at, place, caller)``: those for address ``at``, which pass the place's
    number to the code at address ``caller``; of two instruction sets bit 0 of ``at`` says which.
    ``frames(offset, held)``: their unwind information, (distance from their start, DW_CFA
    instructions), where the CFA is ``offset`` bytes from register ``stack`` (DWARF number) at the
    place, and the return address is ``held`` in memory."""

    size: int
    make: Callable[[int, int, int], bytes]
    stack: int
    frames: Callable[[int, bool], list[tuple[int, bytes]]]
    link: int
    """The DWARF number of the register with the return address."""
    far: FarDetour


def detour_of(arch: str) -> Detour:
    """The detour of an architecture. Raises InputError if there is none."""
    found: Detour = feature(arch, "detour")
    return found


def cfa_offset(offset: int) -> bytes:
    """DW_CFA_def_cfa_offset."""
    return bytes([DEF_CFA_OFFSET]) + uleb(offset)


def uleb(number: int) -> bytes:
    """Encode a number as ULEB128."""
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])
