"""Probe methods: the pad of a function, a jump, or a breakpoint.

    pad    the compiler left room for a jump at the function's entry
    jump   a jump takes the place of the first instructions, which run elsewhere, as optimised
           kprobes do (can_optimize() of arch/x86/kernel/kprobes/opt.c)
    trap   a breakpoint takes that of one byte (x86) or one instruction

A jump is right only where nothing can go into what it takes the place of. So the
function must be known to its end, have no jump whose target is not known, and nothing in the text
may branch there, whatever byte it begins with.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch
from ftpatch.arch.disassemble import Instruction, disassemble
from ftpatch.arch.move import Immovable, Moved, Mover
from ftpatch.arch.x86_64.branches import (
    branched_into,
    has_indirect_jump,
    is_thunk,
    jumps_out,
    long_targets,
    short_targets,
    targets_in,
)
from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.names.functions import Functions

__all__ = ["Chosen", "Chooser", "Way"]

NEAR = 144
"""Bytes: how far a short branch reaches, and an instruction more."""
LONGEST = 16
"""Bytes of an instruction, at most."""
THUNK = 32
"""Bytes of what jumps by a register for others, at most."""
MOST = 16
"""Parts of one function to examine."""
UNKNOWN = "its function has an indirect jump with unknown targets"


class Way(StrEnum):
    """Method of a probe at its address."""

    PAD = "pad"
    JUMP = "jump"
    TRAP = "trap"


@dataclass(frozen=True)
class Chosen:
    """Method chosen for a place: ``address`` of the instructions that are displaced (link address),
    the ``code`` from there on (to the function's end, if that is known), how many bytes of it are
    ``needed`` for what goes there, and why it is no jump (a clause, empty for what is one)."""

    address: int
    code: bytes
    way: Way
    needed: int
    why: str


class Chooser:
    """Chooses for one image. ``pads``: addresses of pads, as the table has them."""

    def __init__(
        self, image: Image, arch: Arch, mover: Mover, functions: Functions, pads: set[int]
    ) -> None:
        self._image, self._arch, self._mover = image, arch, mover
        self._functions, self._pads = functions, pads
        self._known: dict[tuple[int, int], str] = {}

    def choose(self, address: int, *, optimize: bool, until: int | None) -> Chosen:
        """Choose the method for a probe at a link address; ``until``: address of the next probe,
        which no jump may cover. Raises UsageError where there is no instruction, or none that
        can be moved.
        """
        mover, around = self._mover, self._functions.around(address)
        entry = around is not None and around[0] == address
        place = address
        code = self._code(address, around[1] if around else address + LONGEST)
        if entry:
            landing = mover.landing(code)
            place, code = address + landing, code[landing:]
        if around is None:
            why = "the end of its function is unknown"
        elif not entry and not self._is_boundary(*around, address):
            raise UsageError(
                self._image.path,
                f"{address:#x} is not at an instruction boundary",
                "see `objdump -d`",
            )
        elif entry and place in self._pads and (until is None or until >= place + mover.jump_size):
            return Chosen(place, code, Way.PAD, mover.jump_size, "")
        elif not optimize:
            why = "--no-optimize"
        else:
            why = self._against(place, code, around, entry=entry, until=until)
        if not why:
            return Chosen(place, code, Way.JUMP, mover.jump_size, "")
        try:
            mover.move(code, place, place, 1)
        except Immovable as error:
            raise UsageError(
                self._image.path, f"no probe at {address:#x}: {error}", "probe another address"
            ) from None
        return Chosen(place, code, Way.TRAP, len(mover.trap), why)

    def moved(self, chosen: Chosen, to: int, needed: int = 0) -> Moved:
        """The displaced instructions at ``to``, or those of its first bytes that are ``needed``.
        Raises UsageError if a target is out of range."""
        try:
            return self._mover.move(chosen.code, chosen.address, to, needed or chosen.needed)
        except Immovable as error:
            raise UsageError(self._image.path, f"no probe: {error}") from None

    def span(self, chosen: Chosen) -> tuple[int, int]:
        """Link addresses from which and up to which instructions run elsewhere."""
        return chosen.address, chosen.address + self.moved(chosen, chosen.address).size

    def _against(
        self, place: int, code: bytes, around: tuple[int, int], *, entry: bool, until: int | None
    ) -> str:
        """What speaks against a jump, a clause; empty for nothing."""
        try:
            moved = self._mover.move(code, place, place, self._mover.jump_size)
        except Immovable as error:
            return str(error)
        end = place + moved.size
        if end > around[1]:
            return "the function is too short"
        if until is not None and until < end:
            return "another probe is too close"
        if self._mover.signing(code):
            return "it begins with an instruction that must not move"
        if moved.size == self._arch.align:
            return ""  # one instruction of a fixed size
        if entry and not self._functions.is_called(around[0]):
            return "it is part of a function and may be entered anywhere"
        if not entry and self._has_landings:
            return "an exception landing pad may lie within the jump"
        return self._branches(place, place + self._mover.jump_size, around)

    def _branches(self, place: int, end: int, around: tuple[int, int]) -> str:
        """Explain what may branch into [place, end); empty for nothing."""
        # One FDE may have all of the PLT: each of its entries has the same answer.
        whole = self._functions.whole(around[0]) or around
        if whole not in self._known:
            self._known[whole] = self._jumps(whole)
        against = self._known[whole]
        if against:
            return against
        low, high = np.array([place + 1]), np.array([end])
        if any(targets_in(far, low, high)[0] for far, _ in self._targets):
            return "a branch may target the displaced bytes"
        if any(targets_in(near, low, high)[0] for _, near in self._targets):
            # What is only a byte that looks like a branch is no reason.
            at = place - NEAR
            while at < end + NEAR:
                found = self._functions.around(at)
                read = found and self._instructions(*found)
                if found and (read is None or branched_into(read, place + 1, end)):
                    return "a branch may target the displaced bytes"
                if found is None and self._is_text(at) and not self._is_padding(at):
                    return "nearby code that cannot be disassembled may branch there"
                at = found[1] if found else at + 1
        return ""

    def _jumps(self, whole: tuple[int, int]) -> str:
        """Explain that a function, or what jumps lead on to within others, has a jump
        whose target is not known."""
        left, seen = [whole], set[tuple[int, int]]()
        while left:
            part = left.pop()
            seen.add(part)
            read = self._instructions(*part)
            if read is None:
                return "its function cannot be disassembled completely"
            if has_indirect_jump(read):
                return UNKNOWN
            for target in jumps_out(read, *part):
                if self._is_text(target) and is_thunk(self._behind(target)):
                    return UNKNOWN
                other = self._functions.whole(target)
                goes_on = other and (other[0] != target or not self._functions.is_called(target))
                if other and goes_on and other not in seen:
                    left.append(other)
            if len(seen) > MOST:
                return UNKNOWN
        return ""

    def _behind(self, address: int) -> list[Instruction]:
        """Some instructions from an address on, but not those of another function."""
        found = self._functions.around(address)
        end = min(address + THUNK, found[1] if found else address + THUNK)
        return disassemble(self._arch.name, self._code(address, end), address)

    @cached_property
    def _has_landings(self) -> bool:
        elf = self._image.elf
        return not elf.sections or elf.section(".gcc_except_table") is not None

    @cached_property
    def _targets(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Of each part of the text: where long and where short branches may go."""
        out = []
        for address, size in self._image.elf.text.tolist():
            code = np.frombuffer(self._code(address, address + size), np.uint8)
            out.append((long_targets(code, address), short_targets(code, address)))
        return out

    def _is_text(self, address: int) -> bool:
        return bool(self._offset(address) >= 0)

    def _is_padding(self, address: int) -> bool:
        """Between functions: NOPs and int3 have no operands that look like a short branch."""
        code = self._code(address, address + 2)
        return not len(code) or len(short_targets(np.frombuffer(code, np.uint8), address)) == 0

    def _offset(self, address: int) -> int:
        held = np.array([address & (1 << 64) - 1], np.uint64)
        return int(self._image.elf.offset_of(held, executable=True)[0])

    def _code(self, start: int, end: int) -> bytes:
        """Bytes of the text. Raises UsageError if there is none."""
        offset = self._offset(start)
        if offset < 0:
            raise UsageError(self._image.path, f"{start:#x} is not in an executable segment")
        return self._image.data[offset : offset + end - start].tobytes()

    def _instructions(self, start: int, end: int) -> list[Instruction] | None:
        """All of a function's; None where they cannot be read to its end."""
        found = disassemble(self._arch.name, self._code(start, end), start)
        return found if found and found[-1].address + found[-1].size >= end else None

    def _is_boundary(self, start: int, end: int, address: int) -> bool:
        code = self._code(start, min(end, address + LONGEST))
        found = disassemble(self._arch.name, code, start)
        return any(insn.address == address for insn in found) and not self._mover.joined(
            code[: address - start]
        )
