# SPDX-License-Identifier: MIT
"""Sending a thread of a running process through an injected call.

The thread is stopped only to be turned to the call's code, and runs it on its own, traced by
nobody. That it is through is seen in memory, so that nothing depends on ftpatch from then on. The
thread may be on its last instructions there when that is seen, or in a signal handler that
interrupted them: the code stays until no thread is in it (standing.py). If no thread is in it, and
it is not through, a system call failed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from typing import Final

from ftpatch.arch import feature
from ftpatch.arch.injected_call import GoingOn, InjectedCall, Step
from ftpatch.errors import InputError
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.refusals import STOPS, NotStopped
from ftpatch.process.register_sets import is_guarded, vectors_of
from ftpatch.process.standing import is_used
from ftpatch.process.stop import one_stopped, stopped

__all__ = ["CallFailed", "injected_call_of", "send"]

POLL: Final = 0.00005
"""Seconds between two looks at the memory."""
LOOK: Final = 0.02
"""Seconds after which the threads are looked at; then after twice as many, and so on."""
REST: Final = 0.005
"""Seconds to let threads run on that could not be sent."""
WAIT: Final = 10.0
"""Seconds for a call, on a busy machine."""


class CallFailed(InputError):
    """A system call failed that was made in a process."""


def injected_call_of(arch: str) -> InjectedCall:
    """The injected calls of an architecture. Raises InputError if there are none."""
    found: InjectedCall = feature(arch, "injected_call")
    return found


def send(
    arch: str,
    target: MemoryTarget,
    at: int,
    steps: Sequence[Step],
    is_through: Callable[[], bool],
    *,
    within: Sequence[tuple[int, int]] = (),
    contents: Sequence[tuple[int, bytes]] = (),
) -> bytes:
    """Write the code of an injected call at an address, send a thread through it, and wait until
    ``is_through`` returns true; return the code. ``contents``: bytes to write before, by address;
    ``within``: bounds of other code that it calls.

    Raises CallFailed if the thread does not come through, InputError if the memory cannot be
    written.
    """
    code, begun, failed = b"", time.monotonic(), 0
    while not code:
        try:
            code = _sent(arch, target, at, steps, contents)
        except NotStopped:
            failed += 1
            if failed == STOPS:
                raise
        if not code and time.monotonic() - begun > WAIT:
            raise InputError(
                None,
                f"{target.name}: its threads never stopped without vectors wider than 128 bits",
                "try again",
            )
        if not code:
            time.sleep(REST)
    begun, look = time.monotonic(), LOOK
    while not is_through():
        spent = time.monotonic() - begun
        if spent > look:
            target.process.require_alive()
            spans = [(at, at + len(code)), *within]
            with stopped(target.process) as world:
                is_there = is_used(arch, world, target, spans)
            if is_through():
                break
            if not is_there or spent > WAIT:
                raise CallFailed(
                    None,
                    f"{target.name}: a system call made in it {'hangs' if is_there else 'failed'}",
                    "its memory may be limited (RLIMIT_AS, a cgroup)",
                )
            look = 2 * look + spent
        time.sleep(POLL)
    return code


def _sent(
    arch: str,
    target: MemoryTarget,
    at: int,
    steps: Sequence[Step],
    contents: Sequence[tuple[int, bytes]],
) -> bytes:
    """Send a thread through a call, and return the code; empty if it cannot be sent where it
    stands. Raises InputError."""
    call = injected_call_of(arch)
    with one_stopped(target.process) as world:
        thread = world.threads[0]  # more may have stopped
        if thread.group_stop:
            name = signal.Signals(thread.group_stop).name
            raise InputError(None, f"{target.name}: it is stopped ({name})", "let it go on first")
        if is_guarded(world, thread):
            hint = "trace a copy of the file instead"
            raise InputError(None, f"{target.name}: it has a guarded control stack", hint)
        world.deliver(thread)  # else its handler would run in the middle of the call
        vectors = vectors_of(world, thread)
        if vectors is None:
            return b""
        for address, data in contents:
            target.write(address, data)
        registers, ip = thread.resumed, thread.state.ip
        going_on = GoingOn(registers=registers, vectors=vectors, mask=world.mask_of(thread))
        code = call.make(steps) + call.tail(going_on)
        target.write(at, code)
        registers = registers.copy()
        registers[ip] = at
        thread.leave(registers, blocks=True)
    return code
