# SPDX-License-Identifier: MIT
"""Locations of the debug information at one place of a function, with its frame as it is there."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ftpatch.arch import feature
from ftpatch.arch.frame_registers import FrameRegisters
from ftpatch.arch.registers import registers_of
from ftpatch.debuginfo.debug_info import DebugInfo
from ftpatch.debuginfo.dies import DIE
from ftpatch.debuginfo.value_parts import size_of, stripped
from ftpatch.debuginfo.value_places import (
    Constant,
    InMemory,
    InRegisters,
    Machine,
    NoValueError,
    Place,
    Scattered,
    Word,
    place_of,
)
from ftpatch.debuginfo.value_spills import Spills, read_spills, reads_first
from ftpatch.elf.eh_frame import NO_CFA, Cfi, frame_of, pointed_at, saved_at
from ftpatch.names.functions import Functions

__all__ = ["At", "Locations"]

MAX_STORED = 1 << 12
"""Bytes of a value that a prologue stores."""
REGISTER = re.compile(r"DW_OP_b?reg(\d+|x)")


@dataclass(frozen=True, kw_only=True)
class At:
    """A probed place: its link ``address``, the function's ``symbol``, whether it is its ``entry``,
    or whether it ``returns`` there; ``settled``: from which address on its frame is laid."""

    address: int
    symbol: str
    start: int
    size: int
    entry: bool
    returns: bool
    settled: int


@dataclass(frozen=True, kw_only=True)
class Locations:
    """The locations of a ``function``, its DIE, at one place."""

    functions: Functions
    info: DebugInfo
    function: DIE
    at: At

    @cached_property
    def registers(self) -> FrameRegisters:
        """The machine's registers by DWARF number."""
        found: FrameRegisters = feature(self.functions.arch, "frame_registers")
        return found

    def told(self, die: DIE) -> Place | None:
        """The place of a value; None if it has none. Raises NoValueError for one that no probe
        can fetch."""
        held = die.attributes.get("DW_AT_const_value")
        if held is not None and isinstance(held.value, int):
            return Constant(value=held.value)
        found = self.info.location_at(die, "DW_AT_location", self.at.address)
        if found is None or not found[0]:
            return None
        unit = die.cu
        context = self._context(
            self.registers.known, lambda index: int(self.info.dwarf.get_addr(unit, index))
        )
        place = place_of(self._parsed(found[0], unit), context, entry=self.at.entry)
        if isinstance(place, InRegisters):
            return replace(place, size=size_of(stripped(die)))
        return place

    def _context(self, names: Mapping[int, str], address: Callable[[int], int]) -> Machine:
        known = self.registers
        return Machine(
            names=names,
            width=known.width,
            frame=self._framed,
            address=address,
            word=known.word,
            order=self.functions.image.elf.order,
            whole=known.whole,
        )

    @staticmethod
    def _parsed(expression: bytes, unit: Any) -> list[Any]:  # noqa: ANN401 - of pyelftools
        from elftools.dwarf.dwarf_expr import DWARFExprParser

        parsed: list[Any] = DWARFExprParser(unit.structs).parse_expr(expression)
        return parsed

    def early(self, die: DIE) -> Place | None:
        """The place of a parameter that is told for a part of the prologue on only, if it is in
        registers there that had the same at the entry; None if it is not."""
        at, names = self.at, self.registers.names
        told = min(self.info.locations(die), default=(0, b""))
        if not at.start < told[0] <= at.settled:
            return None
        operations = self._parsed(told[1], die.cu)
        spills = read_spills(self.functions, registers_of(self.functions.arch), at.start, told[0])
        named = self.registers_in(operations)
        if spills is None or not named or any(one.op_name == "DW_OP_fbreg" for one in operations):
            return None
        had = [spills.known.get(name) for name in names]
        word = self.registers.word
        same = [one[1].start if one and one[0] == word and not one[1].reads else "" for one in had]
        if not all(number < len(same) and same[number] for number in named):
            return None
        held = dict(enumerate(map(str, same)))
        return place_of(operations, self._context(held, lambda _: 0), entry=True)

    def uses(self, numbers: Collection[int]) -> bool:
        """Test whether the function uses registers, by DWARF's numbers, as its caller left them."""
        names = [self.registers.names[one] for one in numbers]
        return not names or reads_first(
            self.functions, registers_of(self.functions.arch), self.at.start, names
        )

    @staticmethod
    def registers_in(operations: Sequence[Any]) -> set[int]:
        """DWARF's numbers of the registers that an expression names."""
        out = set()
        for one in operations:
            found = REGISTER.fullmatch(one.op_name)
            if found:
                out.add(int(found[1]) if found[1] != "x" else int(one.args[0]))
        return out

    def parsed(self, die: DIE) -> list[Any]:
        """The operations of a value's location; none if it has none."""
        found = self.info.location_at(die, "DW_AT_location", self.at.address)
        return self._parsed(found[0], die.cu) if found else []

    def _framed(self, offset: int) -> Place:
        """What is so many bytes from the frame's base. At the entry only what callers pass is
        there yet, and what the prologue stores is where it has it from."""
        at = self.at
        found = self.info.location_at(self.function, "DW_AT_frame_base", at.address)
        words = self._parsed(found[0], self.function.cu) if found else []
        names = self.registers.names
        if len(words) != 1:
            raise NoValueError("is in a frame of an unknown form")
        base, below = words[0].op_name, 0
        if base == "DW_OP_call_frame_cfa":
            if (read := self._cfa_in_memory) is not None:
                start = Word(start=names[read[0]], reads=(read[1],))
                return InMemory(start=start, offset=offset)
            name, above = self._cfa()
        elif base.startswith("DW_OP_breg"):
            name, above = names[int(base.removeprefix("DW_OP_breg"))], words[0].args[0]
        elif base.startswith("DW_OP_reg") and base != "DW_OP_regx":
            name, above = names[int(base.removeprefix("DW_OP_reg"))], 0
        else:
            raise NoValueError("is in a frame of an unknown form")
        if at.entry:
            if base != "DW_OP_call_frame_cfa":
                if self._spills is not None and name in self._spills.bases:
                    return self._stored(offset + above + self._spills.bases[name])
                laid = self.registers.laid if name == names[self.registers.frame] else None
                below = -1 if laid is None else laid
                name, above = self._cfa()
            least = self.registers.word * registers_of(self.functions.arch).room
            if below >= 0 and offset - below < least and self._spills is not None:
                return self._stored(offset - below + above)
            if below < 0 or offset - below < least:
                raise NoValueError("is not yet stored there", "probe the function's first line")
        elif base != "DW_OP_call_frame_cfa" and self._is_gone(name):
            raise NoValueError("is in a frame that is not there any more")
        return InMemory(start=Word(start=name), offset=offset - below + above)

    def _is_gone(self, name: str) -> bool:
        """Test whether a frame pointer that prologues lay does not point to the frame here."""
        known = self.registers
        is_laid = known.laid is not None and name == known.names[known.frame]
        return is_laid and self._cfa_in_memory is None and self._cfa()[0] != name

    def _stored(self, offset: int) -> Place:
        """What will be so many bytes from where the stack pointer is at the entry."""
        word = self.registers.word
        behind = word * registers_of(self.functions.arch).behind
        if offset >= behind:
            return InMemory(start=Word(start=self._cfa()[0]), offset=offset)
        held = self._spills.held if self._spills is not None else {}
        parts = {at - offset: what for at, what in held.items() if 0 <= at - offset < MAX_STORED}
        if not parts:
            raise NoValueError("is not yet stored there", "probe the function's first line")
        return Scattered(parts=parts, width=word, big=self.functions.image.elf.order.big)

    @cached_property
    def _spills(self) -> Spills | None:
        """What the prologue stores; None where more of the frame is laid behind it."""
        at = self.at
        found = read_spills(self.functions, registers_of(self.functions.arch), at.start, at.settled)
        frame = self.functions.frame_at(at.start)
        cfi = frame_of(self.functions.image.elf, frame) if frame else None
        if found is None or cfi is None:
            return None
        name = self.registers.names[self.registers.stack]
        depth = self.registers.word * registers_of(self.functions.arch).pushed - found.bases[name]
        rows = [row.cfa for row in cfi.rows] or [cfi.cfa]
        laid = [offset for register, offset in rows if register == self.registers.stack]
        return found if max(laid, default=depth) <= depth else None

    @cached_property
    def _cfi(self) -> Cfi | None:
        frame = self.functions.frame_at(self.at.address)
        return frame_of(self.functions.image.elf, frame) if frame else None

    @cached_property
    def _cfa_in_memory(self) -> tuple[int, int] | None:
        """The register and the distance of where the CFA is read from, in functions that align
        their frame further; None in others, and at the entry."""
        if self.at.entry or self._cfi is None:
            return None
        found = pointed_at(self._cfi, self.at.address)[0]
        return found if found and found[0] < len(self.registers.names) else None

    def _cfa(self) -> tuple[str, int]:
        """The register that the CFA counts from, and its distance."""
        at, names = self.at, self.registers.names
        if at.entry:
            pushed = registers_of(self.functions.arch).pushed
            return names[self.registers.stack], self.registers.word * pushed
        register, offset = saved_at(self._cfi, at.address)[0] if self._cfi else NO_CFA
        if not 0 <= register < len(names):
            raise NoValueError("is in a frame without unwind information")
        return names[register], offset
