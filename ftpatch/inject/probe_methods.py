# SPDX-License-Identifier: MIT
"""The methods of placing a probe, in the order in which they are tried.

pad    the compiler left room for a jump at the function's entry
jump   a jump replaces the first instructions, which are executed out of line, as with optimized
       kprobes (can_optimize() of arch/x86/kernel/kprobes/opt.c)
pun    a jump replaces the first instruction alone, and shares bytes with those behind it, of which
       one or two may have to become jumps as well
trap   a breakpoint replaces one byte (x86) or one instruction

x86_64   55 48 89 e5 41 57   ->   e9 rel32 57   or   e9 48 89 e5 41 57   or   d6 48 89 e5 41 57
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from ftpatch.arch import Arch, supports
from ftpatch.arch.contract import U64
from ftpatch.arch.move import Immovable, Moved, Mover
from ftpatch.arch.puns import Pun
from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.inject.boundaries import MAX_INSTRUCTION, Boundaries
from ftpatch.inject.evictions import Evictions
from ftpatch.inject.hops import Hop, Hops
from ftpatch.names.functions import Functions

__all__ = ["JUMP", "METHODS", "PAD", "Chosen", "Methods", "NoMethod", "ProbeMethod", "displaced"]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A place to probe. ``address``: link address of the instructions to displace, after any
    landing pad; ``code``: from there to the function's end, if that is known; ``around``: the
    function, None if its end is unknown; ``entry``: the place is its entry; ``pad``: the compiler
    left room there; ``until``: address of the next probe, which must not be overwritten;
    ``optimize``: jumps are allowed."""

    address: int
    code: bytes
    around: tuple[int, int] | None
    entry: bool
    pad: bool
    until: int | None
    optimize: bool


class ProbeMethod(Protocol):
    """A method. ``number``: its id in trace files; ``traps``: it raises a signal when reached."""

    @property
    def name(self) -> str: ...

    @property
    def number(self) -> int: ...

    @property
    def traps(self) -> bool: ...

    def room(self, mover: Mover) -> int:
        """Bytes needed at the place."""
        ...

    def refusal(self, place: Candidate, methods: Methods) -> str | None:
        """A clause on why it cannot be used here; None if it can. Empty: not worth mentioning."""
        ...

    def code(self, mover: Mover, at: int, to: int) -> bytes:
        """The bytes to write at the place, for a detour at ``to``. Raises Immovable if that is out
        of reach."""
        ...


@dataclass(frozen=True, kw_only=True)
class _ByJump:
    """The common part of pads and jumps."""

    name: str
    number: int
    traps: bool = False

    def room(self, mover: Mover) -> int:
        return mover.jump_size

    def code(self, mover: Mover, at: int, to: int) -> bytes:
        return mover.jump(at, to)


class _Pad(_ByJump):
    def refusal(self, place: Candidate, methods: Methods) -> str | None:
        end = place.address + self.room(methods.mover)
        near = place.until is not None and place.until < end
        return None if place.entry and place.pad and not near else ""


class _Jump(_ByJump):
    def refusal(self, place: Candidate, methods: Methods) -> str | None:
        if place.around is None:
            return "the end of its function is unknown"
        if not place.optimize:
            return "--no-optimize"
        return methods.against_jump(place, place.around) or None


class _Pun(_ByJump):
    def room(self, mover: Mover) -> int:
        return 1  # the first instruction, whatever its size

    def refusal(self, place: Candidate, methods: Methods) -> str | None:
        if not place.optimize or methods.hops is None:
            return ""
        return None if methods.forms(place) else "nor can one share bytes with the code behind it"


@dataclass(frozen=True, kw_only=True)
class _Trap:
    name: str
    number: int
    traps: bool = True

    def room(self, mover: Mover) -> int:
        return len(mover.trap)

    def refusal(self, place: Candidate, methods: Methods) -> str | None:
        if not supports(methods.arch.name, "system_calls"):
            return f"traps are not supported on {methods.arch.name}"
        try:
            methods.mover.move(place.code, place.address, place.address, 1)
        except Immovable as error:
            return str(error)
        return None

    def code(self, mover: Mover, at: int, to: int) -> bytes:
        return mover.trap


