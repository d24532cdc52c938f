# SPDX-License-Identifier: MIT
"""The boot tracer of arm64: it sends an event by one semihosting call.

A site is `mov x9, lr; bl tracer` before the function's frame, so x9 to x17 are free. They do not
hold all of an event that ends with a NUL byte: SYS_WRITE0 writes up to that, so an event has none.
It is 0x01, five bytes of the place, five of where the function returns, seven of the stack pointer
without its four lowest bits, and with times nine of the counter, seven bits each, lowest first,
with the highest bit set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import (
    MARK,
    MEMORY,
    Assembly,
    Emulator,
    Events,
    Slots,
    TracerCode,
    Wanted,
)

__all__ = ["BOOT_ARM64", "adr"]

MARKER = 0x01
HALF = 16  # bits that movk sets
WRITEC = 3  # SYS_WRITEC: x1 is the address of a byte
WRITE0 = 4  # SYS_WRITE0 of Arm's semihosting: x1 is the address of a string
PLACE, SP, TIME = 5, 7, 9  # bytes of each part
GRAIN = 4  # bits of a stack pointer that are zero: the ABI keeps it at multiples of 16
ROOM = 32  # bytes on the stack for an event and its NUL
SAVED = 16  # bytes for x0 and x1
INSN = 4  # bytes
BTI_C = bytes.fromhex("5f2403d5")  # bti c
RETURN = ("mov x10, x30", "mov x30, x9", "ret x10")  # with the lr that the function was called with

AT_MARK, AT_WORD = MARK.size, MARK.size + 4
"""Positions of the Fields of a tracer that is apart, before its code."""

TELL = (
    *("stp x0, x1, [sp, -16]!", f"mov w0, #{WRITEC}", "mov x1, x14", "hlt #0xf000"),
    "ldp x0, x1, [sp], 16",
)


@dataclass(frozen=True, kw_only=True)
class _BootArm64:
    name: str = "arm64"
    sinks: tuple[str, ...] = ("semihosting",)
    pads: bytes = b"\0"
    behind: int = 4
    marker: int = MARKER
    align: int = 16
    stack: int = 16384
    always_word: bool = False
    field: int = 261  # R_AARCH64_PREL32

    @property
    def emulator(self) -> Emulator:
        """The kernel enables KASLR; QEMU's own pointer authentication algorithm is the fast one."""
        return Emulator(
            program="qemu-system-aarch64",
            package="qemu-system-arm",
            words=(
                *("-M", "virt", "-cpu", "max,pauth-impdef=on", "-nodefaults", "-display", "none"),
                *("-no-reboot", "-m", "1G"),
            ),
            append="console=ttyAMA0 earlycon panic=-1",
            flat=True,
            sinks=dict.fromkeys(
                ("semihosting", MEMORY),
                (
                    *("-chardev", "file,id=events,path={stream}", "-semihosting-config"),
                    *("enable=on,target=native,chardev=events", "-serial", "file:{console}"),
                ),
            ),
            consoles={"semihosting": "", MEMORY: ""},
        )

    def size(self, *, time: bool, back: bool = True) -> int:
        """Bytes of an event."""
        return 1 + PLACE * (1 + back) + SP + TIME * time

    def read(self, rows: NDArray[np.uint8], *, time: bool, back: bool = True) -> Events:
        """Decode events, uint8[n, size]. One with an impossible byte gets an impossible stack
        pointer."""
        place = _distance(rows[:, 1 : 1 + PLACE])
        at = 1 + PLACE * (1 + back)
        returns = _distance(rows[:, 1 + PLACE : at]) if back else None
        sp = _number(rows[:, at : at + SP]) << np.uint64(GRAIN)
        sp |= np.where(sp >> np.uint64(52) > 0, np.uint64(0xFFF0_0000_0000_0000), np.uint64(0))
        sp += (rows[:, 1:] < 0x80).any(axis=1).astype(np.uint64)
        ticks = _number(rows[:, at + SP :]) if time else np.arange(len(rows), dtype=np.uint64)
        return Events(place, sp, ticks, returns)

    def assemble(self, wanted: Wanted) -> TracerCode:
        """Build the code."""
        out = Assembly(self.name)
        if wanted.apart:
            out.distance(word=False)
            if wanted.word is not None:
                out.distance(word=True)
        if wanted.sink != MEMORY:
            return out.assemble(wanted, self.sinks, RETURN, partial(self._body, out, wanted))
        leave = (*RETURN, *TELL, "msr daif, x17", *RETURN)
        return out.assemble(wanted, self.sinks, leave, partial(self._to_memory, out, wanted))

    def _to_memory(self, out: Assembly, wanted: Wanted, stopped: int, last: bool) -> None:
        """One entry that fills a slot of the ring; the ``last`` one stops it. Behind the return
        at ``stopped`` stand the call that tells the reader, and the way out. x11 is the word."""
        assert wanted.word is not None
        told = stopped + INSN * len(RETURN)
        leave, slots = told + INSN * len(TELL), Slots(wanted.time)
        out.words(adr(10, -out.here), "adr")  # adr x10, the mark
        self._count(out, wanted.word, stopped, last=last)
        # An interrupt between taking a slot and filling it might wait for that slot.
        out.add("mrs x17, daif", "msr daifset, #3", f"add x14, x11, #{Slots.HEAD}")
        again = out.here
        out.add(
            "ldxr w12, [x14]", "add w13, w12, #1", "stxr w15, w13, [x14]", f"cbnz w15, ${again}"
        )
        wait = out.here
        out.add(f"ldr w13, [x11, #{Slots.TAIL}]", "sub w13, w12, w13")
        out.add(f"cmp w13, #{slots.count}", f"b.hs ${wait}")
        out.add(f"and w13, w12, #{slots.count - 1}")
        if wanted.time:  # 24 bytes: three times 8
            out.add("add w13, w13, w13, lsl #1", "lsl w13, w13, #3")
        else:
            out.add("lsl w13, w13, #4")
        out.add(f"sub x14, x11, #{Slots.RING}", "add x14, x14, x13")
        out.add("sub w15, w9, w10", "str w15, [x14, #4]", "mov x16, sp", "str x16, [x14, #8]")
        if wanted.time:
            out.add("mrs x16, cntvct_el0", "str x16, [x14, 16]")
        out.add("sub w15, w30, w10", "stlr w15, [x14]")  # the slot is full
        out.add(f"tst w12, #{slots.told - 1}", f"b.ne ${leave}", f"b ${told}")

    def _body(self, out: Assembly, wanted: Wanted, stopped: int, last: bool) -> None:
        """One entry of the tracer; the ``last`` one stops it. x9 is the caller's lr."""
        if wanted.apart:
            out.words(BTI_C, "bti")  # a far call of a module comes by `br x16`
            _to_field(out, 10, AT_MARK)
        else:
            out.words(adr(10, -out.here), "adr")  # adr x10, the mark
        if wanted.word is not None:
            self._count(out, wanted.word, stopped, last=last, apart=wanted.apart)
        out.add("sub w11, w30, w10", "sub w14, w9, w10", "mov x12, sp")
        out.add(f"sub sp, sp, #{ROOM + SAVED}")
        out.add(f"stp x0, x1, [sp, #{ROOM}]", f"mov w13, #{MARKER}", "strb w13, [sp]")
        at = _bytes(out, 1, PLACE, "x11")
        at = _bytes(out, at, PLACE, "x14")
        out.add(f"lsr x12, x12, #{GRAIN}")
        at = _bytes(out, at, SP, "x12")
        if wanted.time:
            out.add("mrs x11, cntvct_el0")
            at = _bytes(out, at, TIME, "x11")
        out.add(f"strb wzr, [sp, #{at}]", f"mov w0, #{WRITE0}", "mov x1, sp", "hlt #0xf000")
        out.add(f"ldp x0, x1, [sp, #{ROOM}]", f"add sp, sp, #{ROOM + SAVED}", *RETURN)

    def _count(
        self, out: Assembly, word: int, stopped: int, *, last: bool, apart: bool = False
    ) -> None:
        """Return from a stopped tracer; flags are free on function entry. A word of its own stops
        it, which no other processor that is counting at that moment can overwrite."""
        low, high = word & 0xFFFF, word >> 16 & 0xFFFF
        if apart:
            _to_field(out, 11, AT_WORD)
        else:
            out.add(f"mov w11, #{low}", f"movk w11, #{high}, lsl #{HALF}")
            out.add("add x11, x10, w11, sxtw")
        out.add("ldp w12, w13, [x11]", f"cbnz w13, ${stopped}", "cmp w12, #0", f"b.le ${stopped}")
        if last:
            out.add("mov w12, #1", "str w12, [x11, #4]")
        else:
            out.add("sub w12, w12, #1", "str w12, [x11]")


