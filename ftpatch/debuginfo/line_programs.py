# SPDX-License-Identifier: MIT
"""Rows of line-number programs (DWARF 5, section 6.2.5).

Pyelftools makes three objects for each operation, which takes 20 us; a unit of C++ has thousands.
What is rare, as VLIW, is left to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["LineRow", "line_rows"]

LineRow = tuple[int, int, int, bool, bool, bool]
"""A link address, the number of a file, a line; whether a statement begins there, whether a
prologue ends, and whether the code ends there."""
(
    COPY, ADVANCE_PC, ADVANCE_LINE, SET_FILE, SET_COLUMN, NEGATE_STMT, SET_BASIC_BLOCK,
    CONST_ADD_PC, FIXED_ADVANCE_PC, SET_PROLOGUE_END, SET_EPILOGUE_BEGIN, SET_ISA,
) = range(1, 13)  # fmt: skip
"""DW_LNS_*."""
END_SEQUENCE, SET_ADDRESS, DEFINE_FILE, SET_DISCRIMINATOR = range(1, 5)
"""DW_LNE_*."""


class _UnusualError(Exception):
    """The program has what is left to pyelftools."""


def line_rows(program: Any) -> list[LineRow]:  # noqa: ANN401 - of pyelftools
    """The rows of a program, as they stand in it. Raises what pyelftools raises for one that is
    damaged."""
    try:
        return list(_decoded(program))
    except (IndexError, _UnusualError, ZeroDivisionError):
        states = (entry.state for entry in program.get_entries())
        return [
            (
                state.address,
                state.file,
                state.line,
                bool(state.is_stmt),
                bool(state.prologue_end),
                bool(state.end_sequence),
            )
            for state in states
            if state is not None
        ]


def _decoded(program: Any) -> Iterator[LineRow]:  # noqa: ANN401
    """Raises IndexError where the section ends, and _UnusualError."""
    header = program.header
    raw: memoryview = program.stream.getbuffer()
    width, little = program.structs.address_size, program.structs.little_endian
    order: Any = "little" if little else "big"
    first, lines, low = header["opcode_base"], header["line_range"], header["line_base"]
    least, default = header["minimum_instruction_length"], bool(header["default_is_stmt"])
    if header["maximum_operations_per_instruction"] != 1:
        raise _UnusualError
    at, end = program.program_start_offset, program.program_end_offset
    address, file, line, statement, settled = 0, 1, 1, default, False

    def number() -> int:
        """A number in ULEB128."""
        nonlocal at
        value: int = 0
        shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < end:
        code = raw[at]
        at += 1
        if code >= first:
            ahead, more = divmod(code - first, lines)
            address += least * ahead
            line += low + more
            yield address, file, line, statement, settled, False
            settled = False
        elif code == COPY:
            yield address, file, line, statement, settled, False
            settled = False
        elif code == ADVANCE_PC:
            address += number() * least
        elif code == ADVANCE_LINE:
            begin, value = at, number()
            negative = raw[at - 1] & 0x40
            line += value - (1 << 7 * (at - begin)) if negative else value
        elif code == SET_FILE:
            file = number()
        elif code in (SET_COLUMN, SET_ISA):
            number()
        elif code == NEGATE_STMT:
            statement = not statement
        elif code == CONST_ADD_PC:
            address += (255 - first) // lines * least
        elif code == FIXED_ADVANCE_PC:
            address += int.from_bytes((raw[at], raw[at + 1]), order)
            at += 2
        elif code == SET_PROLOGUE_END:
            settled = True
        elif code in (SET_BASIC_BLOCK, SET_EPILOGUE_BEGIN):
            pass
        elif code:
            raise _UnusualError
        else:
            size = number()
            begin, code = at, raw[at]
            at += 1
            if code == END_SEQUENCE:
                yield address, file, line, False, settled, True
                address, file, line, statement, settled = 0, 1, 1, default, False
            elif code == SET_ADDRESS:
                address = int.from_bytes(raw[at : at + width], order)
                at += width
            elif code == SET_DISCRIMINATOR:
                number()
            elif code == DEFINE_FILE or not size:
                raise _UnusualError
            else:
                at = begin + size
            if at > len(raw):
                raise IndexError