PAD = _Pad(name="pad", number=1)
JUMP = _Jump(name="jump", number=2)
PUN = _Pun(name="pun", number=4)
TRAP = _Trap(name="trap", number=3)
METHODS: tuple[ProbeMethod, ...] = (PAD, JUMP, PUN, TRAP)
"""In the order in which they are tried."""
LANDING = 64
"""The code that says how long a landing pad is (bytes)."""
EVICTABLE = 48
"""The code behind a place, with what may be evicted and what that shares bytes with (bytes)."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The method for a place: ``address`` of the displaced instructions (link address), the
    ``code`` from there on (to the function's end, if known), how many bytes of it are ``needed``
    for the jump or breakpoint, and why the preceding methods were not usable (a clause, or empty).
    ``place`` of a punned jump, the ``hop`` of the one that was taken, and the instructions behind
    it that are ``evicted`` for it."""

    address: int
    code: bytes
    method: ProbeMethod
    needed: int
    why: str
    place: Candidate | None = None
    hop: Hop | None = None
    evicted: Sequence[Chosen] = ()

    def new_code(self, mover: Mover, to: int) -> bytes:
        """The bytes to write at the place, for a detour at ``to``. Raises Immovable if that is out
        of reach."""
        return self.hop.code if self.hop else self.method.code(mover, self.address, to)


class NoMethod(UsageError):
    """None of the methods can be used at an address."""

    why = ""
    """The reason, a clause, where the caller names the place in its own words."""


