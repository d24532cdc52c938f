# SPDX-License-Identifier: MIT
"""Probes in a kernel on disk: code behind the boot tracer, which the sites of probed functions
call.

It sends what it fetches through the boot tracer itself: a tracer's event holds the place it was
called from, where a function returns, and the stack pointer. A probe calls the tracer once for a
hit and once for each four bytes of a value, from places of its own, with the value in the place of
the return address. All events of a hit have the same stack pointer, so every sink can carry them,
and other processors' and interrupts' may come in between.

    site:  call probe        hit       | place of the hit   | caller     | sp |
                             value     | place of its half  | 4 bytes    | sp |

Elsewhere a jump leads there, as with optimized kprobes, and what it displaced runs behind the
probes. In the middle of a function every register and the flags are live, and the caller is
unknown.

Memory is read by the kernel's own functions, which survive a fault. An r probe replaces the return
address, and keeps the real one in an instance: key (where the return address was), the address,
and a number, 8 bytes each. The latest instance with a key is the one that returns: a task that died
in a probed function leaves its own behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Protocol

from ftpatch.arch import feature
from ftpatch.arch.boot import Assembly
from ftpatch.arch.kernel_text import kernel_mover_of

__all__ = [
    "INSTANCE",
    "NESTED",
    "TEXT",
    "Aim",
    "First",
    "Hook",
    "HookProbe",
    "KernelProbe",
    "Laid",
    "Part",
    "Read",
    "Value",
    "kernel_probe_of",
    "lay_hooks",
    "readers_of",
]

INSTANCE = 24
"""Size of an instance (bytes)."""
TEXT = 64
"""Bytes of a string that are recorded, with its NUL."""
NESTED = 8
"""Reads that may be under way at once; others count as faults. What reads, and what handles its
faults, may be probed, and must not go on for ever."""


class First(Enum):
    """The word that a fetch starts with."""

    REGISTER = "register"
    """Of this number."""
    STACK = "stack"
    """The stack pointer."""
    ADDRESS = "address"
    """A link address."""


@dataclass(frozen=True)
class Read:
    """A load of ``size`` bytes, 0 for a string, at an ``offset`` from the word before; in ``user``
    memory, or the kernel's."""

    offset: int
    size: int
    user: bool


@dataclass(frozen=True)
class Value:
    """A value of a hit: its ``first`` word, with a ``number``, then ``reads``. ``width``: how many
    bytes of it are sent, 0 for a string; ``linked``: it is sent as a distance from the mark."""

    first: First
    number: int
    reads: tuple[Read, ...]
    width: int
    linked: bool = False


@dataclass(frozen=True)
class HookProbe:
    """A probe of a function. ``values``: what it sends, None for what is known before; ``returns``:
    when the function returns, for at most so many ``instances`` at once."""

    values: tuple[Value | None, ...]
    returns: bool
    instances: int = 0


@dataclass(frozen=True)
class Hook:
    """The probes of the function whose site is at ``ip``; or those in front of the instructions
    there, whole ones that a jump ``displaced``. ``inside``: they are not a function's first."""

    ip: int
    probes: tuple[HookProbe, ...]
    displaced: bytes = b""
    inside: bool = False


@dataclass(frozen=True)
class Aim:
    """The mark's link address (``at``), and where things are, in bytes from the mark: the tracer's
    ``entry``, a counter of the reads under way followed by one of instances (``words``),
    ``instances`` behind them, the kernel's functions by name (``callees``); and the size of all
    code (``span``)."""

    at: int
    entry: int
    words: int
    instances: int
    callees: Mapping[str, int]
    span: int

    def distance(self, address: int) -> int:
        """Bytes from the mark to a link address, signed."""
        return (address - self.at + (1 << 63)) % (1 << 64) - (1 << 63)


class Part(IntEnum):
    """The meaning of an event's place."""

    HIT = 0
    ENTERED = 1
    """An r probe's function was called."""
    MISSED = 2
    """The same, without an instance."""
    LOW = 3
    HIGH = 4
    """Halves of a number."""
    TEXT = 5
    """The next four bytes of a string."""
    STATUS = 6
    """Not negative, and not an error: the reads of a value worked."""


@dataclass(frozen=True)
class Laid:
    """``entries``: what each hook's site calls; ``places``: (place, probe, value, Part) of each
    event, probes counted through. All in bytes from the mark."""

    entries: tuple[int, ...]
    places: tuple[tuple[int, int, int, Part], ...]


Tell = Callable[[Part], None]
"""Notes that the tracer was called: the current position is the place of this part."""


