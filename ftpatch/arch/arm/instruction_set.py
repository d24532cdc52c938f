# SPDX-License-Identifier: MIT
"""Thumb (T32), beside A32: ELF for the Arm Architecture, 5.5.3 "Symbol Values", and 5.5.5 "Mapping
Symbols"."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.arm.encode import T32
from ftpatch.arch.instruction_set import SecondSet

__all__ = ["INSTRUCTION_SET"]


def _is_thumb(code: bytes) -> bool:
    """Return whether code begins as a pad does in T32, with a NOP or ``push {lr}``."""
    return int.from_bytes(code[:2], "little") in (*T32.NOPS, T32.PUSH_LR)


INSTRUCTION_SET: Final = SecondSet(
    holds=_is_thumb, mode="CS_MODE_THUMB", pad_size=6, names=(b"$d", b"$a", b"$t")
)
