# SPDX-License-Identifier: MIT
"""Requirements of a runtime in a process: the system calls that it makes must be permitted, and the
return addresses that it replaces must not be kept elsewhere as well."""

from __future__ import annotations

from ftpatch.arch.thread_state import thread_state_of
from ftpatch.errors import InputError, UsageError
from ftpatch.process.process import Process, read_status
from ftpatch.process.seccomp import Call, may_call
from ftpatch.process.send import injected_call_of
from ftpatch.process.stop import one_stopped

__all__ = ["require_permitted"]

UNFILTERED = "0"
"""Seccomp in /proc/PID/status: no filter."""


def require_permitted(
    process: Process, arch: str, *, hooks: bool, traps: bool = False, otherwise: str
) -> None:
    """Raise InputError for a process that seccomp forbids what a runtime does, if it ``traps`` or
    if not; UsageError, with the
    hint ``otherwise``, for one with a shadow stack, where return addresses cannot be replaced, if
    it ``hooks`` returns."""
    status, state = read_status(process.place), thread_state_of(arch)
    line, word = state.shadow_stack
    if hooks and line and word in status.get(line, "").split():
        raise UsageError(
            None,
            f"{process}: it has a shadow stack: return addresses cannot be replaced",
            otherwise,
        )
    if status.get("Seccomp", UNFILTERED) == UNFILTERED:
        return
    call = injected_call_of(arch)
    wanted = [
        Call(number=number, arguments=arguments, audit=state.audit)
        for number, arguments in (*call.needed, *(call.trapping if traps else ()))
    ]
    with one_stopped(process) as world:
        (thread,) = world.threads
        allowed = may_call(world, thread, wanted)
    refused = [call.number for call, allows in zip(wanted, allowed, strict=True) if not allows]
    if refused:
        numbers = ", ".join(map(str, refused))
        raise InputError(
            None,
            f"{process}: its seccomp filter forbids what the tracer needs (system call {numbers})",
            "trace a copy of the program that does not sandbox itself",
        )
