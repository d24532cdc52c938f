# SPDX-License-Identifier: MIT
"""Functions as their source declares them: parameters, and which recorded words hold them.

The calling convention places the parameters; what the compiler says of their registers at the
entry has to agree. It does not where a compiler has left parameters of a local function out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ftpatch.arch.arguments import Convention, OwnVariadic, Place, UnclearError
from ftpatch.debuginfo.debug_info import DebugInfo
from ftpatch.debuginfo.dies import (
    DIE,
    UnusableError,
    children,
    is_c,
    is_plus,
    name_of,
    number,
    origins_of,
)
from ftpatch.debuginfo.scanning import CODED, entries
from ftpatch.debuginfo.types import COMPOSITES, Kind, Type, Types, passed
from ftpatch.errors import InputError
from ftpatch.names.demangle import demangled
from ftpatch.names.parameters import parameters_in

__all__ = ["INNER", "SCOPES", "Declaration", "Declarations", "Parameter"]

SAME = re.compile(r"\.(llvm|lto_priv|localalias|__uniq|\d+)(?=\.|$)")
"""Suffixes of functions that are called as declared; .constprop, .isra, .part and others are copies
with other parameters."""
NORMAL = 1
"""DW_CC_normal."""
MAX_PARAMETERS = 256
COPIED = {Kind.FLOAT, Kind.COMPOSITE}
MAX_PROLOGUE = 16
"""Bytes from a function's start in which its arguments are still where they were passed."""
SCOPES = {"DW_TAG_namespace", "DW_TAG_module"}
INNER = SCOPES | {f"DW_TAG_{name}" for name in ("subprogram", "lexical_block")} | COMPOSITES
"""Tags around nested functions and lambdas."""
IN_CHARGE = "__in_chrg"
"""Of gcc's constructors and destructors, but of none that exists."""
OBJECTS = {"this", "__closure"}
"""Parameters without a declaration that are passed as others are."""
# Operations of location expressions: DW_OP_*.
REG0, REG31, FBREG, CALL_FRAME_CFA, STACK_VALUE = 0x50, 0x6F, 0x91, 0x9C, 0x9F
DEREF, BREG0 = 0x06, 0x70
LITERALS = {0x03, *range(0x08, 0x12), *range(0x30, 0x50)}
ENTRY_VALUES = {0xA3, 0xF3}
REG5 = 0x55
"""i386's frame pointer, which is two words below its arguments."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """``gone``: the function does without it, so that callers need not pass it; ``implicit``: the
    source does not name it, as the object of a method."""

    name: str
    type: Type
    place: Place
    gone: bool
    implicit: bool


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """``variadic``: more arguments may follow; ``word``: bytes of a recorded word; ``stacked``:
    these are words of the stack."""

    parameters: tuple[Parameter, ...]
    variadic: bool
    word: int
    stacked: bool


class Declarations:
    """The functions of one image, read on demand."""

    def __init__(self, path: Path, convention: Convention, info: DebugInfo | None = None) -> None:
        """Read the functions of ``path``, or of what is opened already."""
        self._path, self._convention = path, convention
        self._opened = info
        self._types = Types()
        self._units: dict[tuple[int, bool], dict[int, list[DIE]]] = {}

    def of(self, symbol: str, address: int, size: int) -> Declaration | None:
        """The function of a symbol at a link address; None if it is not known how it is called.
        Raises InputError if the debug information is unreadable."""
        if "." in SAME.sub("", symbol):
            return None
        try:
            found = self._find(address, address + max(size, 1))
        except (UnclearError, UnusableError):
            return None
        except (OSError, InputError):
            raise
        except Exception as error:  # pyelftools has no common exception for malformed files
            raise self._info.unreadable(error) from None
        # Clang's debug information lacks parameters of some classes, if they are not used.
        stated = parameters_in(demangled(symbol)) if symbol.startswith("_Z") else None
        if found is None or stated is None:
            return found
        own = sum(not one.implicit for one in found.parameters)
        return found if own == stated else None

    @cached_property
    def _info(self) -> DebugInfo:
        return self._opened or DebugInfo(self._path)

    def _find(self, start: int, end: int) -> Declaration | None:
        units = (self._info.unit_at(at) for at in (start, end - 1))
        unit = next((one for one in units if one is not None), None)
        if unit is None:
            return None
        # Nested functions are looked for only if nothing else is there. Code may begin behind the
        # pad that its symbol is at.
        for inner in (False, True):
            held = self._subprograms(unit, inner=inner)
            at = min((place for place in held if start <= place < end), default=None)
            if at is not None:
                # Functions with the same code may have been merged.
                made = [self._declaration(die) for die in held[at]]
                return made[0] if all(one == made[0] for one in made) else None
        return None

    def _subprograms(self, unit: int, *, inner: bool) -> dict[int, list[DIE]]:
        """The functions of a unit that have code, by its address."""
        if (unit, inner) not in self._units:
            found = self._units[unit, inner] = {}
            top = self._info.dwarf.get_CU_at(unit).get_top_DIE()
            for die in entries(top, "DW_TAG_subprogram", INNER if inner else SCOPES, CODED):
                if (at := _entry(die, self._info)) is not None:
                    found.setdefault(at, []).append(die)
        return self._units[unit, inner]

    def _declaration(self, die: DIE) -> Declaration:
        plus = is_plus(die)
        origins = origins_of(die)
        if not plus and not is_c(die):
            raise UnclearError  # other languages have other conventions
        if _first(origins, "DW_AT_calling_convention", NORMAL) != NORMAL:
            raise UnclearError
        whole, held = _parameters(die, origins)
        if whole and not plus and not any("DW_AT_prototyped" in one.attributes for one in origins):
            raise UnclearError  # callers promote what they pass
        result = next(
            (self._types.of(one) for one in origins if "DW_AT_type" in one.attributes), None
        )
        types = [self._type(one) for one in whole]
        variadic = any(
            child.tag == "DW_TAG_unspecified_parameters"
            for one in origins
            for child in children(one)
        )
        convention = self._convention
        place_all = convention.place
        if variadic and isinstance(convention, OwnVariadic):
            place_all = convention.place_variadic
        places = place_all([passed(one) for one in types], passed(result) if result else None)
        external = any("DW_AT_external" in one.attributes for one in origins)
        out = []
        for one, type_, place in zip(whole, types, places, strict=True):
            gone = self._check(die, held.get(one.offset), place, type_=type_, external=external)
            name = next((text for x in origins_of(one) if (text := name_of(x))), "")
            implicit = "DW_AT_artificial" in one.attributes
            out.append(Parameter(name=name, type=type_, place=place, gone=gone, implicit=implicit))
        return Declaration(
            parameters=tuple(out),
            variadic=variadic,
            word=self._convention.word,
            stacked=not self._convention.registers,
        )

    def _type(self, parameter: DIE) -> Type:
        for one in origins_of(parameter):
            if (found := self._types.of(one)) is not None:
                return found
        raise UnclearError

    def _check(
        self, die: DIE, held: DIE | None, place: Place, *, type_: Type, external: bool
    ) -> bool:
        """Return whether a parameter is gone. Raises UnclearError if it is elsewhere at the
        function's entry."""
        if held is None or "DW_AT_location" not in held.attributes:
            return True
        located = self._info.locations(held)
        if not located:
            return True
        begin, first_held = located[0]
        registers = self._convention.registers
        first = place.words[0] if place.words else -1
        if not registers:
            offset = _stack_offset(die, first_held)
            told = REG0 <= first_held[0] <= REG31 and begin == _entry(die, self._info)
            if offset is None and (told or not external):
                raise UnclearError  # also of -mregparm
            # Integers of one word stay where they are, others may be copied at -O0.
            stays = type_.size == self._convention.word and type_.kind not in COPIED
            copied = offset is not None and offset < 0 and (place.address or not stays)
            told_here = offset is not None and not copied and first >= 0
            if told_here and offset != first * self._convention.word:
                raise UnclearError
            return False
        held_at = _is_address(first_held, registers)
        copied = self._convention.copies and place.address and first_held[0] == FBREG
        if (
            held_at is not None
            and not copied
            and held_at != place.address
            and type_.kind is Kind.COMPOSITE
        ):
            raise UnclearError
        values = [_entry_value(one) for _, one in located]
        at_entry = {one for one in values if one is not None}
        # Later it may be elsewhere; but that local functions are called as declared takes a proof.
        early = begin < (_entry(die, self._info) or 0) + MAX_PROLOGUE
        if not at_entry and REG0 <= first_held[0] <= REG31 and (early or not external):
            at_entry = {first_held[0] - REG0}
        at_entry &= set(registers)
        held_in = registers[first] if 0 <= first < len(registers) else -1
        if at_entry and held_in not in at_entry:
            raise UnclearError
        return not at_entry and first_held[0] in LITERALS


