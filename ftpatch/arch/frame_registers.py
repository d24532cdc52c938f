# SPDX-License-Identifier: MIT
"""Registers as unwind information numbers them, and where a signal's frame keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["FrameRegisters"]

VECTOR = 8
"""Bytes of a vector register that are recorded."""


@dataclass(frozen=True, kw_only=True)
class FrameRegisters:
    """``names`` of the registers in a thread's state, by DWARF number; the numbers of the ``stack``
    pointer, of the ``frame`` pointer and of the return address (``back``), and whether that is
    a register, which has it until it is saved (``link``); the bits of it that are an
    ``address``; ``restorer``: the code that a signal's handler returns to, and whether that is
    the kernel's (``vdso``), in no file; ``signalled``: where that finds each register, by
    number, and where the instruction pointer (``ip``), from the stack pointer on (bytes);
    ``in_plt``: the CFA inside of a PLT entry, of its address and the stack pointer;
    ``vectors``: names of the vector registers, by DWARF number; ``word``: bytes of an address;
    ``laid``: bytes from where the frame pointer points to the CFA, if prologues always lay it so;
    ``whole``: names of vector registers by those of their lower and upper halves;
    ``shorter``: by how many bytes the frames of signals may be shorter, in front of
    these, which is told by where they have the stack pointer ``again``."""

    names: tuple[str, ...]
    stack: int
    frame: int
    back: int
    link: bool
    address: int
    restorer: bytes
    vdso: bool
    signalled: Mapping[int, int]
    ip: int
    in_plt: Callable[[int, int], int]
    vectors: Mapping[int, str]
    word: int = 8
    laid: int | None = None
    shorter: tuple[int, ...] = (0,)
    again: int | None = None
    whole: Mapping[tuple[str, str], str] = field(default_factory=dict)
    chained: bool = False
    """Each frame begins with the address of its caller's."""
    room: int = 0
    """Bytes from a function's stack pointer, where it is entered, to its CFA, but for what a call
    has put on the stack."""

    @property
    def known(self) -> dict[int, str]:
        """Names of all registers that hold values, by DWARF number."""
        return dict(enumerate(self.names)) | dict(self.vectors)

    def width(self, name: str) -> int:
        """The bytes of a value in a register."""
        return self.word if name in self.names else VECTOR
