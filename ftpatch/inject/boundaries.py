# SPDX-License-Identifier: MIT
"""Instruction boundaries: where instructions begin, and whether anything may branch between them.

A jump is safe only if nothing can branch into the middle of what it replaces. So the function must
be decodable to its end and have no jump with an unknown target, and nothing in the text may branch
there, at whatever byte it begins.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch, supports
from ftpatch.arch.branches import Branches, branched_into, branches_of, targets_in
from ftpatch.arch.disassemble import Instruction, disassemble
from ftpatch.arch.move import Mover
from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.names.functions import Functions

__all__ = ["MAX_INSTRUCTION", "Boundaries"]

MAX_INSTRUCTION = 16
"""Bytes."""
MAX_THUNK = 32
"""Maximum size of a thunk that jumps through a register (bytes)."""
MAX_PARTS = 16
"""Maximum parts of one function to examine."""
UNKNOWN = "its function has an indirect jump with unknown targets"


class Boundaries:
    """The code of one image. Without ``tables`` of jumps, each indirect one is a tail call, as
    optimized kprobes take it (Linux kernel commit 833fd800bf56 ("x86/retpoline,kprobes: Skip
    optprobe check for indirect jumps with retpolines and IBT") (in v6.5))."""

    def __init__(
        self,
        image: Image,
        arch: Arch,
        mover: Mover,
        functions: Functions,
        *,
        tables: bool = True,
    ) -> None:
        self._image, self._arch, self._mover = image, arch, mover
        self._tables = tables
        self._functions = functions
        self._known: dict[tuple[int, int], str] = {}
        # Many functions go on in the same parts: each of these is read once.
        self._parts: dict[tuple[int, int], tuple[str, list[tuple[int, int]]]] = {}

    def code(self, start: int, end: int) -> bytes:
        """Return bytes of the text. Raises UsageError if there are none."""
        offset = self._offset(start)
        if offset < 0:
            raise UsageError(self._image.path, f"{start:#x} is not in an executable segment")
        return self._image.data[offset : offset + end - start].tobytes()

    def following(self, start: int, size: int) -> bytes:
        """Return ``size`` bytes of the text, fewer if its segment ends before."""
        for address, held in self._image.elf.text.tolist():
            if address <= start < address + held:
                return self.code(start, min(start + size, address + held))
        return b""

    def is_boundary(self, start: int, end: int, address: int) -> bool:
        """Test whether an instruction of the function [start, end) begins at an address and may be
        separated from the one before."""
        if supports(self._arch.name, "branches") and (begins := self._branches.begins):
            return address in begins(self.code(start, end), self._functions.marked(start))
        code = self.code(start, min(end, address + MAX_INSTRUCTION))
        if self._mover.joined(code[: address - start]):
            return False
        if self._arch.word_size:
            return (address - start) % self._arch.word_size == 0
        found = disassemble(self._arch.name, code, start)
        return any(insn.address == address for insn in found)

    def require_boundary(self, start: int, end: int, address: int) -> None:
        """Raise UsageError if no instruction of the function [start, end) begins at an address, or
        one that is executed in place of another."""
        if not self.is_boundary(start, end, address):
            reason = f"{address:#x} is not at an instruction boundary"
            raise UsageError(self._image.path, reason, "see `objdump -d`")
        low, high = np.array([_signed(address)]), np.array([_signed(address) + 1])
        if any(targets_in(known, low, high)[0] for known in self._executed):
            reason = f"{address:#x} may be executed by an instruction elsewhere"
            raise UsageError(self._image.path, reason, "probe another address")

    @cached_property
    def has_landings(self) -> bool:
        """Test whether the image's functions may have exception landing pads."""
        elf = self._image.elf
        return not elf.sections or elf.section(".gcc_except_table") is not None

    def against_jump(self, place: int, end: int, around: tuple[int, int]) -> str:
        """Explain in a clause what may branch into [place, end), past its first byte, in the
        function ``around``; empty if nothing does."""
        if not supports(self._arch.name, "branches"):
            return f"it is not known how {self._arch.name} branches"
        # One FDE may cover the whole PLT; the answer is the same for all its entries.
        whole = self._functions.whole(around[0]) or around
        if whole not in self._known:
            self._known[whole] = self._jumps(whole)
        against = self._known[whole]
        if against:
            return against
        low, high = np.array([_signed(place + 1)]), np.array([_signed(end)])
        if any(targets_in(far, low, high)[0] for far, _ in self._targets):
            return "a branch may target the displaced bytes"
        if any(targets_in(near, low, high)[0] for _, near in self._targets):
            # A byte that merely looks like a branch does not count.
            around_it = self._branches.near
            at = place - around_it
            while at < end + around_it:
                found = self._functions.around(at)
                read = found and self._instructions(*found)
                if found and (read is None or branched_into(read, place + 1, end)):
                    return "a branch may target the displaced bytes"
                if found is None and self._is_text(at) and not self._is_padding(at):
                    return "nearby code that cannot be disassembled may branch there"
                at = found[1] if found else at + 1
        return ""

    def _jumps(self, whole: tuple[int, int]) -> str:
        """Explain that a function, or a part of it placed elsewhere, has a jump with an unknown
        target."""
        left, seen = [whole], set[tuple[int, int]]()
        while left:
            part = left.pop()
            seen.add(part)
            if part not in self._parts:
                self._parts[part] = self._part(*part)
            against, onward = self._parts[part]
            if against:
                return against
            left += [other for other in onward if other not in seen]
            if len(seen) > MAX_PARTS:
                return UNKNOWN
        return ""

    def _part(self, start: int, end: int) -> tuple[str, list[tuple[int, int]]]:
        """Explain the same of one part, and list the parts that it goes on in."""
        read = self._instructions(start, end)
        if read is None:
            return "its function cannot be disassembled completely", []
        if not self._tables:
            return "", []
        if self._branches.has_indirect_jump(read):
            return UNKNOWN, []
        onward = []
        for target in self._branches.jumps_out(read, start, end):
            if self._is_text(target) and self._branches.is_thunk(self._behind(target)):
                return UNKNOWN, []
            other = self._functions.whole(target)
            goes_on = other and (other[0] != target or not self._functions.is_called(target))
            if other and goes_on:
                onward.append(other)
        return "", onward

    def _behind(self, address: int) -> list[Instruction]:
        """Decode the next few instructions at an address, up to the end of its function."""
        found = self._functions.around(address)
        end = min(address + MAX_THUNK, found[1] if found else address + MAX_THUNK)
        marked = self._functions.marked(address)
        return disassemble(self._arch.name, self.code(address, end), marked)

    @cached_property
    def _branches(self) -> Branches:
        return branches_of(self._arch.name)

    @cached_property
    def _targets(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Collect possible targets of long and of short branches, per part of the text."""
        out = []
        for address, size in self._image.elf.text.tolist():
            code = np.frombuffer(self.code(address, address + size), np.uint8)
            known = self._branches
            at = _signed(address)
            out.append((known.long_targets(code, at), known.short_targets(code, at)))
        return out

    @cached_property
    def _executed(self) -> list[NDArray[np.int64]]:
        """Collect instructions that others may execute, per part of the text."""
        if not supports(self._arch.name, "branches") or self._branches.executed is None:
            return []
        return [
            self._branches.executed(
                np.frombuffer(self.code(address, address + size), np.uint8), _signed(address)
            )
            for address, size in self._image.elf.text.tolist()
        ]

    def _is_text(self, address: int) -> bool:
        return bool(self._offset(address) >= 0)

    def _is_padding(self, address: int) -> bool:
        """Test for padding between functions: NOPs and int3 have no operands that look like a short
        branch."""
        code = np.frombuffer(self.code(address, address + 2), np.uint8)
        return not len(code) or len(self._branches.short_targets(code, 0)) == 0

    def _offset(self, address: int) -> int:
        held = np.array([address & (1 << 64) - 1], np.uint64)
        return int(self._image.elf.offset_of(held, executable=True)[0])

    def _instructions(self, start: int, end: int) -> list[Instruction] | None:
        """Decode all instructions of a function; None if it cannot be decoded to its end."""
        if self._branches.read is not None:
            return self._branches.read(self.code(start, end), self._functions.marked(start))
        found = disassemble(self._arch.name, self.code(start, end), start)
        return found if found and found[-1].address + found[-1].size >= end else None


def _signed(address: int) -> int:
    """An address as columns of targets have it: a kernel's is negative."""
    return (address ^ 1 << 63) - (1 << 63)
