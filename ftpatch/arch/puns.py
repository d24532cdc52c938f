# SPDX-License-Identifier: MIT
"""Punned jumps: only their first bytes replace an instruction, the rest is the code that follows.

    before   insn            | next insn ...        both remain what they are
    after    jmp, low bytes  | high bytes of the displacement

A branch to the following instruction finds it intact, so nothing needs to be known about the
function. The price is the choice of the target: the bytes that stay are its high ones.

After G. J. Duck, X. Gao, A. Roychoudhury: "Binary Rewriting without Control Flow Recovery", PLDI
2020, section 3, tactics B2 and T1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ftpatch.arch import feature

__all__ = ["Pun", "Puns", "puns_of"]


@dataclass(frozen=True, kw_only=True)
class Pun:
    """One form of a jump at link address ``at``: the bytes ``head`` begin it, and it is ``size``
    bytes long. Its targets are [low, high), link addresses."""

    at: int
    head: bytes
    size: int
    low: int
    high: int


class Puns(Protocol):
    """One per architecture. ``reach``: a jump's targets are less than this far away (bytes)."""

    reach: int

    def forms(self, code: bytes, at: int, size: int) -> Sequence[Pun]:
        """Find all forms of a jump at ``at`` in place of an instruction of ``size`` bytes, which
        ``code`` begins with and goes beyond."""
        ...

    def encode(self, pun: Pun, to: int, size: int) -> bytes:
        """Encode what is to be written for the target ``to``: at most the ``size`` bytes of the
        instruction."""
        ...


def puns_of(arch: str) -> Puns:
    """Return an architecture's puns. Raises InputError without them."""
    found: Puns = feature(arch, "puns")
    return found
