# SPDX-License-Identifier: MIT
"""Lines of the source: their code, and where a function's own begins."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ftpatch.debuginfo.debug_info import DebugInfo
from ftpatch.debuginfo.dies import name_of, text_of
from ftpatch.debuginfo.line_programs import LineRow, line_rows
from ftpatch.debuginfo.lines import files_of
from ftpatch.errors import UsageError
from ftpatch.names.suggest import meant, near

__all__ = ["Row", "SourceLines"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a unit's line table: the link ``address`` from which on code is of a line; whether a
    statement begins there, and whether a prologue ends."""

    address: int
    file: str
    line: int
    statement: bool
    settled: bool


class SourceLines:
    """The line tables of an image's debug information, each read once, on demand. Pyelftools'
    errors are the caller's to catch."""

    def __init__(self, info: DebugInfo) -> None:
        self._info = info
        self._rows: dict[int, list[Row]] = {}

    def rows(self, unit: int) -> list[Row]:
        """The rows of the unit at an offset, by address."""
        if unit not in self._rows:
            self._rows[unit] = sorted(self._read(unit), key=lambda row: row.address)
        return self._rows[unit]

    def settled(self, unit: int, start: int, end: int) -> int:
        """From which address on the frame of a function at ``start`` is laid: behind its prologue,
        as debuggers find it."""
        inside = [row for row in self.rows(unit) if start < row.address < end and row.line]
        marked = [row.address for row in inside if row.settled]
        return min(marked or [row.address for row in inside if row.statement] or [start])

    def of(self, file: str, line: int) -> list[int]:
        """The beginnings of a line's statements, ascending link addresses. Raises UsageError for a
        file or a line without code."""
        paths, found, beyond = set[str](), set[int](), set[int]()
        for unit in self._units(file):
            names = {n: name for n, name in self._files(unit).items() if _is(name, file)}
            for address, number, at, statement, _, ended in self._states(unit):
                if ended or not statement or number not in names:
                    continue
                paths.add(names[number])
                if at == line:
                    found.add(address)
                elif at:
                    beyond.add(at)
        if len(paths) > 1:
            some = " or ".join(sorted(paths)[:3])
            raise UsageError(None, f"{file} is {len(paths)} files", f"name {some}")
        if not paths:
            hint = meant(self._like(file), "see `ftpatch probe PROG --lines FUNC`")
            raise UsageError(None, f"no code of a file {file}", hint)
        if not found:
            after = sorted(beyond, key=lambda other: (other < line, abs(other - line)))
            raise UsageError(
                None, f"{file}:{line} has no code", f"the nearest is {file}:{after[0]}"
            )
        return sorted(found)

    def _units(self, file: str) -> Iterator[int]:
        """Units with code of a file: those that are its own, or else all that include it."""
        units = [unit.cu_offset for unit in self._info.dwarf.iter_CUs()]
        own = [unit for unit in units if _is(self._name(unit), file)]
        yield from own or [
            unit for unit in units if any(_is(name, file) for name in self._files(unit).values())
        ]

    def _like(self, file: str) -> list[str]:
        known = {posixpath.basename(self._name(u.cu_offset)) for u in self._info.dwarf.iter_CUs()}
        return near(posixpath.basename(file), known - {""})

    def _name(self, unit: int) -> str:
        top = self._info.dwarf.get_CU_at(unit).get_top_DIE()
        return posixpath.join(_folder(top), name_of(top))

    def _program(self, unit: int) -> Any:  # noqa: ANN401 - of pyelftools
        return self._info.dwarf.line_program_for_CU(self._info.dwarf.get_CU_at(unit))

    def _files(self, unit: int) -> dict[int, str]:
        program = self._program(unit)
        if program is None:
            return {}
        folder = _folder(self._info.dwarf.get_CU_at(unit).get_top_DIE())
        return {
            number: posixpath.normpath(posixpath.join(folder, name))
            for number, name in files_of(program.header).items()
            if name
        }

    def _read(self, unit: int) -> Iterator[Row]:
        files = self._files(unit)
        for address, number, line, statement, settled, ended in self._states(unit):
            if not ended:
                yield Row(
                    address=address,
                    file=files.get(number, ""),
                    line=line,
                    statement=statement,
                    settled=settled,
                )

    def _states(self, unit: int) -> list[LineRow]:
        program = self._program(unit)
        return line_rows(program) if program is not None else []


def _folder(top: Any) -> str:  # noqa: ANN401
    return text_of(top, "DW_AT_comp_dir")


def _is(path: str, file: str) -> bool:
    """Test whether a path ends in the parts of a file's name."""
    path, file = posixpath.normpath(path), posixpath.normpath(file)
    return path == file or path.endswith("/" + file)
