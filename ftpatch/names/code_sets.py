# SPDX-License-Identifier: MIT
"""The code of the second of two instruction sets: mapping symbols say where it is, and in a file
that is stripped of them, bit 0 of the symbols of functions.

    $a    0x8000    code of the first set begins
    $t    0x8040    code of the second set
    $d    0x8050    data
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ftpatch.arch.instruction_set import SecondSet
from ftpatch.elf.symbols import Symbols

__all__ = ["CodeSets"]

DATA, SECOND = 0, 2
"""Places of their names in SecondSet.names."""


class CodeSets:
    """Of the symbols in ``tables``."""

    def __init__(self, second: SecondSet, tables: Sequence[Symbols]) -> None:
        self._at, self._kind = np.empty(0, np.int64), np.empty(0, np.int64)
        for table in tables:
            rows = np.flatnonzero(table.section != Symbols.SHN_UNDEF)
            kinds = np.full(len(rows), -1)
            for kind, name in enumerate(second.names):
                exact, varied = (table.begin(rows, [name + end]) for end in (b"\0", b"."))
                kinds[exact | varied] = kind
            held = rows[kinds >= 0]
            if len(held):
                order = np.argsort(table.value[held], kind="stable")
                self._at = table.value[held][order].view(np.int64)
                self._kind = kinds[kinds >= 0][order]
                break
        self._functions = [_functions(table) for table in tables]

    def is_second(self, address: int) -> bool | None:
        """Return whether the code at a link address is in the second set; None if that is not
        known, or there is data."""
        if len(self._at):
            row = int(np.searchsorted(self._at, address, side="right")) - 1
            kind = int(self._kind[row]) if row >= 0 else DATA
            return None if kind == DATA else kind == SECOND
        for start, end, mark in self._functions:
            row = int(np.searchsorted(start, address, side="right")) - 1
            if row >= 0 and (address < end[row] or address == start[row]):
                return bool(mark[row])
        return None


def _functions(table: Symbols) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, end and mark of the functions of a table, by address."""
    rows = np.flatnonzero((table.type == Symbols.STT_FUNC) & (table.section != Symbols.SHN_UNDEF))
    rows = rows[np.argsort(table.value[rows], kind="stable")]
    start = table.value[rows].view(np.int64)
    return start, start + table.size[rows].view(np.int64), table.mark[rows]
