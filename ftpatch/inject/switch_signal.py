# SPDX-License-Identifier: MIT
"""The signal by which a program's recording is switched, as stubs/runtime/switch.c takes it."""

from __future__ import annotations

import signal

from ftpatch.errors import UsageError

__all__ = ["switch_signal"]

LIBC = (32, 33, 34)
"""Signals that glibc and musl keep for themselves."""
LAST = int(signal.SIGRTMAX)
UNCAUGHT = (signal.SIGKILL, signal.SIGSTOP)
RUNTIMES = (
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGSEGV,
    signal.SIGSYS,
)
"""Signals of the processor's faults, some of which the runtime handles."""
NAMED = {one.name.removeprefix("SIG"): int(one) for one in signal.Signals if one < LIBC[0]}


def switch_signal(text: str | int) -> int:
    """Return the number of a signal: ``USR2``, ``SIGUSR2`` or ``12``, 0 for none. Raises UsageError
    for no signal, and one that cannot switch recording."""
    word = str(text)
    bare = word.upper().removeprefix("SIG")
    number = int(word) if word.isdecimal() and word.isascii() else NAMED.get(bare)
    if number == 0:
        return 0
    if number is None or number > LAST:
        raise UsageError(None, f"--signal {word}: no such signal", "use a name such as USR2")
    reason = ""
    if number in UNCAUGHT:
        reason = "no program can handle it"
    elif number in RUNTIMES:
        reason = "it tells of faults, and the runtime needs it"
    elif number in LIBC:
        reason = "the C library needs it"
    if reason:
        raise UsageError(None, f"--signal {word}: {reason}", "use another, such as USR2")
    return number