def _entry(die: DIE, info: DebugInfo) -> int | None:
    """Where a function's code begins; None if it has none."""
    held = die.attributes
    if "DW_AT_low_pc" in held:
        return number(die, "DW_AT_low_pc", 0)
    return info.first_range(die) if "DW_AT_ranges" in held else None


def _first(dies: Sequence[DIE], name: str, default: int) -> int:
    return next((number(die, name, 0) for die in dies if name in die.attributes), default)


def _parameters(die: DIE, origins: Sequence[DIE]) -> tuple[list[DIE], dict[int, DIE]]:
    """The declared parameters, and by their offsets those with the places of this copy."""
    own = list(_formal(die))
    whole, held = own, {one.offset: one for one in own}
    if "DW_AT_abstract_origin" in die.attributes:
        whole = list(_formal(origins[1]))
        held = {origins_of(one)[1].offset: one for one in own if len(origins_of(one)) > 1}
    if len(whole) > MAX_PARAMETERS:
        raise UnclearError
    for place, one in enumerate(whole):
        if "DW_AT_artificial" in one.attributes and (place or name_of(one) not in OBJECTS):
            raise UnclearError  # passed to some copies, such as a constructor of a base
    return whole, held


def _is_address(expression: bytes, registers: Sequence[int]) -> bool | None:
    """Return whether a location is what a pointer points to; None if it does not tell."""
    first = expression[0]
    if first == FBREG or REG0 <= first <= REG31:
        # The byte before it ends the offset, an SLEB128, of which it may be the last one itself.
        ended = len(expression) > 2 and expression[-2] < 0x80
        return first == FBREG and ended and expression[-1] == DEREF
    return True if first - BREG0 in registers and len(expression) == 2 else None


