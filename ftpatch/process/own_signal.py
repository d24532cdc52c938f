# SPDX-License-Identifier: MIT
"""The signal of traps, taken over from a running program and given back to it.

    1. its system calls about signals are led to the runtime, which passes them on
    2. all threads stopped, none in the runtime nor on its way to such a call:
       one thread alone makes the runtime install its handler; no other blocks the signal any more
    3. traps are written: ``rewrite``

and back, after the traps are gone and no thread is about to handle one. What the program asked for
in between is in struct signals (stubs/runtime/system_calls.h): its action, and which threads block
the signal. They are found there by whoever undoes it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature
from ftpatch.arch.injected_call import Done, Function, GoingOn, Step
from ftpatch.arch.led_call import LedCall
from ftpatch.arch.thread_state import RESTARTS
from ftpatch.errors import InputError
from ftpatch.layout import offset_of, structure
from ftpatch.process.alone import block, run, send_signal, step
from ftpatch.process.bring_in import TOKEN
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.planned import Signals
from ftpatch.process.process import read_status, threads_of
from ftpatch.process.process_journal import Entry
from ftpatch.process.register_sets import thread_pointer_of, vectors_of
from ftpatch.process.rewrite import Pause, when_stopped
from ftpatch.process.send import injected_call_of
from ftpatch.process.standing import Unwound, frames_of, within
from ftpatch.process.stop import World
from ftpatch.process.thread import Thread

__all__ = ["give_back_signal", "is_taken", "take_signal"]

OURS: Final = int(signal.SIGILL)
BIT: Final = 1 << OURS - 1
"""Its bit in a mask of signals."""
BLOCKED, PENDING = 1, 2
"""IS_BLOCKED and IS_PENDING of stubs/runtime/hooks.h."""
TAKEN, RELEASED = 11, 12
"""Values of the word that tells that a call is through."""
SETTLING: Final = 0.05
"""Seconds of a stop to let threads run on, one at a time."""
WORD: Final = 8
LOW: Final = 0xFFFF_FFFF


def take_signal(
    target: MemoryTarget, entry: Entry, plan: Signals, unwound: Unwound, wait: float
) -> Pause:
    """Take the signal over, once its calls are led. Raises InputError; then the journal tells of
    what is led."""
    taking = _Taking(target, entry, plan, unwound)
    pause = when_stopped(target, wait, taking.attempt)
    if pause is None:
        raise InputError(None, f"{target.name}: {taking.why} for {wait:g} s", "try again")
    return pause


def give_back_signal(
    target: MemoryTarget, entry: Entry, unwound: Unwound, wait: float
) -> Pause | None:
    """Give the signal back, when its traps are gone. None if a thread was in the runtime, or about
    to handle a trap, for ``wait`` seconds. Raises InputError."""
    until = time.monotonic() + wait / 2
    returning = _Returning(target, entry, unwound)

    def attempt(world: World) -> bool:
        # A handler that runs forever may only have what looks like a signal's frame.
        return returning.attempt(world, patient=time.monotonic() < until)

    return when_stopped(target, wait, attempt)


def is_taken(target: MemoryTarget, entry: Entry) -> bool:
    """Test whether the signal is the runtime's."""
    held = target.read(entry.signals, WORD) if entry.signals else None
    return held is not None and any(held)


def _pending(thread: Thread, name: str) -> bool:
    return bool(int(read_status(thread.place).get(name, "0"), 16) & BIT)


@dataclass(frozen=True)
class _Seen:
    """What is seen of a stopped thread: the ``addresses`` where it goes on, now and after its
    signal handlers; the signals that it blocks (``mask``), and those ``saved`` in signal frames;
    whether a signal of ours is about to be handled."""

    addresses: NDArray[np.uint64]
    mask: int
    saved: NDArray[np.uint64]
    raised: bool

    def is_in(self, bounds: NDArray[np.uint64]) -> bool:
        """Test whether it is in any of these, uint64[n, 2] in ascending order."""
        return bool(_is_in(self.addresses, bounds).any())

    @property
    def handles(self) -> bool:
        """Test whether it is in a signal handler, or may be."""
        return len(self.saved) > 0


