# SPDX-License-Identifier: MIT
"""Threads that walk up their stack while a tracer is taken out of their process.

An unwinder that has met return_to_handler looks for its unwind information, or reads that, and is
waited for. While an exception's clean-up code runs, no unwinder is on the stack: the next one finds
the return addresses as they are then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.process.callers import Callers, Unknown
from ftpatch.process.loaded import Loaded, loaded_images
from ftpatch.process.maps import read_spans
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.planned import Exported
from ftpatch.process.process_journal import Entry
from ftpatch.process.rewrite import Pause, when_stopped
from ftpatch.process.standing import frames_of, is_used, stack_words
from ftpatch.process.stop import World
from ftpatch.process.thread import Thread
from ftpatch.process.unwinders import EXPORTED, find_unwinders, walks_of

__all__ = ["Slot", "Walks", "late_slots", "lead", "put_leads", "put_slots", "put_slots_back"]

WORD: Final = 8
TOP: Final = (1 << 64) - 1
"""Addresses are below it."""
Slot = tuple[int, int, int]
"""Address, old and new contents."""


class Walks:
    """Finds threads that walk up their stack, by unwinders that ask the tracer that ``entry`` tells
    of."""

    def __init__(self, target: MemoryTarget, entry: Entry, loaded: Sequence[Loaded]) -> None:
        self._target = target
        self._entry = entry
        code = [span for one in loaded for span in walks_of(one)]
        code += [(low, high) for _, _, low, high in entry.areas]
        self._code = np.array(sorted(code), np.uint64).reshape(-1, 2)
        self._callers = Callers(entry.arch, target, loaded)

    @property
    def are_there(self) -> bool:
        """Test whether any unwinder has asked since the tracer came."""
        held = self._target.read(self._entry.asked, 4) if self._entry.asked else None
        return held is not None and any(held)

    def under_way(self, world: World, replaced: Mapping[int, int]) -> list[tuple[int, int]]:
        """Bounds of the stacks that threads walk up and on which return addresses are replaced: a
        walk over others meets nothing of the tracer's. ``replaced``: the true ones, by the places
        of those that the tracer replaced, or where a register has them, as Callers takes them."""
        spans = read_spans(self._target.process)
        places = np.array(sorted(replaced), np.uint64)
        out = []
        for thread in world.threads:
            words = np.frombuffer(stack_words(self._target, spans, thread.sp), np.uint64)
            # A handler may run on a stack of its own.
            handles = len(frames_of(self._entry.arch, world, self._target, thread)) > 0
            bounds = (0, TOP) if handles else (thread.sp, thread.sp + words.nbytes)
            low, high = np.searchsorted(places, np.array(bounds, np.uint64))
            if low < high and self._walks(words, thread, replaced, handles=handles):
                out.append(bounds)
        return out

    def _walks(
        self,
        words: NDArray[np.uint64],
        thread: Thread,
        replaced: Mapping[int, int],
        *,
        handles: bool,
    ) -> bool:
        if self._inside(np.array([thread.ip], np.uint64)).any():
            return True
        words = words & np.uint64(self._callers.address)
        rows = np.flatnonzero(self._inside(words) & (words != np.uint64(self._entry.returns)))
        start = thread.sp // WORD * WORD
        last = int(rows[-1]) * WORD + start if len(rows) else 0
        # What an unwinder has called may be traced: where it returns to is on the ret_stack.
        slots = np.array([*replaced], np.uint64)
        slots = slots[self._inside(np.array([*replaced.values()], np.uint64))]
        slots = slots[(slots >= start) & (slots < start + words.nbytes)]
        last = max(last, int(slots.max(initial=0)))
        if not last and not handles:
            return False
        try:
            for ip, place in self._callers.of(thread, replaced):
                if self._inside(np.array([ip - 1], np.uint64)).any():
                    return True
                if place > last and not handles:
                    return False
        except Unknown:
            return last > 0
        return False

    def _inside(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Test which addresses are in functions that walk, or in the tracer."""
        row = np.searchsorted(self._code[:, 0], addresses, "right").astype(np.intp) - 1
        return np.asarray((row >= 0) & (addresses < self._code[row, 1]))


def lead(target: MemoryTarget, entry: Entry, linker: tuple[int, int] | None, wait: float) -> None:
    """Let the slots and exports of ``entry`` lead to the tracer. ``linker``: bounds of the code
    that binds some of them yet, and in which no thread may be meanwhile. Raises InputError."""
    if linker is None:
        put_leads(target, entry.slots, entry.exports)
        return

    def attempt(world: World) -> bool:
        if is_used(entry.arch, world, target, [linker]):
            return False
        put_leads(target, entry.slots, entry.exports)
        return True

    if when_stopped(target, wait, attempt) is None:
        reason = f"a thread stayed in the dynamic linker for {wait:g} s"
        raise InputError(None, f"{target.name}: {reason}", "try again")


def late_slots(
    target: MemoryTarget, entry: Entry, linker: tuple[int, int] | None, wait: float
) -> tuple[list[Slot], Pause] | None:
    """Let the exports of ``entry`` say what they did; return the slots of unwinders that were bound
    by them, and the pause. ``linker``: bounds of the code that binds them, in which no thread may
    be meanwhile; None if one stays there. Raises InputError."""
    exports = [(one.address, one.old, one.new) for one in entry.exports]

    def attempt(world: World) -> bool:
        if linker is not None and is_used(entry.arch, world, target, [linker]):
            return False
        put_slots_back(target, exports)
        return True

    pause = when_stopped(target, wait, attempt)
    if pause is None:
        return None
    loaded, _ = loaded_images(target.process)
    found = [
        (slot.address, one.function, one.entry)
        for one in entry.exports
        for slot in find_unwinders(loaded, {EXPORTED: one.entry}).slots
        if slot.old == one.entry
    ]
    return found, pause


def put_leads(target: MemoryTarget, slots: Sequence[Slot], exports: Sequence[Exported]) -> None:
    """Let slots and exports lead to the tracer. Raises InputError."""
    put_slots(target, slots)
    put_slots(target, [(one.address, one.old, one.new) for one in exports])


def put_slots(target: MemoryTarget, slots: Sequence[Slot]) -> None:
    """Let slots lead to the tracer. Raises InputError."""
    for address, _, new in slots:
        target.write(address, new.to_bytes(WORD, "little"))


def put_slots_back(target: MemoryTarget, slots: Sequence[Slot]) -> list[Slot]:
    """Let slots lead where they did; return those that did not: a library may be gone. Raises
    InputError."""
    out = list[Slot]()
    for address, old, new in slots:
        if target.read(address, WORD) == new.to_bytes(WORD, "little"):
            target.write(address, old.to_bytes(WORD, "little"))
            out.append((address, old, new))
    return out