class Methods:
    """Chooses for one image. ``pads``: addresses of pads, as the table has them; ``hops``: places
    for those of punned jumps, None where there are no such jumps; ``tables``: its compiler may have
    made jump tables; ``guarded``: its pages may be, so that what signs is a landing pad;
    ``taken``: the code at the begin of functions that a tracer uses, its end by its start (link
    addresses), behind which probes of their entries are."""

    def __init__(
        self,
        image: Image,
        arch: Arch,
        mover: Mover,
        functions: Functions,
        pads: set[int],
        hops: Hops | None = None,
        *,
        tables: bool = True,
        guarded: bool = True,
        taken: Mapping[int, int] | None = None,
    ) -> None:
        self._taken = taken or {}
        self.mover, self.hops, self._guarded = mover, hops, guarded
        self._image, self.arch = image, arch
        self._functions, self._pads = functions, pads
        self._boundaries = Boundaries(image, arch, mover, functions, tables=tables)

    def choose(
        self,
        address: int,
        *,
        optimize: bool,
        until: int | None,
        methods: Sequence[ProbeMethod] = METHODS,
    ) -> Chosen:
        """Choose one of the methods for a probe at a link address; ``until``: address of the next
        probe. Raises UsageError if no instruction begins there, NoMethod if none can be used."""
        place = self._candidate(address, optimize=optimize, until=until)
        why = ""
        for method in methods:
            against = method.refusal(place, self)
            if against is None:
                chosen = Chosen(
                    address=place.address,
                    code=place.code,
                    method=method,
                    needed=method.room(self.mover),
                    why=why,
                    place=place if method is PUN else None,
                )
                if not self._is_relocated(chosen):
                    return chosen
                against = "the dynamic linker changes the code there (DT_TEXTREL)"
            alone = method.traps and supports(self.arch.name, "system_calls")
            why = f"{why}; {against}" if why and against and not alone else against or why
        why = why.removeprefix(f"{address:#x}: ")  # of the instruction that cannot be moved
        reason = f"no probe at {address:#x}: {why}"
        error = NoMethod(self._image.path, reason, "probe another address")
        error.why = why
        raise error

    def forms(self, place: Candidate) -> Sequence[Pun]:
        """Find all forms of a punned jump at a place."""
        if self.hops is None:
            return ()
        try:
            size = self.mover.move(place.code, place.address, place.address, 1).size
        except Immovable:
            return ()
        code = self._boundaries.following(place.address, size + self.mover.jump_size)
        forms = self.hops.puns.forms(code, place.address, size)
        until = place.until
        return [one for one in forms if until is None or place.address + one.size <= until]

    def with_hops(self, chosen: Sequence[Chosen]) -> list[Chosen]:
        """Take a hop for each punned jump, first for those with the least choice, last for those
        that need evictions. Where there is none, a trap takes its place."""
        out = list(chosen)
        if self.hops is None:
            return out
        forms = {row: self.forms(one.place) for row, one in enumerate(chosen) if one.place}
        left = []
        for row in sorted(forms, key=lambda row: sum(one.high - one.low for one in forms[row])):
            one = chosen[row]
            hop = self.hops.take(forms[row], self.moved(one, one.address).size)
            if hop is None:
                left.append(row)
            else:
                out[row] = replace(one, hop=hop)
        for row in left:
            nowhere = not self.hops.reachable(forms[row])
            out[row] = self._by_eviction(chosen[row], self.hops, nowhere=nowhere)
        return out

    def _by_eviction(self, one: Chosen, hops: Hops, *, nowhere: bool) -> Chosen:
        """A punned jump for which others are evicted, or else a trap."""
        place = one.place
        if place is not None and place.around is not None:
            after = self._boundaries.following(one.address, EVICTABLE)
            end = one.address + len(one.code)
            room = end if place.until is None else min(end, place.until)
            found = Evictions(
                hops, self.mover, after, at=one.address, room=room, until=place.until
            ).find()
            if found is not None:
                evicted = [
                    replace(
                        one, address=jump.at, code=one.code[jump.at - one.address :], hop=jump.hop
                    )
                    for jump in found[1:]
                ]
                return replace(one, hop=found[0].hop, evicted=evicted)
        against = (
            "a punned one would lead nowhere" if nowhere else "there is no place for a punned one"
        )
        why = f"{one.why}; {against}" if one.why else against
        return replace(one, method=TRAP, needed=TRAP.room(self.mover), why=why, place=None)

    def moved(self, chosen: Chosen, to: int, needed: int = 0) -> Moved:
        """Move the displaced instructions to ``to``, or the first ``needed`` bytes of them. Raises
        UsageError if something is out of reach."""
        try:
            return self.mover.move(chosen.code, chosen.address, to, needed or chosen.needed)
        except Immovable as error:
            raise UsageError(self._image.path, f"no probe: {error}") from None

    def span(self, chosen: Chosen) -> tuple[int, int]:
        """The range of link addresses whose instructions are executed out of line, or whose bytes
        are a jump's."""
        size = max(self.moved(chosen, chosen.address).size, chosen.hop.size if chosen.hop else 0)
        ends = [self.span(one)[1] for one in chosen.evicted]
        return chosen.address, max([chosen.address + size, *ends])

    def against_jump(self, place: Candidate, around: tuple[int, int]) -> str:
        """Explain in a clause what rules out a jump; empty if nothing does."""
        start, code, until = place.address, place.code, place.until
        try:
            moved = self.mover.move(code, start, start, self.mover.jump_size)
        except Immovable as error:
            return str(error)
        end = start + moved.size
        if end > around[1]:
            return "the function is too short"
        if until is not None and until < end:
            return "another probe is too close"
        if self._guarded and self.mover.signing(code):
            return "it begins with an instruction that must not move"
        if moved.size == self.arch.align or self._is_one(place):
            return ""
        if place.entry and not self._functions.is_called(around[0]):
            return "it is part of a function and may be entered anywhere"
        if not place.entry and self._boundaries.has_landings:
            return "an exception landing pad may lie within the jump"
        return self._boundaries.against_jump(start, start + self.mover.jump_size, around)

    def _is_one(self, place: Candidate) -> bool:
        """Test whether a jump takes the place of one instruction, into which nothing branches but
        past a prefix. Where it can share bytes, that is no worse."""
        if self.hops is not None or not (self._image.is_program or self._image.is_library):
            return False
        size = self.mover.move(place.code, place.address, place.address, 1).size
        return size >= self.mover.jump_size and not self.mover.prefixed(place.code)

    def _is_relocated(self, chosen: Chosen) -> bool:
        """Test whether displaced instructions, or bytes of a jump, are relocated."""
        places = self._relocated
        size = max(self.moved(chosen, chosen.address).size, chosen.needed)
        low, high = np.searchsorted(
            places, np.array([chosen.address, chosen.address + size], np.uint64)
        )
        before = low and int(places[low - 1]) + self._image.elf.word > chosen.address
        return bool(low < high or before)

    @cached_property
    def _relocated(self) -> U64:
        """Places in code that the dynamic linker changes, sorted."""
        image = self._image
        if not image.is_program and not image.is_library:
            return np.empty(0, np.uint64)
        place = image.relocations.place
        return np.sort(place[image.elf.offset_of(place, executable=True) >= 0])

    def _candidate(self, address: int, *, optimize: bool, until: int | None) -> Candidate:
        around = self._functions.around(address)
        entry = around is not None and around[0] == address
        place = address
        code = self._boundaries.code(address, around[1] if around else address + MAX_INSTRUCTION)
        if entry:
            # Unwind information may begin behind it.
            landing = self.mover.landing(self._boundaries.following(address, LANDING))
            place, code = address + landing, code[landing:]
            behind = self._taken.get(place, place)
            if around is not None and behind >= around[1]:
                # Unwind information may begin behind the pad.
                after = self._functions.around(behind)
                around = (around[0], after[1] if after else behind)
                code = self._boundaries.code(place, around[1])
            place, code = behind, code[behind - place :]
        elif around is not None:
            self._boundaries.require_boundary(*around, address)
        return Candidate(
            address=place,
            code=code,
            around=around,
            entry=entry,
            pad=place in self._pads,
            until=None if until is not None and until <= place else until,  # one before it
            optimize=optimize,
        )


def displaced(image: Image, chosen: Chosen, new: bytes) -> Changes:
    """Replace the place's code by the jump or breakpoint ``new``."""
    offset = image.elf.offset_of(np.array([chosen.address], np.uint64))
    old = np.frombuffer(chosen.code[: len(new)], np.uint8)[None]
    return Changes.of(Kind.CODE, offset, old, np.frombuffer(new, np.uint8)[None], NO_OWNER)
