# SPDX-License-Identifier: MIT
"""One thread that runs while all others of its process are stopped, and stops again; what else is
done to it meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import numpy as np

from ftpatch.errors import InputError
from ftpatch.process.ptrace import (
    Ended,
    block_signals,
    go_on,
    interrupt,
    next_stop,
    set_mask,
    set_registers,
    signal_thread,
)
from ftpatch.process.refusals import not_stopped
from ftpatch.process.stop import World
from ftpatch.process.thread import Thread

__all__ = ["block", "run", "send_signal", "step"]

MOMENT: Final = 0.0001
"""Seconds for one thread to run on its own."""
POLL: Final = 0.0005
"""Seconds between two looks."""


def block(world: World, thread: Thread, mask: int) -> None:
    """Let a stopped thread block these signals, and no others. Raises InputError if it ends."""
    try:
        world.do(lambda: set_mask(thread.tid, mask))
    except ProcessLookupError:
        raise _ended(thread) from None


def send_signal(thread: Thread, number: int) -> None:
    """Send a signal to a stopped thread, unless it has ended."""
    with suppress(ProcessLookupError):
        signal_thread(thread.process.pid, thread.tid, number)


def step(world: World, thread: Thread) -> None:
    """Let one thread run for a moment; it is none of the world's threads any more if it ends, and
    may have made others. Raises InputError if it does not stop again."""

    def moment() -> None:
        go_on(thread.tid)
        time.sleep(MOMENT)
        _stop_again(world, thread, time.monotonic() + world.wait)

    try:
        world.do(moment)
    except (Ended, ProcessLookupError):
        world.threads.remove(thread)


def run(world: World, thread: Thread, registers: np.void, is_through: Callable[[], bool]) -> None:
    """Let one thread run from these registers on and with all signals blocked, until
    ``is_through`` returns true; it stops again wherever it is then. Raises InputError if it ends,
    or does not come through."""
    try:
        world.do(lambda: _run(world, thread, registers, is_through))
    except (Ended, ProcessLookupError):
        raise _ended(thread) from None


def _run(world: World, thread: Thread, registers: np.void, is_through: Callable[[], bool]) -> None:
    tid, until = thread.tid, time.monotonic() + world.wait
    registers = registers.copy()
    thread.state.apart(registers)
    set_registers(tid, registers.tobytes())
    block_signals(tid)  # second: we may be killed in between
    thread.leaving, thread.blocks = None, False
    go_on(tid)
    while not is_through() and time.monotonic() < until:
        if (found := next_stop(tid)) is not None:  # SIGSTOP, which cannot be blocked
            go_on(tid, 0 if found[0] else found[1])
        time.sleep(POLL)
    through = is_through()
    _stop_again(world, thread, until)
    if not through:
        raise InputError(None, f"{thread.process}: a call made in it does not return")


def _stop_again(world: World, thread: Thread, until: float) -> None:
    tid = thread.tid
    interrupt(tid)
    while (group_stop := world.come(tid)) is None:
        if time.monotonic() > until:
            raise not_stopped(thread.process, [tid], world.wait)
    thread.group_stop, thread.before = group_stop, ()
    thread.registers = world.set_up(tid)
    world.frames.pop(tid, None)


def _ended(thread: Thread) -> InputError:
    return InputError(None, f"{thread.process}: thread {thread.tid} has ended")
