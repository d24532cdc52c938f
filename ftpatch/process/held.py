# SPDX-License-Identifier: MIT
"""A process that has just started a program, held before anything of it runs, not even the dynamic
linker: its only thread is in a stop of ptrace(2), and the calling thread of ours traces it.

It makes system calls for us by code that ends in a wait of thirty seconds, in which it is stopped
and set back to where it was. If ftpatch is killed meanwhile, the wait ends by itself, and the
program starts.

    exec | from padding: mmap(first area) | from there: mprotect its data | the program
         ^ held                           ^ stopped in poll()             ^ let go
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from ftpatch.arch import feature
from ftpatch.arch.held_call import HeldCall
from ftpatch.arch.injected_call import Done, GoingOn, Step
from ftpatch.arch.thread_state import registers_in, thread_state_of
from ftpatch.errors import InputError
from ftpatch.process.areas import Area
from ftpatch.process.bring_in import first_steps, protecting
from ftpatch.process.maps import read_maps
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.page_ends import Padding, lend
from ftpatch.process.process import Process
from ftpatch.process.ptrace import (
    Ended,
    Stop,
    block_signals,
    get_mask,
    get_registers,
    go_on,
    interrupt,
    next_stop,
    set_mask,
    set_registers,
)
from ftpatch.process.send import CallFailed, injected_call_of
from ftpatch.process.stop import system_call_of

__all__ = ["Held"]

POLL: Final = 0.00005
"""Seconds between two looks."""
WAIT: Final = 25.0
"""Seconds for a call; the wait at its end is longer."""
WORD: Final = 8
AT_ENTRY: Final = 9


class Held:
    """The process. ``group_stop``: it is to be left in the stop of all of it; ``is_gone``: the
    program has begun, since a call took too long."""

    def __init__(self, process: Process, arch: str) -> None:
        """Raises Ended, and InputError for code of another kind than the machine's own."""
        self.process, self._arch = process, arch
        self._state = thread_state_of(arch)
        self._call = injected_call_of(arch)
        self._held: HeldCall = feature(arch, "held_call")
        self.group_stop = False
        self.is_gone = False
        try:
            held = get_registers(process.pid, self._state.layout.itemsize)
            self._mask = get_mask(process.pid)
        except ProcessLookupError:
            raise Ended from None
        if len(held) != self._state.layout.itemsize:
            raise InputError(None, f"{process}: runs 32-bit code")
        self._registers = registers_in(self._state.layout, held)
        self._state.apart(self._registers)  # exec does not return

    @property
    def ip(self) -> int:
        """The address at which it will go on."""
        return int(self._registers[self._state.ip])

    def map(self, target: MemoryTarget, area: Area, paddings: Sequence[Padding]) -> int:
        """Map, fill and protect an area that has room for CODE and STACK bytes; return where more
        code can be written to in it. Raises CallFailed, InputError and Ended."""
        words = area.end - 16 * WORD
        first = first_steps(self._call, area)
        address, old, _ = lend(
            target, paddings, self._call, [*first, Done(words, 1)], make=self._held.rest
        )
        try:
            self._make(target, address, first, (words, 1))
        finally:
            if not self.is_gone:
                target.write(address, old)
        for at, data in area.contents:
            target.write(at, data)
        at = area.start + 2 * WORD
        code = self._make(target, at, protecting(self._call, area), (words, 2))
        return at + (len(code) + 2 * WORD) // 16 * 16

    def _make(
        self, target: MemoryTarget, at: int, steps: Sequence[Step], done: tuple[int, int]
    ) -> bytes:
        """Make a call that stores a number at an address when it is through, and stop it."""
        going_on = GoingOn(registers=self._registers, vectors=b"", mask=self._mask)
        code = self._held.rest([*steps, Done(*done)]) + self._call.tail(going_on)
        target.write(at, code)
        layout, moved = self._state.layout, self._registers.copy()
        moved[self._state.ip] = at
        try:
            block_signals(self.process.pid)  # first: what comes between leaves it where it was
            set_registers(self.process.pid, moved.tobytes())
            go_on(self.process.pid)
            self._until_rest(at, at + len(code))
            self._stop()
            now = registers_in(layout, get_registers(self.process.pid, layout.itemsize))
            if not at <= int(now[self._state.ip]) < at + len(code):
                self.is_gone = True
                raise CallFailed(None, f"{target.name}: a system call made in it took too long")
            set_registers(self.process.pid, self._registers.tobytes())
            set_mask(self.process.pid, self._mask)
        except ProcessLookupError:
            raise Ended from None
        word = target.read(done[0], WORD)
        if word != done[1].to_bytes(WORD, "little"):
            raise CallFailed(
                None,
                f"{target.name}: a system call made in it failed",
                "its memory may be limited (RLIMIT_AS, a cgroup)",
            )
        return code

    def _until_rest(self, low: int, high: int) -> None:
        """Wait until the thread waits at the end of a call, or for WAIT seconds."""
        until = time.monotonic() + WAIT
        wanted = (self._held.resting.number, *self._held.resting.arguments)
        while time.monotonic() < until:
            found = next_stop(self.process.pid)
            if found is not None:  # SIGSTOP, which cannot be blocked
                go_on(self.process.pid, found[1] if not found[0] else 0)
            now = system_call_of(self.process.place)
            if now[: len(wanted)] == wanted and low <= now[-1] < high:
                return
            time.sleep(POLL)

    def _stop(self) -> None:
        tid = self.process.pid
        interrupt(tid)
        while True:
            found = next_stop(tid)
            if found is None:
                time.sleep(POLL)
                continue
            event, number = found
            if event == Stop.STOP:
                self.group_stop = number != signal.SIGTRAP
                return
            go_on(tid, 0 if event else number)

    def begin(self, steps: Sequence[Step], address: int) -> bytes:
        """The code that takes these steps, and goes on at an address."""
        return self._held.begin(steps, address)

    def start_at(self, target: MemoryTarget, address: int, *, linked: bool) -> None:
        """Let the program begin at another address than its entry point: the dynamic linker is told
        so (AT_ENTRY) if there is one. Raises InputError and Ended."""
        if linked:
            place = self._entry_place(target)
            target.write(place, address.to_bytes(WORD, "little"))
            return
        self._registers[self._state.ip] = address
        try:
            set_registers(self.process.pid, self._registers.tobytes())
        except ProcessLookupError:
            raise Ended from None

    def _entry_place(self, target: MemoryTarget) -> int:
        """Where AT_ENTRY's value is on the stack:

        sp: | argc | argv ... | NULL | envp ... | NULL | auxv ... | AT_NULL |
        """
        sp = int(self._registers[self._state.sp])
        end = next((one.end for one in read_maps(self.process) if one.start <= sp < one.end), sp)
        held = target.read(sp, (end - sp) // WORD * WORD)
        if held is not None and len(held) > WORD:
            words = np.frombuffer(held, np.uint64)
            at = 1 + int(words[0]) + 1
            ends = np.flatnonzero(words[at:] == 0)
            pairs = words[at + int(ends[0]) + 1 :] if len(ends) else words[:0]
            for row in range(0, len(pairs) - 1, 2):
                if pairs[row] == AT_ENTRY:
                    return sp + (len(words) - len(pairs) + row + 1) * WORD
                if not pairs[row]:
                    break
        raise InputError(None, f"{target.name}: the start of its stack cannot be read")
