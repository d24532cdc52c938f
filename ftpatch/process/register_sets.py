# SPDX-License-Identifier: MIT
"""Registers of a stopped thread beyond those that it has been read with (ptrace(2), GETREGSET)."""

from __future__ import annotations

import errno
import struct
from typing import Final

import numpy as np

from ftpatch.arch.thread_state import WIDE
from ftpatch.errors import InputError
from ftpatch.process.ptrace import get_registers, set_registers
from ftpatch.process.stop import World
from ftpatch.process.thread import Thread

__all__ = ["is_guarded", "set_now", "thread_pointer_of", "vectors_of"]

WORD: Final = 8
SVE_HEADER: Final = struct.Struct("<12xH2x")
"""struct user_sve_header: flags."""


def thread_pointer_of(world: World, thread: Thread) -> int:
    """A thread's thread pointer. Raises InputError if it ends."""
    state = thread.state
    if state.thread_pointer:
        return int(thread.registers[state.thread_pointer])
    return int.from_bytes(_set_of(world, thread, state.thread_pointer_set, WORD), "little")


def vectors_of(world: World, thread: Thread) -> bytes | None:
    """A thread's vector registers, as an injected call sets them; None while they hold more than it
    can set. Raises InputError if it ends."""
    for note in thread.state.wider:
        held = _set_of(world, thread, note, SVE_HEADER.size)
        if len(held) == SVE_HEADER.size and SVE_HEADER.unpack(held)[0] & WIDE:
            return None
    note, size = thread.state.vectors
    return _set_of(world, thread, note, size) if note else b""


def is_guarded(world: World, thread: Thread) -> bool:
    """Test whether the processor keeps a second stack of a thread's return addresses, which only
    the processor's registers tell. Raises InputError if it ends."""
    note = thread.state.guarded
    held = _set_of(world, thread, note, WORD) if note else b""
    return bool(int.from_bytes(held, "little") & 1)


def set_now(world: World, thread: Thread, registers: np.void) -> None:
    """Set a thread's general registers at once: we may be killed before it goes on. Raises
    InputError if it ends."""
    try:
        world.do(lambda: set_registers(thread.tid, registers.tobytes()))
    except ProcessLookupError:
        raise _ended(thread) from None
    thread.registers = registers


def _set_of(world: World, thread: Thread, note: int, size: int) -> bytes:
    """Read a set of registers; empty where the machine has none such."""
    try:
        return world.do(lambda: get_registers(thread.tid, size, note))
    except ProcessLookupError:
        raise _ended(thread) from None
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENODEV):
            return b""
        raise


def _ended(thread: Thread) -> InputError:
    return InputError(None, f"{thread.process}: thread {thread.tid} has ended")
