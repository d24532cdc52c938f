# SPDX-License-Identifier: MIT
"""Machines with two instruction sets: bit 0 of an address says that the second one is there, in the
values of functions' symbols, and of what calls go to. It is no part of where the code is.

    symbol    0x8001    a function at 0x8000, in the second set
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ftpatch.arch import arch_of, feature, supports

__all__ = ["SecondSet", "instruction_set", "marks_functions"]


@dataclass(frozen=True, slots=True)
class SecondSet:
    """``holds``: whether the code of a site is in the second set; ``mode``: Capstone's constant for
    that, ``pad_size`` the bytes of a pad's site there; ``names`` of the mapping symbols at which
    data begins, code, and code of the second set."""

    holds: Callable[[bytes], bool]
    mode: str
    pad_size: int
    names: tuple[bytes, bytes, bytes]


def instruction_set(arch: str) -> SecondSet | None:
    """The second set of an architecture; None if there is but one."""
    if not supports(arch, "instruction_set"):
        return None
    found: SecondSet = feature(arch, "instruction_set")
    return found


def marks_functions(machine: int, elf_class: int) -> bool:
    """Return whether the symbols of an ELF file's functions have that bit."""
    arch = arch_of(machine, elf_class)
    return arch is not None and supports(arch.name, "instruction_set")
