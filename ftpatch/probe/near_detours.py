# SPDX-License-Identifier: MIT
"""Detours of one image of a process, in memory near it.

    | entry: ftrace_caller | entry: ftrace_regs_caller | detour | detour | ...

The entries are there only for libraries, from which the runtime may be out of a call's reach:
jumps, or addresses, as the architecture has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ftpatch.arch.detour import detour_of
from ftpatch.arch.move import Immovable
from ftpatch.core.changes import Changes
from ftpatch.errors import UsageError
from ftpatch.inject.probe_methods import PAD, displaced
from ftpatch.probe.found import Found
from ftpatch.probe.targets import Target
from ftpatch.process.memory_target import in_memory

__all__ = ["Made", "NearDetours"]

ALIGN: Final = 16
"""Alignment of detours (bytes)."""


@dataclass(frozen=True)
class Made:
    """Code for an area, and the Changes to memory that lead there."""

    code: bytes
    changes: Changes


class NearDetours:
    """The detours of a ``target``, ``size`` bytes, of which the first has the number ``first``;
    ``is_far``: the runtime may be out of reach. Raises UsageError for what cannot be moved."""

    def __init__(self, target: Target, first: int, *, is_far: bool) -> None:
        self.target = target
        near, self._first = detour_of(target.arch.name), first
        self._starts = list[int]()
        self._far = near.far if is_far else None
        self._detour = self._far or near
        end = 2 * len(self._far.entry(0)) if self._far else 0
        for one in target.found:
            self._starts.append(end + -end % ALIGN)
            chosen = one.location.chosen
            moved = len(target.methods.moved(chosen, chosen.address).code)
            end = self._starts[-1] + self._detour.size + moved
        self.size = end

    def make(self, at: int, callers: tuple[int, int]) -> Made:
        """Make them for an address; ``callers``: ftrace_caller and ftrace_regs_caller in memory.
        Raises UsageError where something is out of reach."""
        code = bytearray(self.size)
        if self._far:
            entries = [self._far.entry(to) for to in callers]
            code[: len(b"".join(entries))] = b"".join(entries)
            callers = at, at + len(entries[0])
        changes = []
        for number, (one, start) in enumerate(zip(self.target.found, self._starts, strict=True)):
            part = self._one(one, at + start, self._first + number, callers)
            code[start : start + len(part)] = part
            changes.append(self._jump(one, at + start))
        return Made(bytes(code), in_memory(Changes.concat(changes), self.target.loaded))

    def places(self, at: int) -> dict[int, int]:
        """The address of each detour by its number, if they are made for an address."""
        return {self._first + row: at + start for row, start in enumerate(self._starts)}

    def _one(self, found: Found, at: int, number: int, callers: tuple[int, int]) -> bytes:
        target, chosen = self.target, found.location.chosen
        entry_only = target.functions.is_entry(found.location.ip) or chosen.method is PAD
        second = target.functions.marked(chosen.address) - chosen.address
        before = self._detour.make(at + second, number, callers[0 if entry_only else 1])
        behind = at + len(before) - target.loaded.bias
        return before + target.methods.moved(chosen, behind).code

    def _jump(self, found: Found, at: int) -> Changes:
        target, chosen = self.target, found.location.chosen
        try:
            new = chosen.method.code(target.mover, chosen.address, at - target.loaded.bias)
        except Immovable as error:
            raise UsageError(target.loaded.path, f"no probe: {error}") from None
        return displaced(target.functions.image, chosen, new)
