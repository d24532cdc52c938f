# SPDX-License-Identifier: MIT
"""Changes of a kernel to its own text: tables of places, and the forms that each may have.

    table            | address | length | ...
    forms            | as compiled | replacement | NOP | ...
    text in memory   is one of them, or it is not explained

A kernel's text is replayed: every patcher looks at the places of its tables, in the order of the
kernel's boot, and settles those that hold one of the forms which its table allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8, U64

__all__ = ["Fields", "JumpLabels", "Patcher", "PatchedText", "TextPatching"]


class Fields(Protocol):
    """A table of structures, n rows."""

    def __len__(self) -> int: ...

    def column(self, name: str, dtype: str) -> NDArray[np.int64]:
        """A member of each row, int64[n]; ``dtype`` as numpy has it: ``<i4``."""
        ...

    def address(self, name: str) -> U64:
        """Targets of a member of each row, a 32-bit distance from itself, uint64[n]."""
        ...

    def at(self, offset: int, dtype: str) -> NDArray[np.int64]:
        """Numbers at an offset of each row, int64[n]."""
        ...

    def offset(self, name: str) -> int:
        """A member's offset in bytes."""
        ...


class PatchedText(Protocol):
    """A kernel's text as the file has it and as it is in memory; addresses are link addresses."""

    bias: int
    """Address in the running kernel less link address."""

    def find(self, name: str) -> int:
        """Address of a symbol, 0 if there is none."""
        ...

    def word(self, address: int) -> int:
        """Read a word of memory, such as a pointer; a link address where it points into the kernel.
        0 where it cannot be read."""
        ...

    def number(self, address: int, size: int) -> int:
        """Read a number of ``size`` bytes from memory, as it is; 0 where it cannot be read."""
        ...

    def table(self, begin: str, end: str, struct: str, members: Sequence[str]) -> Fields:
        """The structures between two symbols, or in the section ``begin`` where ``end`` is empty;
        no rows if this kernel has no such table."""
        ...

    def offsets(self, section: str) -> U64:
        """Targets of a section of 32-bit offsets, each relative to itself, uint64[n]."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Ends of the names of symbols that begin so."""
        ...

    def inside(self, at: U64) -> NDArray[np.bool_]:
        """Test which addresses are in the text, bool[n]."""
        ...

    def sections(self, prefix: str) -> list[str]:
        """Names of the file's sections that begin so."""
        ...

    def compiled(self, at: U64, width: int) -> U8:
        """Bytes as the file has them, after what was settled; zeros outside, uint8[n, width]."""
        ...

    def now(self, at: U64, width: int) -> U8:
        """Bytes as they are in memory; zeros outside of text, uint8[n, width]."""
        ...

    def file_code(self, at: int, size: int) -> bytes:
        """Bytes of the file at an address, also of text that is freed."""
        ...

    def file_rows(self, at: U64, width: int) -> U8:
        """The same of many places; zeros where the file has none, uint8[n, width]."""
        ...

    def linked(self, at: U64) -> U64:
        """Link addresses that words of the file are relocated to, uint64[n]; 0 for others."""
        ...

    def differing(self) -> U64:
        """Addresses of the bytes that are not explained yet, uint64[m]."""
        ...

    def settle(
        self, at: U64, width: NDArray[np.int64], *forms: U8, only: bool = False
    ) -> NDArray[np.bool_]:
        """Accept each place that holds one of the forms, uint8[n, k], over its first ``width``
        bytes; with ``only`` it is not explained even if it is as compiled. Return which do,
        bool[n]."""
        ...

    def accept(self, at: int, size: int) -> None:
        """Accept what stands at a place."""
        ...

    def reject(self, at: int, size: int) -> None:
        """Take what stands at a place for unexplained, even if it is as compiled."""
        ...


Patcher = Callable[[PatchedText], None]


@dataclass(frozen=True, slots=True)
class JumpLabels:
    """Forms of a static key's branch, uint8[n, k], and how many bytes each has, int64[n]."""

    nop: U8
    jump: U8
    width: NDArray[np.int64]


class TextPatching(Protocol):
    """An architecture's own ways; those that all share are in ``ftpatch/kcore``."""

    patchers: Sequence[Patcher]

    def jump_labels(self, code: U8, at: U64, target: U64) -> JumpLabels:
        """Both forms of each branch, of which ``code`` is the file's."""
        ...

    breakpoint: bytes
    """Instruction that a kprobe writes over another."""
    entry_nops: Sequence[bytes]
    """Forms of a site that is not enabled, from its first byte on."""
    branch_nop: bytes
    """A NOP in the place of a branch."""

    branch_size: int
    """Bytes of a jump, or a call."""

    def jump_target(self, code: bytes, at: int) -> int:
        """Target of a jump, or a call, at the start of ``code``; 0 if it is none."""
        ...
