# SPDX-License-Identifier: MIT
"""File and line of functions, from an image's .debug_line (DWARF 4 and 5)."""

from __future__ import annotations

import bisect
import posixpath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError

__all__ = ["Lines"]

EXPANDED = 1 << 30
"""Maximum size of an unpacked section (bytes)."""


class Lines:
    """The line tables of one image, each unit's read once, on demand.

    Raises InputError for an image whose line information is missing or unreadable.
    """

    def __init__(self, path: Path, *, absolute: bool = False) -> None:
        """With ``absolute`` a file's name begins with the folder that it was compiled in."""
        from elftools.elf.elffile import ELFFile

        self._path, self._absolute = path, absolute
        self._tables: dict[int, tuple[NDArray[np.uint64], list[str]]] = {}
        try:
            self._file = path.open("rb")
            elf = ELFFile(self._file)
            for section in elf.iter_sections():
                if section.name.startswith(".debug") and section.data_size > EXPANDED:
                    raise InputError(path, f"{section.name} has {section.data_size} bytes")
            if not elf.has_dwarf_info():
                raise InputError(path, "no debug information", "compile it with -g")
            self._dwarf: Any = elf.get_dwarf_info(relocate_dwarf_sections=False)
            self._units = sorted(self._ranges())
        except (OSError, InputError):
            raise
        except Exception as error:  # pyelftools has no common exception for malformed files
            raise self._unreadable(error) from None
        self._begins = [begin for begin, _, _ in self._units]

    def places(self, addresses: NDArray[np.uint64]) -> list[str]:
        """``file.c:12`` for each link address, empty if it has no line."""
        return [self._place(address) for address in addresses.tolist()]

    def within(self, start: int, end: int) -> list[str]:
        """``file.c:12`` of each row from one link address up to another, and of the row around the
        first."""
        index = bisect.bisect_right(self._begins, start) - 1
        if index < 0 or start >= self._units[index][1]:
            return []
        at, names = self._table(self._units[index][2])
        first = max(int(np.searchsorted(at, np.uint64(start), side="right")) - 1, 0)
        return names[first : max(int(np.searchsorted(at, np.uint64(end))), first + 1)]

    def _place(self, address: int) -> str:
        index = bisect.bisect_right(self._begins, address) - 1
        if index < 0 or address >= self._units[index][1]:
            return ""
        at, names = self._table(self._units[index][2])
        row = int(np.searchsorted(at, np.uint64(address), side="right")) - 1
        return names[row] if row >= 0 else ""

    def _ranges(self) -> list[tuple[int, int, int]]:
        """Start, end and unit of each address range."""
        table = self._dwarf.get_aranges()
        if table is not None and table.entries:
            return [(e.begin_addr, e.begin_addr + e.length, e.info_offset) for e in table.entries]
        found = []
        lists = self._dwarf.range_lists()
        for unit in self._dwarf.iter_CUs():
            top = unit.get_top_DIE().attributes
            low = top["DW_AT_low_pc"].value if "DW_AT_low_pc" in top else 0
            if "DW_AT_ranges" in top and lists is not None:
                base = low
                for entry in lists.get_range_list_at_offset(top["DW_AT_ranges"].value, unit):
                    if hasattr(entry, "base_address"):
                        base = entry.base_address
                        continue
                    begin = 0 if entry.is_absolute else base
                    found.append(
                        (begin + entry.begin_offset, begin + entry.end_offset, unit.cu_offset)
                    )
            elif "DW_AT_high_pc" in top:
                high = top["DW_AT_high_pc"]
                end = high.value + (0 if high.form == "DW_FORM_addr" else low)
                found.append((low, end, unit.cu_offset))
        return found

    def _table(self, unit: int) -> tuple[NDArray[np.uint64], list[str]]:
        """Addresses of a unit's lines, uint64[n], ascending, and the file and line of each."""
        if unit not in self._tables:
            try:
                self._tables[unit] = self._read(unit)
            except Exception as error:
                raise self._unreadable(error) from None
        return self._tables[unit]

    def _read(self, unit: int) -> tuple[NDArray[np.uint64], list[str]]:
        compiled = self._dwarf.get_CU_at(unit)
        program = self._dwarf.line_program_for_CU(compiled)
        if program is None:
            return np.empty(0, np.uint64), []
        files = _files(program.header)
        if self._absolute and (folder := compiled.get_top_DIE().attributes.get("DW_AT_comp_dir")):
            root = folder.value.decode("utf-8", "backslashreplace")
            files = {number: posixpath.join(root, name) for number, name in files.items() if name}
        rows = []
        for entry in program.get_entries():
            state = entry.state
            if state is None:
                continue
            name = "" if state.end_sequence else files.get(state.file, "")
            rows.append((state.address, f"{name}:{state.line}" if name else ""))
        # The last row for an address counts: one sequence may start where another ends.
        rows.sort(key=lambda row: (row[0], bool(row[1])))
        return np.array([at for at, _ in rows], np.uint64), [place for _, place in rows]

    def _unreadable(self, error: Exception) -> InputError:
        what = str(error) or type(error).__name__
        return InputError(self._path, f"cannot read its debug information: {what}")


def _files(header: Any) -> dict[int, str]:  # noqa: ANN401 - pyelftools' own kind of struct
    """Paths by file number: from 1 before DWARF 5. Folder 0 is the compilation directory."""
    late = header["version"] >= 5
    folders = [folder.decode("utf-8", "backslashreplace") for folder in header["include_directory"]]
    out = {}
    for number, file in enumerate(header["file_entry"], 0 if late else 1):
        name = file.name.decode("utf-8", "backslashreplace")
        index = file.dir_index - (not late)
        outside = file.dir_index > 0 and 0 <= index < len(folders)
        out[number] = posixpath.join(folders[index], name) if outside else name
    return out
