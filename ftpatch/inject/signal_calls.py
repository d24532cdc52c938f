# SPDX-License-Identifier: MIT
"""A program's system calls about signals, which the runtime has to answer if there are traps
(stubs/runtime/system_calls.c, signals.c)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ftpatch.arch import Arch, supports
from ftpatch.arch.system_calls import system_calls
from ftpatch.image import Image

__all__ = ["Asked", "find_asked"]

NAMES = (
    *("sigaction", "signal", "bsd_signal", "ssignal", "__sysv_signal", "sysv_signal", "sigvec"),
    *("sigset", "sighold", "sigrelse", "sigignore", "siginterrupt", "sigblock", "sigsetmask"),
    *("sigprocmask", "pthread_sigmask", "sigsuspend", "sigpause", "__sigpause", "__xpg_sigpause"),
    *("pselect", "ppoll", "epoll_pwait", "epoll_pwait2", "syscall"),
)
"""The library functions that make them, for messages only."""


@dataclass(frozen=True)
class Asked:
    """``led``: link addresses of code that is redirected at run time; ``unled``: those of system
    calls that cannot be redirected; ``names`` of library functions."""

    led: Sequence[tuple[int, int]] = ()
    unled: Sequence[int] = ()
    names: Sequence[str] = ()


def find_asked(image: Image, arch: Arch) -> Asked:
    """Find the program's own system calls; the runtime finds those of its libraries. There are none
    where there are no traps."""
    if not supports(arch.name, "system_calls"):
        return Asked()
    led, unled = [], []
    for address, size in image.elf.text.tolist():
        offset = int(image.elf.offset_of(np.array([address], np.uint64), executable=True)[0])
        code = image.data[offset : offset + size].tobytes()
        for one in system_calls(arch.name, code, address):
            if one.led:
                led.append((one.start, one.end))
            else:
                unled.append(one.end)
    symbols = image.dynamic_symbols
    names = [name for name in NAMES if len(symbols.rows_named(name, defined=False))]
    return Asked(led, unled, names)