class _Threads:
    """The threads of a stopped process. One that is in the way runs on alone until it is not: while
    many are busy, there may never be a moment without any."""

    def __init__(
        self,
        target: MemoryTarget,
        entry: Entry,
        world: World,
        bounds: NDArray[np.uint64],
        unwound: Unwound,
    ) -> None:
        self._target, self._entry, self._world = target, entry, world
        self._bounds, self._unwound = bounds, unwound
        self._numbers = set(threads_of(target.process.place))
        self.seen = {thread.tid: self._look(thread) for thread in world.threads}

    def settle(self, is_in_the_way: Callable[[Thread, _Seen], bool]) -> bool:
        """Let those run that are in the way; whether none is any more, and none is new."""
        until = time.monotonic() + SETTLING
        while rows := [
            one for one in self._world.threads if is_in_the_way(one, self.seen[one.tid])
        ]:
            if time.monotonic() > until:
                return False
            for thread in rows:
                step(self._world, thread)
                if thread in self._world.threads:
                    self.seen[thread.tid] = self._look(thread)
        return bool(self._world.threads) and self._numbers.issuperset(
            threads_of(self._target.process.place)
        )

    def _look(self, thread: Thread) -> _Seen:
        frames = frames_of(self._entry.arch, self._world, self._target, thread)
        frames = frames.take(~within(frames.back, _areas(self._entry)))
        mask = self._world.mask_of(thread)
        masks = frames.mask | np.uint64(mask)
        if (masks & np.uint64(BIT)).any() or _is_in(frames.ip, self._bounds).any():
            frames = frames.take(~self._unwound.are_dead(thread, frames))
        return _Seen(
            addresses=np.append(frames.ip, np.uint64(thread.ip)),
            mask=mask,
            saved=frames.mask,
            raised=_pending(thread, "SigPnd"),
        )


@dataclass
class _Alone:
    """A call of a function of the runtime, made by one thread of a stopped process."""

    target: MemoryTarget
    entry: Entry

    def call(
        self,
        world: World,
        thread: Thread,
        function: int,
        registers: np.void,
        mask: int,
        number: int,
    ) -> None:
        """Make the call, and go on with these registers, and these signals blocked. Raises
        InputError."""
        start, size = self.entry.areas[0][:2]
        at, words = start + TOKEN, self.entry.words
        call = injected_call_of(self.entry.arch)
        stack = start + size - 16 * TOKEN
        going_on = GoingOn(registers=registers, vectors=b"", mask=mask)
        steps: list[Step] = [Function(function, (), stack), Done(words, number)]
        code = call.make(steps) + call.tail(going_on)
        self.target.write(words, bytes(WORD))
        self.target.write(at, code)
        away = registers.copy()
        away[thread.state.ip] = at
        value = number.to_bytes(WORD, "little")
        run(world, thread, away, lambda: self.target.read(words, WORD) == value)


def _bounds(spans: Iterable[tuple[int, int]]) -> NDArray[np.uint64]:
    return np.array(sorted(spans), np.uint64).reshape(-1, 2)


