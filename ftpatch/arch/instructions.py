# SPDX-License-Identifier: MIT
"""Instructions as people read them, and what reads those of an architecture without Capstone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Instruction", "Read"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; ``size`` bytes at ``address``. ``target`` is a branch's target, else None.
    ``operands`` is GNU's AT&T text on x86, the manual's elsewhere; auipc and jalr of one register
    are a ``call``, with that register if it is not ra, and z/Architecture's calls name theirs."""

    address: int
    size: int
    mnemonic: str
    operands: str
    target: int | None


Read = Callable[[bytes, int], list[Instruction]]
"""``read(code, address)``: like disassemble(). Words that it does not know are instructions too, so
that what follows them is read."""
