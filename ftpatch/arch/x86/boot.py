# SPDX-License-Identifier: MIT
"""The boot tracers of x86: both send an event byte by byte through a port.

A site is a ``call`` at function entry: flags are free there, registers are not. Interrupts are off
while an event is sent, and a lock keeps other processors from interleaving: only an NMI can cut it,
or a processor that has waited too long. An event is 0xf7, four bytes of the place, four of where
the function returns, six (i386: four) of the stack pointer and, if timed, six of the time-stamp
counter, all little endian.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import MEMORY, Assembly, Emulator, Events, Slots, TracerCode, Wanted

__all__ = ["BootX86"]

MARKER = 0xF7
DEBUGCON, SERIAL = 0xE9, 0x3F8  # QEMU's isa-debugcon; the first 16550
LINE_STATUS, EMPTY = 0x3FD, 0x20  # LSR, and THRE in it
STOP = 0xC000_0000
"""Value of the counter word: stopped. Far enough from 0 that no late decrement wraps."""
RET, OUT = 1, 2
"""Bytes of ret and of out imm8, al."""
LOCK = 4
"""Bytes from the counter word to the lock: 0, or 1 while an event is sent."""
PATIENCE = 1 << 21
"""Maximum number of attempts to take the lock: after that its holder must have been stopped, or is
interrupted by this NMI."""
POLLS = 1 << 16
"""Maximum number of polls of a 16550 for room for a byte: a byte at 9600 baud takes a
millisecond, and a port that never has room must not end the boot."""
FILES = (
    *("-chardev", "file,id=events,path={stream}"),
    *("-chardev", "file,id=console,path={console}"),
)
CONSOLE = ("-serial", "chardev:console")


@dataclass(frozen=True)
class BootX86:
    """Both word sizes: the names of registers and of pushf, bytes of a stack pointer in events."""

    name: str
    word: int
    flags: str
    sp_bytes: int
    stack: int
    align: int
    field: int = 0
    sinks: tuple[str, ...] = ("debugcon", "serial")
    pads: bytes = b"\xcc\x00"
    tail: str = ""
    pads_only: bool = False
    behind: int = 5
    marker: int = MARKER
    locked: tuple[str, ...] = ("debugcon", "serial")

    @property
    def emulator(self) -> Emulator:
        """One program for both, since it accepts a vmlinux for its PVH note."""
        return Emulator(
            program="qemu-system-x86_64",
            package="qemu-system-x86",
            words=(
                *("-nodefaults", "-display", "none", "-no-reboot", "-m", "1G"),
                *("-d", "cpu_reset", "-D", "{log}"),  # triple faults are reported there
            ),
            append="panic=-1 no_timer_check",
            flat=False,
            sinks={
                "debugcon": (*FILES, *CONSOLE, *("-device", "isa-debugcon,chardev=events")),
                "serial": (*FILES, *("-serial", "chardev:events"), *CONSOLE),
                MEMORY: (*FILES, *CONSOLE, *("-device", "isa-debugcon,chardev=events")),
            },
            consoles={
                "debugcon": "console=ttyS0 earlyprintk=serial,ttyS0",
                "serial": "console=ttyS1 earlyprintk=serial,ttyS1",  # the first is the tracer's
                MEMORY: "console=ttyS0 earlyprintk=serial,ttyS0",
            },
            fault="Triple fault",
        )

    def size(self, *, time: bool, back: bool = True) -> int:
        """Size of an event."""
        return 5 + 4 * back + self.sp_bytes + 6 * time

    def read(self, rows: NDArray[np.uint8], *, time: bool, back: bool = True) -> Events:
        """Decode events, uint8[n, size]."""
        place, at = _distance(rows[:, 1:5]), 5 + 4 * back
        returns = _distance(rows[:, 5:9]) if back else None
        sp = _number(rows[:, at : at + self.sp_bytes])
        at += self.sp_bytes
        if self.sp_bytes == 6:  # canonical: bit 47 is repeated in all higher ones
            sp |= np.where(sp >> np.uint64(47) > 0, np.uint64(0xFFFF_0000_0000_0000), np.uint64(0))
        ticks = _number(rows[:, at : at + 6]) if time else np.arange(len(rows), dtype=np.uint64)
        return Events(place, sp, ticks, returns)

    def assemble(self, wanted: Wanted) -> TracerCode:
        """Build the code."""
        out = Assembly(self.name)
        leave = ["ret"]  # c3
        if wanted.sink != MEMORY:
            return out.assemble(wanted, self.sinks, leave, partial(self._body, out, wanted))
        leave += [f"out {DEBUGCON:#x}, al", *self._restore]  # e6 e9
        return out.assemble(wanted, self.sinks, leave, partial(self._to_memory, out, wanted))

    def _to_memory(self, out: Assembly, wanted: Wanted, stopped: int, last: bool) -> None:
        """One entry that fills a slot of the ring; the ``last`` one stops it. Behind the return
        at ``stopped`` stand the byte that tells the reader, and the way out."""
        assert wanted.word is not None
        told = stopped + RET
        leave, slots, word = told + OUT, Slots(wanted.time), wanted.word
        r, returns = self._letter, (len(self._saved) + 1) * self.word
        self._gate(out, wanted, stopped)
        out.add(f"pushf{self.flags}", "cli", *(f"push {name}" for name in self._saved))
        self._mark(out, f"{r}cx")
        count = f"dword ptr [{r}cx + {word}]"
        out.add(f"mov {count}, {STOP:#x}" if last else f"lock dec {count}")
        out.add("mov esi, 1", f"lock xadd dword ptr [{r}cx + {word + Slots.HEAD}], esi")
        wait = out.here
        out.add("mov edx, esi", f"sub edx, dword ptr [{r}cx + {word + Slots.TAIL}]")
        out.add(f"cmp edx, {slots.count}", f"jae ${wait}")
        out.add("mov edx, esi", f"and edx, {slots.count - 1}")
        if wanted.time:  # 24 bytes: three times 8
            out.add(f"lea edx, [{r}dx + {r}dx*2]", "shl edx, 3")
        else:
            out.add("shl edx, 4")
        out.add(f"lea {r}cx, [{r}cx + {r}dx + {word - Slots.RING}]")
        if wanted.time:
            out.add("rdtsc", f"mov dword ptr [{r}cx + 16], eax", f"mov dword ptr [{r}cx + 20], edx")
        self._mark(out, f"{r}ax")
        out.add(f"mov edx, dword ptr [{r}sp + {returns + self.word}]", "sub edx, eax")
        out.add(f"mov dword ptr [{r}cx + 4], edx", f"lea {r}dx, [{r}sp + {returns + self.word}]")
        out.add(f"mov {self._size} ptr [{r}cx + 8], {r}dx")  # i386: above it stays 0
        out.add(f"mov edx, dword ptr [{r}sp + {returns}]", "sub edx, eax")
        out.add(f"mov dword ptr [{r}cx], edx")  # the slot is full
        out.add(f"test esi, {slots.told - 1}", f"jne ${leave}", f"jmp ${told}")

    @property
    def _letter(self) -> str:
        return "r" if self.word == 8 else "e"

    @property
    def _size(self) -> str:
        return "qword" if self.word == 8 else "dword"

    @property
    def _saved(self) -> list[str]:
        return [f"{self._letter}{name}" for name in ("dx", "cx", "si", "ax")]

    @property
    def _restore(self) -> list[str]:
        return [*(f"pop {name}" for name in reversed(self._saved)), f"popf{self.flags}", "ret"]

    def _body(self, out: Assembly, wanted: Wanted, stopped: int, last: bool) -> None:
        """One entry of the tracer; the ``last`` one stops it."""
        r, saved = self._letter, self._saved
        if wanted.word is not None:
            self._gate(out, wanted, stopped)
        out.add(f"pushf{self.flags}", "cli", *(f"push {name}" for name in saved))
        self._mark(out, f"{r}cx", apart=wanted.apart)
        if wanted.word is not None:
            self._lock(out, wanted)
            if last:
                self._on_word(out, wanted, f"mov {{}}, {STOP:#x}", behind=4)
            else:
                self._on_word(out, wanted, "dec {}")
        returns = (len(saved) + 1) * self.word  # above these and the flags
        out.add(f"mov edx, dword ptr [{r}sp + {returns}]", "sub edx, ecx")
        out.add(f"mov esi, dword ptr [{r}sp + {returns + self.word}]", "sub esi, ecx")
        out.add(f"lea {r}cx, [{r}sp + {returns + self.word}]")  # sp without the call
        room = -(-self.size(time=True) // self.word)
        out.add(*[f"push {r}cx"] * room)
        out.add(f"mov byte ptr [{r}sp], {MARKER:#x}", f"mov dword ptr [{r}sp + 1], edx")
        out.add(f"mov dword ptr [{r}sp + 5], esi")
        out.add(f"mov {self._size} ptr [{r}sp + 9], {r}cx")
        at = 9 + self.sp_bytes
        if wanted.time:
            out.add("rdtsc", f"mov dword ptr [{r}sp + {at}], eax")
            out.add(f"mov word ptr [{r}sp + {at + 4}], dx")
        out.add(f"mov {r}si, {r}sp", "cld")
        SENDS[wanted.sink](out, self.size(time=wanted.time))
        if wanted.word is not None:
            if self.word == 4:
                self._mark(out, "ecx")
            self._on_word(out, wanted, "mov {}, 0", LOCK, behind=4)
        out.add(f"lea {r}sp, [{r}sp + {room * self.word}]")
        out.add(*self._restore)

    def _lock(self, out: Assembly, wanted: Wanted) -> None:
        """Wait for the lock, but not forever: eax is what remains of esi while it is held."""
        out.add(f"mov esi, {PATIENCE}")
        again = out.here
        out.add("dec esi")
        self._on_word(out, wanted, "lock bts {}, 0", LOCK, behind=1)
        out.add("sbb eax, eax", "and eax, esi", f"jne ${again}")

    def _gate(self, out: Assembly, wanted: Wanted, stopped: int) -> None:
        """Return from a stopped tracer."""
        if self.word == 4:
            out.add("push ecx")
            self._mark(out, "ecx")
        self._on_word(out, wanted, "cmp {}, 0", behind=1)  # 83 3d
        if self.word == 4:
            out.add("pop ecx")
        out.add(f"jle ${stopped}")

    def _on_word(
        self, out: Assembly, wanted: Wanted, text: str, more: int = 0, behind: int = 0
    ) -> None:
        """Add an instruction on what is ``more`` bytes behind the word; its last ``behind`` bytes
        are an immediate. On i386, ecx is the mark's address."""
        assert wanted.word is not None
        distance = wanted.word + more
        if self.word == 4:
            out.add(text.format(f"dword ptr [ecx + {distance}]"))
            return
        at = out.near(lambda end: text.format(f"dword ptr [rip + {distance - end}]"), behind)
        if wanted.apart:
            out.field(at, to=wanted.word, word=True)

    def _mark(self, out: Assembly, register: str, *, apart: bool = False) -> None:
        """Load the mark's address, wherever it is at the moment."""
        if self.word == 8:
            at = out.near(lambda end: f"lea {register}, [rip + {-end}]")  # 48 8d
            if apart:
                out.field(at, to=0, word=False)
        else:
            after = out.here + 5
            out.add(f"call ${after}", f"pop {register}", f"sub {register}, {after}")


def _debugcon(out: Assembly, size: int) -> None:
    """Send all bytes at once: under KVM that is one exit."""
    out.add(f"mov ecx, {size}", f"mov edx, {DEBUGCON:#x}", "rep outsb")


def _serial(out: Assembly, size: int) -> None:
    """Send each byte when the transmitter has room, or has had none for long; ah counts bytes."""
    out.add(f"mov ah, {size}")
    byte = out.here
    out.add(f"mov ecx, {POLLS}", f"mov edx, {LINE_STATUS:#x}")
    wait = out.here
    out.add("in al, dx", f"test al, {EMPTY:#x}", f"loope ${wait}")
    out.add(f"mov edx, {SERIAL:#x}", "outsb", "dec ah", f"jne ${byte}")


def _distance(columns: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Decode little-endian signed numbers of four bytes, int64[n]."""
    return np.ascontiguousarray(columns).view("<i4")[:, 0].astype(np.int64)


def _number(columns: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Decode little-endian numbers of up to eight bytes, uint64[n]."""
    wide = np.zeros((len(columns), 8), np.uint8)
    wide[:, : columns.shape[1]] = columns
    return wide.view("<u8")[:, 0]


SENDS = {"debugcon": _debugcon, "serial": _serial}
