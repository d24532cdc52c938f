# SPDX-License-Identifier: MIT
"""Pending calls on machines that hold return addresses in a register: a function stores its own
where it likes, or nowhere.

    | ... return_to_handler ... | ... return_to_handler ... | ...         a thread's stack
    ^ sp, or a deeper slot       ^ slot of a frame           ^ slot of the frame before

What a frame waits for is between its slot, the stack pointer with which the function was entered,
and the next lower place that is known to be another's. Before it is stored, and after it is loaded
again, it is in a register of the thread, or in what a signal frame holds of that.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.thread_state import thread_state_of
from ftpatch.core.changes import Changes
from ftpatch.layout import offset_of
from ftpatch.process.maps import read_spans
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.pending import PutBack, Runtime
from ftpatch.process.register_sets import set_now, thread_pointer_of
from ftpatch.process.stop import World
from ftpatch.process.thread import Thread

__all__ = ["put_back_linked", "signs"]

WORD: Final = 8
ADDRESS: Final = (1 << 48) - 1
"""Bits of an address; a signature (PAC) is in those above."""
DEEP: Final = 1 << 20
"""Bytes of a stack to search where nothing tells how far it reaches down."""
FUNCTION: Final = 1024
"""Bytes from a site on, at most, in which its function signs, if it does."""
PAGE: Final = 4096
NEAR: Final = 64 << 10
"""Bytes of another stack, on which a signal is handled."""


@dataclass(frozen=True)
class _Frame:
    """A pending call: the address of its struct frame (``place``), its ``slot``, and the return
    address that was replaced."""

    place: int
    slot: int
    ret: int


class _Stacks:
    """The stacks of a stopped process, and whose parts of them are whose."""

    def __init__(self, target: MemoryTarget, returns: int, bounds: Sequence[int]) -> None:
        self._target, self._returns = target, returns
        self._spans = read_spans(target.process)
        self._bounds = sorted(bounds)

    def span(self, address: int) -> tuple[int, int]:
        """The mapping in which a stack pointer is; it may be at its end."""
        row = bisect.bisect_left(self._spans, (address, 0)) - 1
        if row < 0 or address > self._spans[row][1]:
            return 0, 0
        return self._spans[row]

    def below(self, slot: int) -> int:
        """The lowest address below a slot that is no other call's, and no other thread's."""
        row = bisect.bisect_left(self._bounds, slot) - 1
        start = max(self.span(slot)[0], slot - DEEP)
        return max(start, self._bounds[row]) if row >= 0 else start

    def search(self, low: int, high: int) -> tuple[list[int], bool]:
        """Addresses of the words that are the address of return_to_handler, and whether others are
        that with a signature."""
        low = -(-low // WORD) * WORD
        held = self._target.read(low, high - low) if high > low else b""
        words = np.frombuffer(held or b"", np.uint64, len(held or b"") // WORD)
        exact = words == np.uint64(self._returns)
        signed = (words & np.uint64(ADDRESS)) == np.uint64(self._returns & ADDRESS)
        rows = np.flatnonzero(exact).tolist()
        return [low + WORD * row for row in rows], bool((signed & ~exact).any())

    def write(self, addresses: Sequence[int], value: int) -> None:
        """Write a word to each."""
        for address in addresses:
            self._target.write(address, value.to_bytes(WORD, "little"))


def signs(arch: str, target: MemoryTarget, changes: Changes) -> bool:
    """Test whether any function that is traced may sign its return address. What is in memory does
    not tell: a signature has few bits, and is zero for one address in 128."""
    words = thread_state_of(arch).signing
    for address in np.unique(changes.offset).tolist() if words else ():
        held = target.read(address, FUNCTION) or target.read(address, -address % PAGE) or b""
        if np.isin(np.frombuffer(held, np.uint32, len(held) // 4), words).any():
            return True
    return False


def put_back_linked(
    arch: str,
    world: World,
    target: MemoryTarget,
    runtime: Runtime,
    returns: int,
    kept: Sequence[tuple[int, int]] = (),
    *,
    signed: bool,
) -> PutBack:
    """Put all return addresses back that were replaced by ``returns``, as ``pending.put_back`` does
    where they are on the stack. What was left there by calls that are over is replaced as well:
    nothing reads it. So it cannot be told here whether a stack was copied. ``signed``: none is,
    while any call of a thread is pending."""
    pending = (runtime.frames["slot"] != 0) & (runtime.frames["ret"] != returns)
    for low, high in kept:
        pending &= (runtime.frames["slot"] < low) | (runtime.frames["slot"] >= high)
    if not pending.any():
        return PutBack()
    slots = runtime.frames["slot"][pending].tolist()
    threads = {thread_pointer_of(world, thread): thread for thread in world.threads}
    if signed and np.isin(runtime.owners[pending], np.array([*threads], np.uint64)).any():
        return PutBack(signed=True)
    stacks = _Stacks(target, returns, [*slots, *(thread.sp for thread in world.threads)])
    where, done = offset_of("frame", "ret", arch), 0
    for owner in np.unique(runtime.owners[pending]).tolist():
        thread = threads.get(owner)  # none: it has ended, or changed its thread pointer
        rows = np.flatnonzero(pending & (runtime.owners == owner))
        frames = _frames(runtime, rows[np.argsort(runtime.places[rows], kind="stable")])
        back = _put_back(world, stacks, thread, frames, returns) if thread is not None else []
        stacks.write([one.place + where for one in back], returns)
        done += len(back)
        signed |= thread is not None and len(back) < len(frames)
    return PutBack(done=done, moved=True, signed=signed)


def _frames(runtime: Runtime, rows: NDArray[np.intp]) -> list[_Frame]:
    columns = (runtime.places, runtime.frames["slot"], runtime.frames["ret"])
    return [
        _Frame(*one) for one in zip(*(column[rows].tolist() for column in columns), strict=True)
    ]


def _put_back(
    world: World, stacks: _Stacks, thread: Thread, frames: Sequence[_Frame], returns: int
) -> list[_Frame]:
    """Do so for the calls of one thread, the first one first; return those that it was done for.
    None is, if what is in a register is signed: it belongs to one that cannot be told."""
    registers, latest = thread.registers.copy(), frames[-1]
    names = [name for name in registers.dtype.names or () if name != thread.state.ip]
    held = {name: int(registers[name]) for name in names}
    if any(value != returns and value & ADDRESS == returns & ADDRESS for value in held.values()):
        return []
    out = []
    for one in frames:
        found, signed = stacks.search(stacks.below(one.slot), one.slot)
        if not signed:
            stacks.write(found, one.ret)
            out.append(one)
    # A signal is handled on another stack, with the registers that it found above its frames.
    here = stacks.span(thread.sp)
    away = [one for one in frames if stacks.span(one.slot) != here]
    if away:
        high = min(here[1], thread.sp + NEAR)
        found, signed = stacks.search(thread.sp, high)
        if signed:
            return [one for one in out if one is not away[-1]]
        stacks.write(found, away[-1].ret)
    if returns in held.values():
        for name in names:
            if held[name] == returns:
                registers[name] = latest.ret
        set_now(world, thread, registers)
    return out
