# SPDX-License-Identifier: MIT
"""The architectures' boot tracers: code and event format.

The code is placed in padding of the kernel's text after a mark. It runs before paging is final, on
any stack and in NMIs: it uses no absolute addresses and changes no register that is live at
function entry. An event holds the call's address and where the function will return, both relative
to the mark (so neither KASLR nor an early identity mapping changes them), and the stack pointer on
entry.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature
from ftpatch.arch.assemble import instruction
from ftpatch.arch.disassemble import disassemble

__all__ = [
    "COPY",
    "MARK",
    "MEMORY",
    "Assembly",
    "BootTracer",
    "Emulator",
    "Events",
    "Field",
    "Slots",
    "TracerCode",
    "Mark",
    "Wanted",
    "boot_tracer_of",
    "has_mark",
    "read_mark",
]

MARK = struct.Struct("<8sBBHI")
MAGIC = b"FTPBOOT2"
OLD = b"FTPBOOT1"
"""For tracers whose events do not hold return addresses."""
MEMORY = "memory"
"""The sink of every architecture that has a reader while the kernel runs: a ring in its data."""
MEMORY_NUMBER = 255
"""Its number in a mark."""
COPY = 16
"""Alignment of each copy of a tracer in a module (bytes): a reader looks there for their marks."""
BASE = 0x4000_0000
"""Address to assemble code at: only distances matter."""
FAR = 0x400
"""Distance that takes the longer form of a branch (bytes)."""


@dataclass(frozen=True)
class Wanted:
    """``sink``: where events go, by name; ``time``: whether they are timed; ``word``: distance from
    the mark to the word that counts down, followed by four more bytes, None if there is none.
    ``apart``: only a loader knows where these are, so the code has a field for each."""

    sink: str
    time: bool
    word: int | None
    apart: bool = False


@dataclass(frozen=True)
class Field:
    """Four bytes of a tracer's code, ``at`` bytes from the mark, that hold the distance from
    themselves to the word (``word``), or to the place that events count from, plus ``more``."""

    at: int
    word: bool
    more: int


@dataclass(frozen=True)
class TracerCode:
    """A tracer's ``code`` with its mark; ``entry``: what sites call; ``last``: the entry that stops
    the tracer (0 if nothing does), both in bytes from the mark; ``fields``, zero in the code, of
    one whose word is apart."""

    code: bytes
    entry: int
    last: int
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Header before a tracer's code: its sink's number, whether events are timed, what sites call,
    as in TracerCode, and whether events hold return addresses (``back``)."""

    sink: int
    time: bool
    entry: int = 0
    last: int = 0
    back: bool = True

    @property
    def in_memory(self) -> bool:
        """True if events go to a ring in the kernel's data."""
        return self.sink == MEMORY_NUMBER

    def pack(self) -> bytes:
        """16 bytes."""
        return MARK.pack(MAGIC if self.back else OLD, self.sink, self.time, self.entry, self.last)


@dataclass(frozen=True)
class Events:
    """n events as columns: ``place`` int64[n]: bytes from the mark to the address after the call,
    ``sp`` uint64[n], ``time`` uint64[n] (ticks; the event's number if untimed), ``back`` int64[n]:
    bytes from the mark to where the function returns, as if that were within 2 GiB of it; None if
    not recorded."""

    place: NDArray[np.int64]
    sp: NDArray[np.uint64]
    time: NDArray[np.uint64]
    back: NDArray[np.int64] | None = None

    def take(self, rows: NDArray[np.bool_] | slice) -> Events:
        """Select some of them."""
        back = None if self.back is None else self.back[rows]
        return Events(self.place[rows], self.sp[rows], self.time[rows], back)

    @classmethod
    def concat(cls, parts: Sequence[Events]) -> Events:
        """Join parts of one stream, at least one."""
        backs = [part.back for part in parts if part.back is not None]
        return cls(
            np.concatenate([part.place for part in parts]),
            np.concatenate([part.sp for part in parts]),
            np.concatenate([part.time for part in parts]),
            np.concatenate(backs) if backs else None,
        )