def _is_in(addresses: NDArray[np.uint64], bounds: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Test which addresses are in any of these, uint64[n, 2] in ascending order."""
    row = np.searchsorted(bounds[:, 0], addresses, "right").astype(np.intp) - 1
    found: NDArray[np.bool_] = (row >= 0) & (addresses < bounds[row, 1])
    return found


def _areas(entry: Entry) -> list[tuple[int, int]]:
    return [(start, start + size) for start, size, _, _ in entry.areas]


def _runner(world: World) -> int:
    """The row of a thread that can be sent through a call; -1 for none."""
    for row, thread in enumerate(world.threads):
        if not thread.is_signalled and vectors_of(world, thread) is not None:
            return row
    return -1


class _Taking:
    """Attempts to take the signal over; ``why`` the last one failed."""

    def __init__(self, target: MemoryTarget, entry: Entry, plan: Signals, unwound: Unwound) -> None:
        self._target, self._entry, self._plan, self._unwound = target, entry, plan, unwound
        self._led: LedCall = feature(entry.arch, "led_call")
        # One that stands at the jump has yet to take it.
        spans = [(low + 1, high + 1) for low, high in plan.spans]
        self._bounds = _bounds([*spans, *_areas(entry)])
        self.why = ""

    def attempt(self, world: World) -> bool:
        target, name = self._target, signal.Signals(OURS).name
        self.why = "it was stopped by a signal"
        if any(thread.group_stop for thread in world.threads):
            return False
        self.why = f"a {name} was pending"
        if _pending(world.threads[0], "ShdPnd"):
            return False
        threads = _Threads(target, self._entry, world, self._bounds, self._unwound)
        if not threads.settle(self._is_in_the_way):
            return False
        masks = [threads.seen[thread.tid].mask for thread in world.threads]
        self.why = "a thread was about to handle a signal in a call that blocks others"
        leaving = [self._gone_on(*one) for one in zip(world.threads, masks, strict=True)]
        runner = _runner(world)
        if runner < 0 or any(
            to is not None and thread.is_signalled
            for to, thread in zip(leaving, world.threads, strict=True)
        ):
            return False
        self._tell(world, masks)
        one, to = world.threads[runner], leaving[runner]
        registers = one.resumed if to is None else to
        alone = _Alone(target, self._entry)
        alone.call(world, one, self._plan.take, registers, masks[runner] & ~BIT, TAKEN)
        for row, (thread, mask) in enumerate(zip(world.threads, masks, strict=True)):
            if row == runner:
                continue
            if mask & BIT:
                block(world, thread, mask & ~BIT)
            if (went := leaving[row]) is not None:
                thread.leave(went)
        return True

    def _is_in_the_way(self, thread: Thread, seen: _Seen) -> bool:
        name = signal.Signals(OURS).name
        blocks = (seen.handles and seen.mask & BIT) or (seen.saved & np.uint64(BIT)).any()
        if blocks:
            self.why = f"a thread was in a signal handler that blocks {name}"
        elif seen.raised:
            self.why = f"a {name} was pending"
        elif seen.is_in(self._bounds):
            self.why = "a thread was about to ask for signals"
        else:
            return False
        return True

    def _tell(self, world: World, masks: list[int]) -> None:
        """Tell the runtime who blocks the signal. Raises InputError."""
        asker = structure("asker", self._entry.arch)
        table = np.zeros(structure("signals", self._entry.arch)["askers"].shape, asker)
        blocked = [one for one, mask in zip(world.threads, masks, strict=True) if mask & BIT]
        if len(blocked) >= len(table):
            name = signal.Signals(OURS).name
            raise InputError(None, f"{self._target.name}: {len(blocked)} threads block {name}")
        for thread in blocked:
            tp = thread_pointer_of(world, thread) | 1
            at = (tp >> 12 ^ tp >> 6) & LOW
            while table[at % len(table)]["tp"] not in (0, tp):
                at += 1
            table[at % len(table)]["tp"], table[at % len(table)]["blocked"] = tp, BLOCKED
        place = self._plan.state + offset_of("signals", "askers", self._entry.arch)
        self._target.write(place, table.tobytes())

    def _gone_on(self, thread: Thread, mask: int) -> np.void | None:
        """Registers with which a thread that waits in a call asks the runtime for it; None for one
        that may go on waiting."""
        waiting = self._led.waiting.get(thread.system_call)
        if waiting is None or thread.result not in RESTARTS:
            return None
        pointer = int(thread.registers[self._led.arguments[waiting.argument]])
        if waiting.inside and pointer:
            pointer = int.from_bytes(self._target.read(pointer, WORD) or b"", "little")
        held = self._target.read(pointer, WORD) if pointer else None
        if held is None or not (int.from_bytes(held, "little") | mask) & BIT:
            return None
        gate = self._plan.gates.get(thread.ip - thread.state.size)
        if gate is None:
            reason = f"a thread waits with {signal.Signals(OURS).name} blocked"
            where = f"at {thread.ip:#x}, in a system call that cannot be led elsewhere"
            raise InputError(None, f"{self._target.name}: {reason} {where}", "try again")
        registers = thread.resumed
        registers[thread.state.ip] = gate
        return registers


class _Returning:
    """Attempts to give the signal back."""

    def __init__(self, target: MemoryTarget, entry: Entry, unwound: Unwound) -> None:
        self._target, self._entry, self._unwound = target, entry, unwound
        self._led: LedCall = feature(entry.arch, "led_call")
        self._layout = structure("signals", entry.arch)

    def attempt(self, world: World, *, patient: bool) -> bool:
        target, entry = self._target, self._entry
        bounds = _bounds(_areas(entry))
        threads = _Threads(target, entry, world, bounds, self._unwound)
        # A trap's is not blocked.
        if not threads.settle(
            lambda _, seen: seen.is_in(bounds) or (seen.raised and not seen.mask & BIT)
        ):
            return False
        held = target.read(entry.signals, self._layout.itemsize)
        is_open = not all(threads.seen[thread.tid].mask & BIT for thread in world.threads)
        if held is None or (is_open and _pending(world.threads[0], "ShdPnd")):
            return False
        table = np.frombuffer(held, self._layout)[0]["askers"]
        rows = {int(one["tp"]): row for row, one in enumerate(table) if one["tp"]}
        own = [rows.get(thread_pointer_of(world, thread) | 1, -1) for thread in world.threads]
        flags = [int(table[row]["blocked"]) if row >= 0 else 0 for row in own]
        seen = [threads.seen[thread.tid] for thread in world.threads]
        if patient and any(one.handles and flag for one, flag in zip(seen, flags, strict=True)):
            return False
        runner = _runner(world)
        if runner < 0 or any(thread.group_stop for thread in world.threads):
            return False
        masks = [
            one.mask | (BIT if flag & BLOCKED else 0) for one, flag in zip(seen, flags, strict=True)
        ]
        for thread, mask, row, flag in zip(world.threads, masks, own, flags, strict=True):
            if flag & BLOCKED:
                block(world, thread, mask)
            if flag & PENDING:  # while it is blocked: the one that runs first may open it
                send_signal(thread, OURS)
                self._forget(row, flag & ~PENDING)
        self._call_back(world)
        one = world.threads[runner]
        registers = one.resumed
        self._own_arguments(registers, table)
        alone = _Alone(target, entry)
        alone.call(world, one, entry.release, registers, masks[runner], RELEASED)
        return True

    def _call_back(self, world: World) -> None:
        """Let threads wait with the masks of the program's, not with those of ours."""
        held = self._target.read(self._entry.signals, self._layout.itemsize) or b""
        table = np.frombuffer(held, self._layout)[0]["askers"]
        for thread in world.threads:
            registers = thread.registers.copy()
            if self._own_arguments(registers, table):
                thread.ask_again(registers)

    def _own_arguments(self, registers: np.void, table: NDArray[np.void]) -> bool:
        """Put the program's arguments in place of masks of ours; whether there were any."""
        asker, lent = (structure(name, self._entry.arch) for name in ("asker", "lent_mask"))
        begin = self._entry.signals + offset_of("signals", "askers", self._entry.arch)
        first, any_ = offset_of("asker", "masks", self._entry.arch), False
        for name in self._led.arguments:
            row, within = divmod(int(registers[name]) - begin, asker.itemsize)
            if not 0 <= row < len(table) or within < first:
                continue
            registers[name] = table[row]["masks"][(within - first) // lent.itemsize]["from"]
            any_ = True
        return any_

    def _forget(self, row: int, flags: int) -> None:
        """Store a thread's flags without what it was told of."""
        asker = structure("asker", self._entry.arch).itemsize
        place = self._entry.signals + offset_of("signals", "askers", self._entry.arch)
        place += row * asker + offset_of("asker", "blocked", self._entry.arch)
        self._target.write(place, flags.to_bytes(4, "little"))
