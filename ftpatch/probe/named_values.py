# SPDX-License-Identifier: MIT
"""Values that the source names, as fetches: what is in the debug information, at one place.

At a function's entry parameters are where a location list says, and otherwise where the calling
convention passes them: a location that always holds is true only behind the prologue.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from ftpatch.arch.arguments import LOST, Convention, UnclearError, convention_of
from ftpatch.arch.arguments import Place as Passing
from ftpatch.arch.registers import Registers
from ftpatch.core.token import Token
from ftpatch.errors import UsageError
from ftpatch.names.functions import Functions
from ftpatch.names.suggest import meant, near
from ftpatch.probe.definition import TYPES, Fetch, Source
from ftpatch.probe.source_names import RETURNED, SourceName, Step, parse_source_name
from ftpatch.probe.source_scopes import Scopes, source_name
from ftpatch.probe.value_frames import At, Locations
from ftpatch.probe.value_places import (
    InMemory,
    InRegisters,
    NotFetchedError,
    Place,
)
from ftpatch.probe.value_types import (
    COMPOSITES,
    POINTERS,
    REFERENCES,
    Part,
    Shown,
    element_of,
    member_of,
    members_of,
    shown,
    size_of,
    stripped,
    unknown_member,
)
from ftpatch.trace.debug_info import DebugInfo
from ftpatch.trace.declarations import Declaration, Declarations
from ftpatch.trace.dies import DIE, UnusableError, is_c, is_plus, origins_of
from ftpatch.trace.types import Types, passed

__all__ = ["NamedValues"]

WORD = 8
REG0 = 0x50
"""DW_OP_reg0."""
VECTORS = 8
"""Vector registers for arguments: others are on the stack."""


class NamedValues:
    """Fetches names at one place of a program."""

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

    def __call__(self, value: Token, kind: Token | None) -> Fetch:
        """Fetch what a name stands for; ``kind``: the TYPE behind it. Raises UsageError."""
        name = parse_source_name(value)
        what = token = name.name
        try:
            place, part = self._start(name)
            place, part = self._dereferenced(place, part)
            for step in name.steps:
                what, token = step.before, step.token
                place, part = self._step(place, part, step)
            what = token = value
            return self._fetch(place, part, kind)
        except NotFetchedError as error:
            raise token.refuse(f"{what.text} {error.reason}", error.hint) from None
        except UnusableError:
            raise token.refuse(f"{what.text} has a type of another file") from None
        except (UsageError, OSError):
            raise
        except Exception as error:  # pyelftools has no common exception for malformed files
            raise self._info.unreadable(error) from None

    def known(self) -> list[tuple[str, Fetch | NotFetchedError]]:
        """All that can be named there, but for globals, with what is fetched, or why it is not."""
        out: list[tuple[str, Fetch | NotFetchedError]] = []
        for die in self._scopes.locals():
            name = source_name(die)
            if not name or name in dict(out):
                continue
            try:
                type_ = stripped(die)
                place, part = self._dereferenced(self._place(die, name), Part(offset=0, die=type_))
                if part.die is not None and part.die.tag in COMPOSITES:
                    place.fetch(1)
                    out.append((name, Fetch(name, Source.VARIABLE)))
                    continue
                out.append((name, replace(self._fetch(place, part, None), name=name)))
            except NotFetchedError as error:
                out.append((name, error))
            except UnusableError:
                out.append((name, NotFetchedError("has a type of another file")))
        return out[::-1]

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
        for die in self._scopes.globals():
            if word in (source_name(die), f"{source_name(die)}") and self._has_place(die):
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
        raise NotFetchedError("was optimised away")

    def _place(self, die: DIE, name: str) -> Place:
        """Where a parameter or a local variable is."""
        at = self._at
        found = self._info.location_at(die, "DW_AT_location", at.address)
        is_list = found is not None and found[1]
        if not at.entry:
            if not is_list and at.start < at.address < at.settled:
                raise NotFetchedError("is not yet stored there", "probe a line behind that")
            return self._locations.told(die) or self._gone()
        if is_list:
            return self._locations.told(die) or self._gone()
        if self._is_static(die):
            return self._locations.told(die) or self._gone()
        if self._declared is None and self._is_argument(die):
            return self._locations.told(die) or self._gone()
        passing = self._passed(name)
        if passing.address and passing.words[0] != LOST:
            return InRegisters(names=[self._name(passing.words[0])]).pointed()
        if not passing.words or set(passing.words) == {LOST}:
            return self._beyond(die, name, passing)
        return InRegisters(names=[self._name(word) for word in passing.words])

    def _is_argument(self, die: DIE) -> bool:
        """Test whether a parameter is, all the time, in a register that arguments are passed in."""
        held = self._info.location_at(die, "DW_AT_location", self._at.address)
        registers = self._convention.registers if self._convention else ()
        return held is not None and len(held[0]) == 1 and held[0][0] - REG0 in registers

    def _beyond(self, die: DIE, name: str, passing: Passing) -> Place:
        """Where a parameter is behind the registers that the convention's words are."""
        if self._declared is None or passing.missing not in ("stack", "not recorded"):
            raise NotFetchedError("is in no general register there")
        register = stack = vectors = 0
        for one in self._declared.parameters:
            place = one.place
            kept = [word for word in place.words if word != LOST]
            narrow = one.type.size <= WORD and (len(place.words) == 1 or place.address)
            if one.name == name:
                break
            if kept:
                register = max(kept) + 1
            elif place.missing in ("stack", "not recorded") and not narrow:
                return self._locations.told(die) or self._gone()  # its alignment counts
            vectors += len(place.words) - len(kept) if place.missing == "float" else 0
            register += not kept and place.missing == "not recorded"
            stack += place.missing == "stack"
        if not narrow or vectors > VECTORS:
            return self._locations.told(die) or self._gone()
        held: Place
        if passing.missing == "stack":
            pointer = self._locations.registers.names[self._locations.registers.stack]
            start = Fetch("", Source.REGISTER, pointer)
            held = InMemory(start=start, offset=WORD * (stack + self._registers.behind))
        else:
            numbers, number = self._registers.numbers, self._registers.arguments[register]
            known = self._locations.registers.names
            held = InRegisters(names=[one for one in known if numbers.get(one) == number])
        return held.pointed() if passing.address else held

    def _is_static(self, die: DIE) -> bool:
        held = self._info.location_at(die, "DW_AT_location", self._at.address)
        return held is not None and held[0][:1] == b"\x03"  # DW_OP_addr

    def _name(self, word: int) -> str | None:
        if word == LOST or self._convention is None:
            return None
        return self._locations.registers.names[self._convention.registers[word]]

    def _passed(self, name: str) -> Passing:
        """Where the calling convention passes a parameter. Raises NotFetchedError where the
        compiler need not have kept to it."""
        declared = self._declared
        if declared is None:
            hint = "fetch $argN, or probe its first line"
            raise NotFetchedError("is not told where it is at the entry", hint)
        found = [one for one in declared.parameters if one.name == name]
        if len(found) != 1:
            raise NotFetchedError("is not told where it is at the entry")
        if found[0].gone:
            raise NotFetchedError("was optimised away")
        return found[0].place

    @cached_property
    def _declared(self) -> Declaration | None:
        at = self._at
        if self._declarations is None:
            return None
        return self._declarations.of(at.symbol, at.start, at.size)

    @cached_property
    def _convention(self) -> Convention | None:
        skeleton = self._functions.image.elf.skeleton
        return convention_of(skeleton.machine, skeleton.elf_class)

    def _returned(self) -> Place:
        """Where a result is: as the convention passes an argument of that type, but for the
        registers."""
        type_ = stripped(self._die)
        if type_ is None:
            raise NotFetchedError("is void")
        convention = self._convention
        is_known = is_c(self._die) or is_plus(self._die) or type_.tag not in COMPOSITES
        held = next(one for one in origins_of(self._die) if "DW_AT_type" in one.attributes)
        try:
            found = Types().of(held)
            if convention is None or found is None or not is_known:
                raise UnclearError
            asked = passed(found)
            (place,) = convention.place([asked], None)
        except UnclearError:
            raise NotFetchedError("is returned in a way that is not known") from None
        results = self._registers.results
        in_memory = place.address or (place.missing == "stack" and set(place.words) == {LOST})
        if in_memory and (asked.composite or asked.by_reference):
            if not self._registers.returns_address:
                raise NotFetchedError("is where only the caller knows")
            return InRegisters(names=results).pointed()
        names = [None if word == LOST else results[word] for word in place.words if word < 2]
        return InRegisters(names=names)

    def _dereferenced(self, place: Place, part: Part) -> tuple[Place, Part]:
        """What a reference refers to."""
        if part.die is not None and part.die.tag in REFERENCES:
            return place.part(part.offset).pointed(), Part(offset=0, die=stripped(part.die))
        return place, part

    def _step(self, place: Place, part: Part, step: Step) -> tuple[Place, Part]:
        die = part.die
        is_pointer = die is not None and die.tag in POINTERS
        is_array = die is not None and die.tag == "DW_TAG_array_type"
        before = step.before.text
        if step.mark == "[" and is_array:
            found = element_of(die, step.index, part.dimension)
            return self._moved(place, part, found)
        if step.mark == "." and is_pointer:
            raise NotFetchedError("is a pointer", f"write {before}->{step.member}")
        if step.mark == "->" and not is_pointer:
            raise NotFetchedError("is no pointer", f"write {before}.{step.member}")
        if step.mark in ("[", "*") and not is_pointer:
            if step.mark == "*" and is_array:
                return self._moved(place, part, element_of(die, 0, part.dimension))
            raise NotFetchedError("is no pointer")
        if step.mark != ".":
            inner = stripped(die)
            place, part = place.part(part.offset).pointed(), Part(offset=0, die=inner)
            if step.mark == "[":
                part = replace(part, offset=step.index * size_of(inner))
            if step.mark != "->":
                return self._dereferenced(place, part)
        return self._member(place, part, step)

    def _member(self, place: Place, part: Part, step: Step) -> tuple[Place, Part]:
        die = part.die
        if die is None or die.tag not in COMPOSITES:
            raise NotFetchedError("is no structure" if die is not None else "points to void")
        if "DW_AT_declaration" in die.attributes:
            hint = "use +OFFSET(POINTER)"
            raise NotFetchedError("is a structure that this source does not define", hint)
        found = member_of(die, step.member)
        if found is None:
            raise unknown_member(step.member, members_of(die))
        return self._moved(place, part, found)

    def _moved(self, place: Place, part: Part, found: Part) -> tuple[Place, Part]:
        return self._dereferenced(place, replace(found, offset=part.offset + found.offset))

    def _fetch(self, place: Place, part: Part, kind: Token | None) -> Fetch:
        place = place.part(part.offset)
        if kind is not None:
            return self._typed(place, part, kind)
        how = shown(part.die, part.dimension)
        return _fetched(place, how)

    def _typed(self, place: Place, part: Part, kind: Token) -> Fetch:
        """Fetch it with the TYPE that was asked for."""
        die = part.die
        if kind.text not in TYPES:
            hint = meant(near(kind.text, TYPES), f"one of {', '.join(TYPES)}")
            raise kind.refuse("unknown type is specified", hint)
        is_array = die is not None and die.tag == "DW_TAG_array_type"
        if kind.text == "string":
            if die is not None and die.tag in POINTERS:
                return _fetched(place, Shown(type="string", size=WORD, follow=True))
            if not is_array:
                raise NotFetchedError("is no string")
            size = size_of(die, part.dimension)
            return _fetched(place, Shown(type="string", size=0, room=size))
        size = size_of(die, part.dimension)
        if TYPES[kind.text] > size:
            raise kind.refuse(f"it has {size} bytes", f"at most x{8 * size}")
        return _fetched(place, Shown(type=kind.text, size=TYPES[kind.text]))


def _fetched(place: Place, how: Shown) -> Fetch:
    if how.type != "string":
        return replace(place.fetch(how.size), type=how.type, names=how.names)
    at = place.pointed() if how.follow else place
    if not isinstance(at, InMemory):
        raise NotFetchedError("is a string in registers, which cannot be fetched")
    room = how.room if how.room <= 63 else 0
    return replace(at.fetch(0), type="string", room=room)