@dataclass(frozen=True)
class Slots:
    """The ring of the sink ``memory``, shared by the tracer and the reader, and what its slots
    hold. Distances are bytes from the tracer's word:

        -RING                     +0      +8    +12
        | slot | slot | ... | ... | word  | head | tail |

    The tracer takes the slot of number ``head`` by incrementing that, waits until the reader's
    ``tail`` is less than ``count`` behind, fills the slot, its place last, and tells the reader of
    each ``told``-th one by a byte through the device that it had used otherwise. The reader takes
    slots whose place is not 0, makes the places 0 again, and advances ``tail``: nothing is lost
    while it runs. An event is its place and its return, four bytes each, eight bytes of the stack
    pointer and, if timed, eight of the counter, little endian."""

    time: bool
    RING = 2048
    HEAD = 8
    TAIL = 12

    @property
    def size(self) -> int:
        """Bytes of a slot, and of an event in a stream."""
        return 24 if self.time else 16

    @property
    def count(self) -> int:
        """Number of slots, a power of two."""
        return 64 if self.time else 128

    @property
    def told(self) -> int:
        """Number of events of which the reader is told at once."""
        return self.count // 2

    def read(self, rows: NDArray[np.uint8]) -> Events:
        """Decode events, uint8[n, size]."""
        whole = np.ascontiguousarray(rows)
        half, word = whole.view("<i4"), whole.view("<u8")
        time = word[:, 2] if self.time else np.arange(len(rows), dtype=np.uint64)
        return Events(half[:, 0].astype(np.int64), word[:, 1], time, half[:, 1].astype(np.int64))


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """QEMU for one architecture: ``program``, the Debian ``package`` that has it, its ``words``,
    the kernel's command line, whether the kernel must be ``flat``; for each sink, words for QEMU
    (``sinks``) and for the kernel (``consoles``). {stream}, {console} and {log} are files;
    ``fault`` is what the log says when the processor gives up; ``shared``: sinks of which the
    console has the events, too, as in SevenBits."""

    program: str
    package: str
    words: tuple[str, ...]
    append: str
    flat: bool
    sinks: dict[str, tuple[str, ...]]
    consoles: dict[str, str]
    fault: str = ""
    shared: tuple[str, ...] = ()

    def command(self, sink: str, files: Mapping[str, str]) -> list[str]:
        """QEMU's arguments for a sink: ``files`` are those for events (``stream``), the
        ``console``, and QEMU's own messages (``log``)."""
        quoted = {name: path.replace(",", ",,") for name, path in files.items()}
        words = [word.format_map(files) for word in self.words]
        return words + [word.format_map(quoted) for word in self.sinks[sink]]

    def said(self, sink: str, more: str) -> str:
        """The kernel's command line."""
        return " ".join(filter(None, (self.consoles[sink], self.append, more)))


class BootTracer(Protocol):
    """One architecture's tracer."""

    @property
    def emulator(self) -> Emulator:
        """The emulator that runs its kernels."""

    @property
    def name(self) -> str:
        """The architecture's name."""

    @property
    def sinks(self) -> tuple[str, ...]:
        """Names, the default first; MEMORY is not among them."""

    @property
    def pads(self) -> bytes:
        """The bytes that padding of its text consists of."""

    @property
    def tail(self) -> str:
        """The symbol up to which what follows its text is mapped as the text is; empty if its
        padding is used."""

    @property
    def pads_only(self) -> bool:
        """True if its sites must be pads: a call of _mcount comes with other registers."""

    @property
    def behind(self) -> int:
        """Bytes from where a site's code begins to where its call returns."""

    @property
    def marker(self) -> int:
        """The first byte of each event."""

    @property
    def align(self) -> int:
        """Alignment of every stack pointer."""

    @property
    def stack(self) -> int:
        """Bytes of a task's stack."""

    @property
    def locked(self) -> tuple[str, ...]:
        """Sinks for which it needs its word even if nothing stops it: behind that is a lock."""

    @property
    def field(self) -> int:
        """Type of the relocation of a Field: S + A - P, 32 bits; 0 if it has none."""

    def assemble(self, wanted: Wanted) -> TracerCode:
        """Build the tracer's code."""

    def size(self, *, time: bool, back: bool = True) -> int:
        """Size of an event, with and without time and return address."""

    def read(self, rows: NDArray[np.uint8], *, time: bool, back: bool = True) -> Events:
        """Decode events, uint8[n, size]."""


def boot_tracer_of(arch: str) -> BootTracer:
    """The tracer of an architecture. Raises InputError if there is none."""
    found: BootTracer = feature(arch, "boot")
    return found


def read_mark(raw: bytes) -> Mark | None:
    """Parse the mark at the start of ``raw``; None if there is none."""
    if len(raw) < MARK.size or not raw.startswith((MAGIC, OLD)):
        return None
    magic, sink, time, entry, last = MARK.unpack_from(raw)
    return Mark(sink=sink, time=bool(time), entry=entry, last=last, back=magic == MAGIC)