class KernelProbe(Protocol):
    """One architecture's code. ``registers``: the numbers of those that can be fetched; ``jumped``:
    the code where a jump leads to it instead of a site's call."""

    @property
    def registers(self) -> frozenset[int]: ...

    @property
    def jumped(self) -> KernelProbe: ...

    def enter(self, out: Assembly) -> None:
        """Save registers: the site calls this, or a jump leads here."""

    def leave(self, out: Assembly) -> None:
        """Go on behind the site, or with what follows."""

    def claim(self, out: Assembly, aim: Aim, pool: tuple[int, int], to: int, tell: Tell) -> None:
        """Let the function return to the position ``to``, if one of the instances of ``pool`` is
        free: their distance from the mark, and how many."""

    def arrive(self, out: Assembly, aim: Aim, pool: tuple[int, int]) -> None:
        """Save registers, find the instance and free it: a function returns here."""

    def depart(self, out: Assembly) -> None:
        """Return to the function's caller."""

    def hit(self, out: Assembly, aim: Aim, *, inside: bool) -> None:
        """Call the tracer with where the function returns; with the mark ``inside`` of one."""

    def load(self, out: Assembly, aim: Aim, value: Value, *, returned: bool) -> None:
        """Load the first word."""

    def read(self, out: Assembly, aim: Aim, read: Read, callee: int, *, first: bool) -> None:
        """Read, and remember errors since the ``first``."""

    def send(self, out: Assembly, aim: Aim, value: Value, tell: Tell) -> None:
        """Call the tracer with the word's halves."""

    def text(self, out: Assembly, aim: Aim, tell: Tell) -> None:
        """Call the tracer with the string that was read."""

    def status(self, out: Assembly, aim: Aim) -> None:
        """Call the tracer with the errors."""


READERS: Mapping[tuple[bool, bool], tuple[str, ...]] = {
    (False, False): ("copy_from_kernel_nofault", "probe_kernel_read"),
    (False, True): ("copy_from_user_nofault", "probe_user_read"),
    (True, False): ("strncpy_from_kernel_nofault", "strncpy_from_unsafe"),
    (True, True): ("strncpy_from_user_nofault", "strncpy_from_unsafe_user"),
}
"""Functions that take (to, from, size) and return a negative error; by whether it is a string, and
whether it is the user's. Linux kernel commit fe557319aa06 ("maccess: rename probe_kernel_{read,
write} to copy_{from,to}_kernel_nofault") (in v5.8) and its neighbours."""


def kernel_probe_of(arch: str) -> KernelProbe:
    """The code of an architecture. Raises InputError if there is none."""
    found: KernelProbe = feature(arch, "kernel_probe")
    return found


def readers_of(hook: Hook) -> set[tuple[str, ...]]:
    """Names of the kernel's functions that a hook's reads call: of each tuple, one is enough."""
    values = (value for probe in hook.probes for value in probe.values if value is not None)
    return {READERS[not read.size, read.user] for value in values for read in value.reads}


def lay_hooks(out: Assembly, own: KernelProbe, hooks: Sequence[Hook], aim: Aim) -> Laid:
    """Add the code of all hooks behind what ``out`` has. Raises Immovable where displaced
    instructions refer to what is out of reach from there."""
    entries: list[int] = []
    places: list[tuple[int, int, int, Part]] = []
    number, instances = 0, aim.instances

    def noting(probe: int, value: int = 0) -> Tell:
        return lambda part: places.append((out.here, probe, value, part))

    def fetch(code: KernelProbe, probe: int, one: HookProbe, *, inside: bool) -> None:
        code.hit(out, aim, inside=inside)
        noting(probe)(Part.HIT)
        for index, value in enumerate(one.values):
            if value is None:
                continue
            tell = noting(probe, index)
            code.load(out, aim, value, returned=one.returns)
            for at, read in enumerate(value.reads):
                names = READERS[not read.size, read.user]
                callee = next(aim.callees[name] for name in names if name in aim.callees)
                code.read(out, aim, read, callee, first=not at)
            if value.width:
                code.send(out, aim, value, tell)
            else:
                code.text(out, aim, tell)
            if value.reads:
                code.status(out, aim)
                tell(Part.STATUS)

    for hook in hooks:
        code = own.jumped if hook.displaced else own
        numbers = range(number, number + len(hook.probes))
        numbered = list(zip(numbers, hook.probes, strict=True))
        number += len(hook.probes)
        returns = [(n, one) for n, one in numbered if one.returns]
        pools, arrivals = [], []
        for n, one in returns:
            pools.append((instances, one.instances))
            instances += INSTANCE * one.instances
            arrivals.append(out.here)
            code.arrive(out, aim, pools[-1])
            fetch(code, n, one, inside=False)
            code.depart(out)
        entries.append(out.here)
        code.enter(out)
        for n, one in numbered:
            if not one.returns:
                fetch(code, n, one, inside=hook.inside)
        for (n, _), pool, to in zip(returns, pools, arrivals, strict=True):
            code.claim(out, aim, pool, to, noting(n))
        code.leave(out)
        if hook.displaced:
            to, mover = aim.at + out.here, kernel_mover_of(out.arch)
            out.code += mover.move(hook.displaced, hook.ip, to, mover.jump_size).code
    return Laid(tuple(entries), tuple(places))
