"""Where a program asks libc about signals. The runtime answers, as far as the signal of breakpoints
is concerned (stubs/runtime/hooks.c).

A program with a dynamic linker has slots for it, which hold the functions when it begins. In a
static one the functions are code of its own; a jump in front of it leads to the runtime's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ftpatch.arch import Arch
from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.plan.functions import Functions
from ftpatch.plan.places import Chooser, Chosen, Way

__all__ = ["BUILT_IN", "PT_INTERP", "Hooked", "Hooks", "Slot", "find_hooks"]

PT_INTERP, PT_GNU_RELRO = 3, 0x6474_E552


class Hooked(IntEnum):
    """enum hook_which."""

    SIGACTION = 0
    SIGNAL = 1
    PTHREAD_SIGMASK = 2
    SIGPROCMASK = 3
    CLOSE = 4
    CLOSEFROM = 5
    CLOSE_RANGE = 6
    DUP2 = 7
    DUP3 = 8

    @property
    def wrapper(self) -> str:
        """Its function in the runtime."""
        return f"hooked_{self.name.lower()}"


IMPORTED = {
    "sigaction": Hooked.SIGACTION,
    "signal": Hooked.SIGNAL,
    "bsd_signal": Hooked.SIGNAL,
    "ssignal": Hooked.SIGNAL,
    "pthread_sigmask": Hooked.PTHREAD_SIGMASK,
    "sigprocmask": Hooked.SIGPROCMASK,
}
DESCRIPTORS = {
    "close": Hooked.CLOSE,
    "closefrom": Hooked.CLOSEFROM,
    "close_range": Hooked.CLOSE_RANGE,
    "dup2": Hooked.DUP2,
    "dup3": Hooked.DUP3,
}
"""What can take the events of watches away. Static programs keep theirs as they are."""
BUILT_IN = {
    Hooked.SIGACTION: ("__libc_sigaction", "__sigaction", "sigaction"),
    Hooked.PTHREAD_SIGMASK: ("__pthread_sigmask", "pthread_sigmask"),
}
"""Names in a static libc of what all others end in: glibc, musl."""
OTHERS = (
    "__sysv_signal",
    "sigset",
    "sighold",
    "sigblock",
    "sigsetmask",
    "sigsuspend",
    "pselect",
    "ppoll",
    "epoll_pwait",
    "epoll_pwait2",
    "syscall",
)
"""What else can block a signal, and is left as it is."""


@dataclass(frozen=True)
class Slot:
    """Link address of a GOT slot, and whose it is."""

    place: int
    which: Hooked


@dataclass(frozen=True)
class Hooks:
    """``slots`` of the GOT; ``code``: functions of the program that are led elsewhere; ``sealed``:
    link addresses of what can only be read; ``risks``: by what SIGILL may still be blocked."""

    slots: Sequence[Slot] = ()
    code: Sequence[tuple[Hooked, Chosen]] = ()
    sealed: tuple[int, int] = (0, 0)
    risks: str = ""


def find_hooks(
    image: Image, arch: Arch, functions: Functions, chooser: Chooser, *, descriptors: bool = False
) -> Hooks:
    """What of a program has to be led elsewhere for breakpoints; with ``descriptors`` also what
    closes them."""
    if image.elf.segment(PT_INTERP) is None:
        return _static(functions, chooser)
    symbols, relocations = image.dynamic_symbols, image.relocations
    rows = np.flatnonzero(np.isin(relocations.type, (*arch.got, arch.absolute)))
    index = relocations.symbol[rows].astype(np.intp)
    rows, index = rows[index < len(symbols)], index[index < len(symbols)]
    names = symbols.names(index)
    wanted = IMPORTED | (DESCRIPTORS if descriptors else {})
    slots = [
        Slot(int(relocations.place[row]), wanted[name])
        for row, name in zip(rows.tolist(), names, strict=True)
        if name in wanted
    ]
    relro = image.elf.segment(PT_GNU_RELRO)
    end = min(relro.address + relro.memory_size, (1 << 64) - 1) if relro else 0
    sealed = (relro.address, end) if relro else (0, 0)
    others = sorted(set(names) & set(OTHERS))
    return Hooks(slots, (), sealed, ", ".join([*others, "a library"]))


def _static(functions: Functions, chooser: Chooser) -> Hooks:
    found = []
    for which, names in BUILT_IN.items():
        for name in names:
            try:
                address = functions.names.address(name)
                chosen = chooser.choose(address, optimize=True, until=None)
            except UsageError:
                continue
            if chosen.way != Way.TRAP:
                found.append((which, chosen))
                break
    missing = [which.name.lower() for which in BUILT_IN if which not in dict(found)]
    if missing:
        risks = f"{' or '.join(missing)}, for which the program has no symbol"
    else:
        risks = "a system call of its own"
    return Hooks((), found, (0, 0), risks)