def _formal(die: DIE) -> Iterator[DIE]:
    """The parameters below a function's DIE, also those of packs."""
    for child in children(die):
        if child.tag == "DW_TAG_GNU_formal_parameter_pack":
            yield from _formal(child)
        elif child.tag == "DW_TAG_formal_parameter" and name_of(child) != IN_CHARGE:
            yield child


def _entry_value(expression: bytes) -> int | None:
    """The register whose value at the entry is meant by a whole location expression."""
    if len(expression) == 4 and expression[0] in ENTRY_VALUES and expression[1] == 1:
        register = expression[2]
        if REG0 <= register <= REG31 and expression[3] == STACK_VALUE:
            return register - REG0
    return None


def _stack_offset(die: DIE, expression: bytes) -> int | None:
    """Distance of a place from the first word of arguments; None if it is not told."""
    base = die.attributes.get("DW_AT_frame_base")
    if not expression or expression[0] != FBREG or base is None:
        return None
    offset = _signed(expression[1:])
    if base.form == "DW_FORM_exprloc" and bytes(base.value) == bytes([CALL_FRAME_CFA]):
        return offset
    if base.form == "DW_FORM_exprloc" and bytes(base.value) == bytes([REG5]):
        return offset - 8
    return None


def _signed(raw: bytes) -> int:
    """A number in SLEB128."""
    value = shift = 0
    for byte in raw[:10]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value - (1 << shift) if byte & 0x40 else value
    return value