def adr(register: int, distance: int) -> bytes:
    """adr (Arm ARM C6.2.10): Keystone takes its distance for something else."""
    low, high = distance & 3, distance >> 2 & 0x7FFFF
    return (0x1000_0000 | low << 29 | high << 5 | register).to_bytes(4, "little")


def _to_field(out: Assembly, register: int, at: int) -> None:
    """Load the address that a Field tells the distance to; x12 is lost."""
    out.words(adr(register, at - out.here), "adr")
    out.add(f"ldrsw x12, [x{register}]", f"add x{register}, x{register}, x12")


def _bytes(out: Assembly, at: int, count: int, register: str) -> int:
    """Store ``count`` bytes of seven bits each of a register from ``at`` on; return the end."""
    for number in range(count):
        out.add(f"orr w13, w{register[1:]}, #0x80", f"strb w13, [sp, #{at + number}]")
        if number < count - 1:
            out.add(f"lsr {register}, {register}, #7")
    return at + count


def _distance(columns: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Decode signed 32-bit numbers from seven bits per byte, int64[n]."""
    return _number(columns).astype(np.uint32).view(np.int32).astype(np.int64)


def _number(columns: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Decode numbers from seven bits per byte, lowest first, uint64[n]."""
    value = np.zeros(len(columns), np.uint64)
    for number in range(columns.shape[1]):
        low = (columns[:, number] & 0x7F).astype(np.uint64)
        value |= low << np.uint64(7 * number)
    return value


BOOT_ARM64 = _BootArm64()
