# SPDX-License-Identifier: MIT
"""Calls made in a running process: a little code that a thread is sent through.

The thread is stopped, continued at the code's first byte with all signals blocked, and traced by
nobody from then on: the code leaves every register as it was, unblocks the signals that the thread
had not blocked, goes on where the thread would have, and tells by a word in memory how far it came.
Whatever becomes of the one who sent it there, the thread finds its way back by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Done", "Function", "GoingOn", "InjectedCall", "Step", "SystemCall"]


@dataclass(frozen=True)
class SystemCall:
    """A system call with up to six ``arguments``. One that fails ends the code."""

    number: int
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class Function:
    """A call of the function at ``address`` with up to three ``arguments``, on the stack that ends
    at ``stack``; what it returns is of no interest."""

    address: int
    arguments: tuple[int, ...]
    stack: int


@dataclass(frozen=True)
class Done:
    """Store ``value`` at ``address``: everything before has been done."""

    address: int
    value: int


Step = SystemCall | Function | Done


@dataclass(frozen=True, kw_only=True)
class GoingOn:
    """With what a thread goes on behind an injected call: its general ``registers``, as
    ThreadState has them, its ``vectors``, where that names them, and the signals that it blocks,
    ``mask``."""

    registers: np.void
    vectors: bytes
    mask: int


@dataclass(frozen=True, kw_only=True)
class InjectedCall:
    """``make(steps)``: the code that takes these steps, and goes on with what follows it:
    ``tail(going_on)``, ``tail_size`` bytes; ``mmap``, ``mprotect`` and ``munmap``: numbers of these
    calls; ``reach``: bytes within which a site calls what is mapped for it; ``needed``: numbers and
    arguments, as far as they matter, of all system calls that a runtime and what is injected for it
    make; ``trapping``: those that it makes beside them if there are traps."""

    make: Callable[[Sequence[Step]], bytes]
    tail: Callable[[GoingOn], bytes]
    tail_size: int
    mmap: int
    mprotect: int
    munmap: int
    reach: int
    needed: tuple[tuple[int, tuple[int, ...]], ...]
    trapping: tuple[tuple[int, tuple[int, ...]], ...] = ()
