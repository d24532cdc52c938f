# SPDX-License-Identifier: MIT
"""Values that the source names, at one place of a program: where they are, and of what types.

At a function's entry parameters are where a location list says, and otherwise where the calling
convention passes them: a location that always holds is true only behind the prologue.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest

from ftpatch.arch.arguments import LOST, Convention, UnclearError, convention_of
from ftpatch.arch.arguments import Place as Passing
from ftpatch.arch.registers import Registers
from ftpatch.core.token import Token
from ftpatch.debuginfo.debug_info import DebugInfo
from ftpatch.debuginfo.declarations import Declaration, Declarations
from ftpatch.debuginfo.dies import DIE, UnusableError, is_c, is_plus, origins_of
from ftpatch.debuginfo.source_names import RETURNED, SourceName
from ftpatch.debuginfo.source_scopes import Scopes, source_name
from ftpatch.debuginfo.types import COMPOSITES, Types, passed
from ftpatch.debuginfo.value_frames import At, Locations
from ftpatch.debuginfo.value_parts import Part, size_of, stripped
from ftpatch.debuginfo.value_places import (
    InMemory,
    InRegisters,
    NoValueError,
    Place,
    Scattered,
    Word,
)
from ftpatch.debuginfo.value_steps import dereferenced, refusing, taken
from ftpatch.errors import UsageError
from ftpatch.names.functions import Functions
from ftpatch.names.suggest import meant, near

__all__ = ["NamedValues"]

SPLIT = "has parts of less than a word in vector registers"


class NamedValues:
    """The values that have names at one place of a program."""

    def __init__(
        self,
        functions: Functions,
        info: DebugInfo,
        declarations: Declarations | None,
        registers: Registers,
        die: DIE,
        at: At,
    ) -> None:
        self._functions, self._info, self._registers = functions, info, registers
        self._declarations, self._die, self._at = declarations, die, at
        self._locations = Locations(functions=functions, info=info, function=die, at=at)
        self._scopes = Scopes(info=info, function=die, address=at.address, entry=at.entry)

    def value(self, name: SourceName) -> tuple[Place, Part]:
        """The place of a variable, and the part of it that a name stands for. Raises UsageError,
        and InputError for debug information that cannot be read."""
        with self.readable():
            with refusing(name.name):
                place, part = dereferenced(*self._start(name))
            return taken(place, part, name.steps)

    def known(self) -> list[tuple[str, tuple[Place, Part] | NoValueError]]:
        """All that can be named there, but for globals, or why it is not told."""
        out: dict[str, tuple[Place, Part] | NoValueError] = {}
        for die in self._scopes.locals():
            name = source_name(die)
            if not name or name in out:
                continue
            try:
                part = Part(offset=0, die=stripped(die))
                out[name] = dereferenced(self._place(die, name), part)
            except NoValueError as error:
                out[name] = error
            except UnusableError:
                out[name] = NoValueError("has a type of another file")
        return list(out.items())[::-1]

    def result(self) -> DIE | None:
        """The type of what the function returns; None for void. Raises NoValueError, and
        UnusableError."""
        return stripped(self._die)

    def readable(self) -> AbstractContextManager[None]:
        """Raise InputError for what pyelftools raises."""
        return self._info.readable()

    def _start(self, name: SourceName) -> tuple[Place, Part]:
        """The variable that a name begins with, or what the function returns."""
        word = name.name.text
        if word == RETURNED:
            if not self._at.returns:
                raise name.name.refuse("$retval is not available on probe", "use an r probe")
            return self._returned(), Part(offset=0, die=stripped(self._die))
        if not self._at.returns:
            for die in self._scopes.locals():
                if source_name(die) == word:
                    return self._place(die, word), Part(offset=0, die=stripped(die))
        for die in self._scopes.globals(word):
            if self._has_place(die):
                return self._static(die), Part(offset=0, die=stripped(die))
        raise self._missing(name.name)

    def _missing(self, token: Token) -> UsageError:
        word, at = token.text, self._at
        function = source_name(self._die) or at.symbol
        known = [source_name(die) for die in self._scopes.locals()]
        if at.returns and word in known:
            return token.refuse("parameters are not known at a return", "use a p probe")
        if at.returns:
            return token.refuse(f"{function} has no such name at its return", "use $retval")
        if self._scopes.later(word):
            hint = "probe a line where it is, as in FILE:LINE"
            return token.refuse(f"{function} has that variable, but not here", hint)
        fields = [known_ for known_ in known if known_]
        some = ", ".join(reversed(fields[-8:]))
        hint = meant(near(word, fields), f"it has {some}" if some else "see --vars")
        return token.refuse(f"{function} has no such parameter", hint)

    def _has_place(self, die: DIE) -> bool:
        return any(
            name in one.attributes
            for one in origins_of(die)
            for name in ("DW_AT_location", "DW_AT_const_value")
        )

    def _static(self, die: DIE) -> Place:
        for one in origins_of(die):
            if "DW_AT_location" in one.attributes or "DW_AT_const_value" in one.attributes:
                return self._locations.told(one) or self._gone()
        return self._gone()

    @staticmethod
    def _gone() -> Place:
        raise NoValueError("was optimised away")

    def _place(self, die: DIE, name: str) -> Place:
        """Where a parameter or a local variable is."""
        at = self._at
        found = self._info.location_at(die, "DW_AT_location", at.address)
        is_list = found is not None and found[1]
        if not at.entry:
            if not is_list and at.start < at.address < at.settled:
                raise NoValueError("is not yet stored there", "probe a line behind that")
            return self._locations.told(die) or self._gone()
        if is_list:
            return self._locations.told(die) or self._gone()
        if self._is_static(die) or "DW_AT_const_value" in die.attributes:
            return self._locations.told(die) or self._gone()
        if self._declared is None and found is not None and self._stays(die):
            return self._locations.told(die) or self._gone()
        if self._declared is None and found is None and "DW_AT_location" in die.attributes:
            early = self._locations.early(die)
            if early is not None:
                return early
        passing = self._passed(name)
        if self._declared is not None and self._declared.stacked:
            if self._locations.registers_in(self._locations.parsed(die)) and self._stays(die):
                return self._locations.told(die) or self._gone()
            return self._copied(die) or self._stacked(self._declared, name)
        if passing.stack != LOST:
            held = self._on_stack(passing.stack + self._registers.behind)
            return held.pointed() if passing.address else held
        if passing.address and passing.words[0] != LOST:
            return self._held(self._names(passing, self._general)).pointed()
        if {*passing.words, *passing.vectors} <= {LOST}:
            return self._beyond(die, name, passing)
        return self._held(self._names(passing, self._general), size_of(stripped(die)))

    def _held(self, names: Sequence[str | None], size: int = 0) -> InRegisters:
        """A value of so many bytes in registers, 0: as many as they have."""
        known = self._locations.registers
        widths = [known.width(name) for name in names if name]
        width = min(widths, default=known.word)
        return InRegisters(names=names, width=width, big=self._registers.order.big, size=size)

    def _copied(self, die: DIE) -> Place | None:
        """Where a parameter is by the prologue, which copies all of it into the frame: functions
        need not be called as declared (regparm). None if it does not."""
        try:
            place = self._locations.told(die)
        except NoValueError:
            return None
        size = size_of(stripped(die))
        return place if isinstance(place, Scattered) and place.covers(size) else None

    def _stacked(self, declared: Declaration, name: str) -> Place:
        """Where a parameter is if all are words of the stack, in order."""
        first = next((one.place.words[0] for one in declared.parameters if one.place.words), 0)
        at = first + self._registers.behind
        for one in declared.parameters:
            if one.name == name:
                held = self._on_stack(at)
                return held.pointed() if one.place.address else held
            at += len(one.place.words)
        return self._gone()

    def _on_stack(self, word: int) -> InMemory:
        """A word from where the stack pointer is at the entry."""
        known = self._locations.registers
        return InMemory(start=Word(start=known.names[known.stack]), offset=known.word * word)

    def _stays(self, die: DIE) -> bool:
        """Test whether a parameter is, all the time, where it was passed: in registers for
        arguments, also of functions that are called in another way, or in a frame of which the
        prologue tells."""
        operations = self._locations.parsed(die)
        convention = self._convention
        registers = (*convention.registers, *convention.vectors) if convention else ()
        named = self._locations.registers_in(operations)
        framed = any(one.op_name == "DW_OP_fbreg" for one in operations)
        others = named - set(registers)
        if others and not (convention and others <= set(convention.others)):
            return False
        return (framed or bool(named)) and self._locations.uses(others)

    def _beyond(self, die: DIE, name: str, passing: Passing) -> Place:
        """Where a parameter is behind the registers that the convention's words are."""
        if self._declared is None or passing.missing not in ("stack", "not recorded"):
            raise NoValueError(SPLIT)
        register = stack = 0
        for one in self._declared.parameters:
            place = one.place
            kept = [word for word in place.words if word != LOST]
            fits = one.type.size <= self._registers.word and len(place.words) == 1
            narrow = place.address or fits
            if one.name == name:
                break
            if kept:
                register = max(kept) + 1
            elif place.missing in ("stack", "not recorded") and not narrow:
                return self._locations.told(die) or self._gone()  # its alignment counts
            register += not kept and place.missing == "not recorded"
            stack += place.missing == "stack"
        if not narrow:
            return self._locations.told(die) or self._gone()
        held: Place
        if passing.missing == "stack":
            held = self._on_stack(stack + self._registers.behind)
            if self._registers.order.big and not passing.address:  # at the word's right end
                held = replace(held, offset=held.offset + self._registers.word - one.type.size)
        else:
            register = register if passing.register == LOST else passing.register
            numbers, number = self._registers.numbers, self._registers.arguments[register]
            known = self._locations.registers.names
            held = self._held([one for one in known if numbers.get(one) == number], one.type.size)
        return held.pointed() if passing.address else held

    def _is_static(self, die: DIE) -> bool:
        held = self._info.location_at(die, "DW_AT_location", self._at.address)
        return held is not None and held[0][:1] == b"\x03"  # DW_OP_addr

    @cached_property
    def _general(self) -> list[str]:
        """The registers that the convention's words are."""
        names = self._locations.registers.names
        return [names[number] for number in self._convention.registers] if self._convention else []

    def _names(self, passing: Passing, general: Sequence[str]) -> list[str | None]:
        """The registers that hold the words of an argument, or of a result, if those of integers
        are the ``general`` ones."""
        known = self._locations.registers.known
        vectors = [known[number] for number in self._convention.vectors] if self._convention else []
        pairs = zip_longest(passing.words, passing.vectors, fillvalue=LOST)
        return [_nth(general, word) or _nth(vectors, vector) for word, vector in pairs]

    def _passed(self, name: str) -> Passing:
        """Where the calling convention passes a parameter. Raises NoValueError where the
        compiler need not have kept to it."""
        declared = self._declared
        if declared is None:
            hint = "fetch $argN, or probe its first line"
            raise NoValueError("has no known place at the entry", hint)
        found = [one for one in declared.parameters if one.name == name]
        if len(found) != 1:
            raise NoValueError("has no known place at the entry")
        if found[0].gone:
            raise NoValueError("was optimised away")
        return found[0].place

    @cached_property
    def _declared(self) -> Declaration | None:
        at = self._at
        if self._declarations is None:
            return None
        found = self._declarations.of(at.symbol, at.start, at.size)
        others = self._convention.others if self._convention else ()
        if found is not None and any(self._locations.uses({one}) for one in others):
            return None  # regparm, say, which clang does not tell
        return found

    @cached_property
    def _convention(self) -> Convention | None:
        skeleton = self._functions.image.elf.skeleton
        return convention_of(skeleton.machine, skeleton.elf_class)

    def _returned(self) -> Place:
        """Where a result is: as the convention passes an argument of that type, but for the
        registers."""
        type_ = stripped(self._die)
        if type_ is None:
            raise NoValueError("is void")
        convention = self._convention
        is_known = is_c(self._die) or is_plus(self._die) or type_.tag not in COMPOSITES
        held = next(one for one in origins_of(self._die) if "DW_AT_type" in one.attributes)
        try:
            found = Types().of(held)
            if convention is None or found is None or not is_known:
                raise UnclearError
            asked = passed(found)
            place = convention.returned(asked)
        except UnclearError:
            raise NoValueError("is returned in a way that is not known") from None
        results = self._registers.results
        in_memory = place.address or (place.missing == "stack" and set(place.words) == {LOST})
        if in_memory and (asked.composite or asked.by_reference):
            if not self._registers.returns_address:
                raise NoValueError("is where only the caller knows")
            return self._held(results).pointed()
        names = self._names(place, results)
        if place.missing == "float" and not any(names):
            raise NoValueError(SPLIT)
        return self._held(names, asked.size)


def _nth(names: Sequence[str], number: int) -> str | None:
    return names[number] if 0 <= number < len(names) else None
