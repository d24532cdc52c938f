# SPDX-License-Identifier: MIT
"""File and line of functions, from an image's .debug_line (DWARF 4 and 5)."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.debuginfo.damage import DamagedError
from ftpatch.debuginfo.debug_info import DebugInfo
from ftpatch.debuginfo.dies import text_of
from ftpatch.debuginfo.line_programs import line_rows
from ftpatch.errors import InputError

__all__ = ["Lines", "files_of"]


class Lines:
    """The line tables of one image, each unit's read once, on demand.

    Raises InputError for an image whose line information is missing or unreadable.
    """

    def __init__(self, path: Path, *, absolute: bool = False) -> None:
        """With ``absolute`` a file's name begins with the folder that it was compiled in."""
        self._absolute = absolute
        self._tables: dict[int, tuple[NDArray[np.uint64], list[str]]] = {}
        self._info = DebugInfo(path)
        self._info.read_all()

    def places(self, addresses: NDArray[np.uint64]) -> list[str]:
        """``file.c:12`` for each link address, empty if it has no line."""
        return [self._place(address) for address in addresses.tolist()]

    def within(self, start: int, end: int) -> list[str]:
        """``file.c:12`` of each row from one link address up to another, and of the row around the
        first."""
        unit = self._unit(start)
        if unit is None:
            return []
        at, names = self._table(unit)
        first = max(int(np.searchsorted(at, np.uint64(start), side="right")) - 1, 0)
        return names[first : max(int(np.searchsorted(at, np.uint64(end))), first + 1)]

    def _place(self, address: int) -> str:
        unit = self._unit(address)
        if unit is None:
            return ""
        at, names = self._table(unit)
        row = int(np.searchsorted(at, np.uint64(address), side="right")) - 1
        return names[row] if row >= 0 else ""

    def _unit(self, address: int) -> int | None:
        """The unit of a link address; None also if that is in no table, and units are damaged."""
        try:
            return self._info.unit_at(address)
        except InputError:
            return None

    def _table(self, unit: int) -> tuple[NDArray[np.uint64], list[str]]:
        """Addresses of a unit's lines, uint64[n], ascending, and the file and line of each."""
        if unit not in self._tables:
            with self._info.readable():
                self._tables[unit] = self._read(unit)
        return self._tables[unit]

    def _read(self, unit: int) -> tuple[NDArray[np.uint64], list[str]]:
        compiled = self._info.dwarf.get_CU_at(unit)
        program = self._info.dwarf.line_program_for_CU(compiled)
        if program is None:
            return np.empty(0, np.uint64), []
        files = files_of(program.header)
        if self._absolute and (top := compiled.get_top_DIE()).attributes.get("DW_AT_comp_dir"):
            root = text_of(top, "DW_AT_comp_dir")
            files = {number: posixpath.join(root, name) for number, name in files.items() if name}
        rows = []
        for address, number, line, _, _, ended in line_rows(program):
            name = "" if ended else files.get(number, "")
            rows.append((address, f"{name}:{line}" if name else ""))
        # The last row for an address counts: one sequence may start where another ends.
        rows.sort(key=lambda row: (row[0], bool(row[1])))
        return np.array([at for at, _ in rows], np.uint64), [place for _, place in rows]


def files_of(header: Any) -> dict[int, str]:  # noqa: ANN401 - pyelftools' own kind of struct
    """Return the paths of a line program's header by file number: from 1
    before DWARF 5. Folder 0 is the compilation directory."""
    late = header["version"] >= 5
    folders = [_text(folder) for folder in header["include_directory"]]
    out = {}
    for number, file in enumerate(header["file_entry"], 0 if late else 1):
        name = _text(file.name)
        index = file.dir_index - (not late)
        outside = file.dir_index > 0 and 0 <= index < len(folders)
        out[number] = posixpath.join(folders[index], name) if outside else name
    return out


def _text(raw: bytes | None) -> str:
    if not isinstance(raw, bytes):
        raise DamagedError("the name of a file is no text, or one that does not end", ".debug_line")
    return raw.decode("utf-8", "backslashreplace")
