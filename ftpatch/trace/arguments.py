# SPDX-License-Identifier: MIT
"""Arguments of calls, as their functions' source declares them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ftpatch.arch.arguments import convention_of
from ftpatch.arch.instruction_set import marks_functions
from ftpatch.core.byte_order import NATIVE, ByteOrder
from ftpatch.debuginfo.declarations import Declaration, Declarations, Parameter
from ftpatch.debuginfo.types import Kind, Member, Type
from ftpatch.errors import InputError
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import Recording
from ftpatch.trace.symbolize import Program

__all__ = ["Argument", "Arguments", "Shown"]

WHOLE = (1 << 64) - 1
DEBUG_INFO = (".debug_info", ".zdebug_info")
GONE = "optimized out"
ESCAPES = {ord("'"): "\\'", ord("\\"): "\\\\", 10: "\\n", 9: "\\t", 13: "\\r", 0: "\\0"}
Data = str | int | float | bool | list["Data"] | dict[str, "Data"] | None


class Shown(NamedTuple):
    """A value for people, and for programs: None if it is not known."""

    text: str
    data: Data


class Argument(NamedTuple):
    """An argument; the last one of a function that takes more may be ``...``, without a value."""

    name: str
    value: Shown | None

    @property
    def text(self) -> str:
        """As a call has it: ``n=32``."""
        if self.value is None:
            return self.name
        return f"{self.name}={self.value.text}" if self.name else self.value.text


@dataclass(frozen=True, eq=False)
class _Function:
    declaration: Declaration
    program: Program

    @property
    def order(self) -> ByteOrder:
        """That of its program."""
        return self.program.image.elf.order if self.program.image else NATIVE


@dataclass(frozen=True)
class _Told:
    """What the bytes of a value do not say: their ``order``, and the ``symbol`` of an address."""

    order: ByteOrder
    symbol: Callable[[int], str]


class Arguments:
    """Decodes the arguments of a recording's calls. Debug information is read when the first of
    them comes, and only that of the functions that occur."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._declarations: dict[Program, Declarations | None] = {}
        self._functions: dict[int, _Function | None] = {}
        self._symbols: dict[tuple[int, int], str] = {}

    def of(self, rows: Rows, row: int) -> list[Argument] | None:
        """The arguments of an entry; None where it has none, or where only the recorded words are
        known."""
        if rows.args[row] < 0:
            return None
        number = int(rows.function[row])
        if number not in self._functions:
            self._functions[number] = self._function(number)
        found = self._functions[number]
        if found is None:
            return None
        words: list[int | None] = rows.arguments[rows.args[row]].tolist()
        header = int(self._recording.owner[rows.thread[row]])

        def symbol(address: int) -> str:
            key = header, address
            if key not in self._symbols:
                self._symbols[key] = self._symbol(header, address)
            return self._symbols[key]

        declared = found.declaration
        if declared.stacked and not rows.level[row]:
            # The tracer puts zeros where the stack may end.
            words = _without_zeros(words)
        out = [
            Argument(one.name, _argument(one, words, declared.word, _Told(found.order, symbol)))
            for one in declared.parameters
        ]
        return out + [Argument("...", None)] * declared.variadic

    def data(self, rows: Rows, row: int) -> dict[str, Data] | None:
        """The same by name, for programs; a parameter without a name of its own has its
        place."""
        found = self.of(rows, row)
        if found is None:
            return None
        out: dict[str, Data] = {}
        for number, one in enumerate(found, 1):
            if one.value is not None:
                key = one.name if one.name and one.name not in out else str(number)
                out[key] = one.value.data
        return out

    def _function(self, number: int) -> _Function | None:
        functions = self._recording.functions
        program = functions.program_with(number)
        if program is None or program.image is None:
            return None
        if program not in self._declarations:
            elf = program.image.elf
            convention = convention_of(elf.skeleton.machine, elf.skeleton.elf_class)
            has = any(elf.section(name) for name in DEBUG_INFO)
            self._declarations[program] = (
                Declarations(elf.path, convention) if convention and has else None
            )
        declarations = self._declarations[program]
        if declarations is None:
            return None
        try:
            start = functions.address[number]
            found = declarations.of(functions.symbol[number], start, program.size(start))
        except (OSError, InputError) as error:
            self._declarations[program] = None
            self._recording.remarks.append(f"arguments as recorded: {error}")
            return None
        return _Function(found, program) if found else None

    def _symbol(self, header: int, address: int) -> str:
        """The function that begins at an address in memory, empty if none does."""
        origin, program = self._recording.headers[header], self._recording.program_of(header)
        pairs = [(origin.bias, program), *((one.bias, lib) for one, lib in program.libraries)]
        for bias, one in pairs:
            at = np.array([_plain(one, address - bias) & WHOLE], np.uint64)
            (name,), starts, known = one.lookup(at)
            if known[0] and starts[0] == at[0]:
                return name
        return ""


def _plain(program: Program, address: int) -> int:
    """The address of a function that a pointer leads to: without what says its instruction set."""
    if program.image is None:
        return address
    skeleton = program.image.elf.skeleton
    return address & ~marks_functions(skeleton.machine, skeleton.elf_class)