def has_mark(raw: bytes) -> bool:
    """True if a tracer's mark is anywhere in ``raw``."""
    return MAGIC in raw or OLD in raw


class Assembly:
    """A sequence of instructions, each read back by Capstone, behind a mark or what is ``laid``
    already. Branches go backwards, or ``ahead`` to where they ``land``."""

    def __init__(self, arch: str, laid: bytes = bytes(MARK.size)) -> None:
        self.arch = arch
        self.code = bytearray(laid)
        self._fields: list[Field] = []

    def assemble(
        self,
        wanted: Wanted,
        sinks: Sequence[str],
        leave: Sequence[str],
        body: Callable[[int, bool], None],
    ) -> TracerCode:
        """Assemble the whole tracer: ``leave``, a return once stopped, the entry and, if there is a
        word, the entry for the function that stops it. ``body`` adds one of these: it gets the
        position of the return, and whether it is the last one. ``sinks`` are those of the
        architecture."""
        stopped = self.here
        self.add(*leave)
        entry, last = self.here, 0
        body(stopped, False)
        if wanted.word is not None:
            last = self.here
            body(stopped, True)
        sink = MEMORY_NUMBER if wanted.sink == MEMORY else sinks.index(wanted.sink)
        mark = Mark(sink=sink, time=wanted.time, entry=entry, last=last)
        fields = tuple(self._fields)
        for one in fields:
            self.code[one.at : one.at + 4] = bytes(4)  # x86's loader refuses anything else
        return TracerCode(mark.pack() + bytes(self.code[MARK.size :]), entry, last, fields)

    @property
    def here(self) -> int:
        """Current position, in bytes from the mark."""
        return len(self.code)

    def add(self, *lines: str) -> None:
        """Add instructions; ``$N`` is the address N bytes after the mark."""
        for line in lines:
            text, _, at = line.partition("$")
            whole = f"{text}{BASE + int(at):#x}" if at else text
            self.code += instruction(self.arch, whole, BASE + self.here)

    def ahead(self, branch: str) -> tuple[int, int, str]:
        """Add a branch to a place that follows within 32 KiB; return what ``land`` takes."""
        at = self.here
        self.code += instruction(self.arch, f"{branch} {BASE + at + FAR:#x}", BASE + at)
        return at, self.here - at, branch

    def land(self, branch: tuple[int, int, str]) -> None:
        """Let a branch from ``ahead`` lead here."""
        at, size, text = branch
        code = instruction(self.arch, f"{text} {BASE + self.here:#x}", BASE + at)
        if len(code) != size:  # x86's short form: keep the one with four bytes of displacement
            near = (self.here - at - size).to_bytes(4, "little")
            code = bytes(self.code[at : at + size - 4]) + near
        (read,) = disassemble(self.arch, code, BASE + at)
        if read.target != BASE + self.here:
            raise RuntimeError(f"{self.arch}: {text} at {at:#x} does not lead to {self.here:#x}")
        self.code[at : at + size] = code

    def words(self, code: bytes, name: str) -> None:
        """Add an instruction that Keystone cannot make, with Capstone's name for it."""
        read = disassemble(self.arch, code, BASE + self.here)
        if [insn.mnemonic for insn in read] != [name]:
            raise RuntimeError(f"{self.arch}: {code.hex()} reads {read}, not {name}")
        self.code += code

    def near(self, make: Callable[[int], str], behind: int = 0) -> int:
        """Add an instruction with a displacement from its own end; ``make`` returns its text for
        that end, in bytes from the mark. The displacement always takes four bytes, and as many as
        ``behind`` follow it: return its position."""
        size = len(instruction(self.arch, make(1 << 24), BASE + self.here))
        self.code += instruction(self.arch, make(self.here + size), BASE + self.here)[:size]
        return self.here - behind - 4

    def distance(self, *, word: bool) -> None:
        """Add a Field for instructions to load."""
        self._fields.append(Field(self.here, word, 0))
        self.code += bytes(4)

    def field(self, at: int, *, to: int, word: bool) -> None:
        """Make a Field of the four bytes at a position: what they hold would be the distance to
        what they are for if that were ``to`` bytes from the mark."""
        held = int.from_bytes(self.code[at : at + 4], "little", signed=True)
        self._fields.append(Field(at, word, at + held - to))
