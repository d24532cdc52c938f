# SPDX-License-Identifier: MIT
"""The versions of dynamic symbols (Linux Standard Base, "Symbol Versioning").

    .gnu.version      one word for each row of .dynsym: number | 0x8000 if it is hidden
    .gnu.version_d    what a library defines: number, name

The version of a name that is not hidden is its default, ``hypot@@GLIBC_2.35`` in nm: programs are
linked with that. Those that were linked earlier ask for another one, ``hypot@GLIBC_2.2.5``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.dynamic import Tag, dynamic_string, dynamic_tags, offset_of_tag
from ftpatch.elf.elf_file import Elf

__all__ = ["SymbolVersions", "symbol_versions"]

HIDDEN = 0x8000
"""VERSYM_HIDDEN."""
BASE = 1
"""VER_NDX_GLOBAL: that of the library itself, which symbols without a version have."""
DEFINITION = np.dtype(
    {
        "names": ["number", "names", "next"],
        "formats": ["<u2", "<u4", "<u4"],
        "offsets": [4, 12, 16],
        "itemsize": 20,
    }
)
"""Elf64_Verdef, which Elf32_Verdef is as well: vd_ndx, vd_aux, vd_next."""


@dataclass(frozen=True)
class SymbolVersions:
    """The versions of n dynamic symbols: ``number`` uint16[n], ``hidden`` bool[n]; the ``names`` of
    those that the image defines, by number."""

    number: NDArray[np.uint16]
    hidden: NDArray[np.bool_]
    names: dict[int, str]

    def name(self, row: int) -> str:
        """The version of a symbol; empty if it has none."""
        return self.names.get(int(self.number[row]), "") if row < len(self.number) else ""

    def named(self, rows: NDArray[np.intp], version: str) -> NDArray[np.intp]:
        """Those of the rows that have a version; ``@NAME``: whose default it is."""
        default, name = version.startswith("@"), version.removeprefix("@")
        found = [
            row
            for row in rows.tolist()
            if self.name(row) == name and not (default and self.hidden[row])
        ]
        return np.array(found, np.intp)

    def default(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the rows that are not hidden; all if there are none of these."""
        shown = rows[(rows >= len(self.hidden)) | ~self.hidden[np.minimum(rows, self._last)]]
        return shown if len(shown) else rows

    @property
    def _last(self) -> int:
        return max(len(self.hidden) - 1, 0)


def symbol_versions(elf: Elf, count: int) -> SymbolVersions:
    """Read the versions of ``count`` dynamic symbols; those of a file that has none, or a damaged
    table, are none. Raises InputError for a dynamic table outside the file."""
    tags = dynamic_tags(elf)
    at = offset_of_tag(elf, tags, Tag.VERSYM)
    held = elf.data[at : at + 2 * count].tobytes() if at >= 0 else b""
    if len(held) < 2 * count or not count:
        return SymbolVersions(np.zeros(0, np.uint16), np.zeros(0, bool), {})
    words = elf.order.unsigned(held, 2).astype(np.uint16)
    return SymbolVersions(
        words & np.uint16(HIDDEN - 1), (words & np.uint16(HIDDEN)) > 0, _names(elf, tags)
    )


def _names(elf: Elf, tags: dict[int, int]) -> dict[int, str]:
    out = dict[int, str]()
    at = offset_of_tag(elf, tags, Tag.VERDEF)
    for _ in range(min(tags.get(Tag.VERDEFNUM, 0), HIDDEN)):
        held = elf.data[at : at + DEFINITION.itemsize].tobytes() if at >= 0 else b""
        if len(held) < DEFINITION.itemsize:
            break
        row = np.frombuffer(held, elf.order.record(DEFINITION))[0]
        place = at + int(row["names"])
        name = elf.order.integer(elf.data[place : place + 4])
        text = dynamic_string(elf, name).decode("utf-8", "backslashreplace")
        if int(row["number"]) > BASE:
            out.setdefault(int(row["number"]), text)
        if not row["next"]:
            break
        at += int(row["next"])
    return out