def _without_zeros(words: list[int | None]) -> list[int | None]:
    """The words, with None for the zeros at their end."""
    kept = len(words)
    while kept and not words[kept - 1]:
        kept -= 1
    return words[:kept] + [None] * (len(words) - kept)


def _argument(one: Parameter, words: Sequence[int | None], width: int, told: _Told) -> Shown:
    place = one.place
    if one.type.kind is Kind.COMPOSITE and not one.type.members and one.type.size <= 1:
        return Shown("{}", {})
    if one.gone:
        return Shown(f"<{GONE}>", None)
    if place.address:
        held = words[place.words[0]] if place.words[0] >= 0 else None
        return _missing(place.missing) if held is None else Shown(f"@{held:#x}", f"@{held:#x}")
    raw: list[int | None] = []
    for word in place.words:
        held = words[word] if word >= 0 else None
        raw += [None] * width if held is None else told.order.packed(held % (1 << 8 * width), width)
    if told.order.big and one.type.size < width:
        raw = raw[width - one.type.size :]  # a register's right end
    return _Reader(raw, place.missing, told).shown(one.type, 0)


def _missing(where: str) -> Shown:
    return Shown(f"<{where}>", None)


class _Reader:
    """Reads values from an argument's bytes; None stands for those that are not recorded."""

    def __init__(self, raw: Sequence[int | None], missing: str, told: _Told) -> None:
        self._raw, self._lost, self._order = raw, missing, told.order
        self._symbol = told.symbol

    def shown(self, one: Type, at: int) -> Shown:
        """The value of a type that begins at an offset."""
        if one.kind is Kind.COMPOSITE:
            return self._composite(one, at)
        if one.kind is Kind.ARRAY:
            values = [self.shown(part.type, at + part.offset) for part in one.members]
            text = ", ".join(value.text for value in values)
            return Shown(f"{{{text}}}", [value.data for value in values])
        held = self._raw[at : at + one.size]
        if len(held) < one.size or None in held:
            return _missing(self._lost)
        raw = bytes(byte for byte in held if byte is not None)
        if one.kind is Kind.FLOAT:
            return _float(raw, self._order)
        if one.kind in (Kind.OTHER_FLOAT, Kind.EXTENDED, Kind.COMPLEX, Kind.VECTOR):
            return _missing("float")
        return self._integer(one, self._order.integer(raw))

    def _composite(self, one: Type, at: int) -> Shown:
        known = [byte for byte in self._raw[at : at + one.size] if byte is not None]
        if one.size > 1 and not (known and one.members):
            return _missing(self._lost)
        values = list(self._members(one, at))
        texts = [f"{name}={value.text}" if name else value.text for name, value in values]
        data: dict[str, Data] = {
            name or str(n): value.data for n, (name, value) in enumerate(values, 1)
        }
        return Shown(f"{{{', '.join(texts)}}}", data)

    def _members(self, one: Type, at: int) -> Iterator[tuple[str, Shown]]:
        for part in one.members:
            if part.bits:
                yield part.name, self._bits(part, at)
            elif not part.name and part.type.kind is Kind.COMPOSITE:
                # A base, or a structure without a name: its members are those of the whole.
                yield from self._members(part.type, at + part.offset)
            else:
                yield part.name, self.shown(part.type, at + part.offset)

    def _bits(self, part: Member, at: int) -> Shown:
        first, last = 8 * at + part.first, 8 * at + part.first + part.bits
        held = self._raw[first // 8 : -(-last // 8)]
        if None in held or len(held) < -(-last // 8) - first // 8:
            return _missing(self._lost)
        whole = self._order.integer(bytes(byte for byte in held if byte is not None))
        behind = -last % 8 if self._order.big else first % 8
        value = whole >> behind & ((1 << part.bits) - 1)
        if part.type.kind in (Kind.SIGNED, Kind.CHAR) and value >> part.bits - 1:
            value -= 1 << part.bits
        return self._integer(part.type, value & ((1 << 8 * part.type.size) - 1))

    def _integer(self, one: Type, value: int) -> Shown:
        bits = 8 * one.size
        signed = value - (1 << bits) if value >> bits - 1 else value
        if one.kind is Kind.BOOL and value < 2:
            return Shown("true" if value else "false", bool(value))
        if one.kind is Kind.CHAR:
            return _character(value, signed)
        if one.kind is Kind.ENUM:
            if value in one.names:
                return Shown(one.names[value], one.names[value])
            return Shown(str(signed), signed)
        if one.kind in (Kind.POINTER, Kind.FUNCTION):
            name = self._symbol(value) if one.kind is Kind.FUNCTION and value else ""
            return Shown(name or hex(value), name or hex(value))
        number = signed if one.kind is Kind.SIGNED else value
        return Shown(str(number), number)


def _float(raw: bytes, order: ByteOrder) -> Shown:
    value = np.frombuffer(raw, order.kind(f"f{len(raw)}"))[0]
    text = str(value)
    return Shown(text, float(text) if math.isfinite(value) else text)


def _character(value: int, signed: int) -> Shown:
    if value in ESCAPES:
        return Shown(f"'{ESCAPES[value]}'", chr(value))
    # Bytes of other character sets are not characters of their own.
    if value < 0x7F and chr(value).isprintable():
        return Shown(f"'{chr(value)}'", chr(value))
    return Shown(str(signed), signed)
