# SPDX-License-Identifier: MIT
"""Code that the dynamic linker runs each time that it has mapped or unmapped libraries, in place of
the empty function that is there for debuggers (struct r_debug, <link.h>).

It asks ftpatch by a socket what to do, makes system calls for it, and goes on when that closes the
connection. If nobody listens, or somebody else, nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["LinkerHook"]


@dataclass(frozen=True, kw_only=True)
class LinkerHook:
    """``make(state, filtered, owner, name)``: the code. ``state``: address of r_state;
    ``filtered``: mode of seccomp in which a socket may be opened; ``owner``: uid of who listens;
    ``name`` of the socket in the abstract namespace. ``jump(at, to)``: an instruction that leads
    there, and ``target(at, code)`` where one leads, None if it is none; ``empty``: beginnings of
    functions that it may replace."""

    make: Callable[[int, int, int, bytes], bytes]
    jump: Callable[[int, int], bytes]
    target: Callable[[int, bytes], int | None]
    empty: tuple[bytes, ...]
