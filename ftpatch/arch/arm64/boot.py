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

from ftpatch.arch.boot import MEMORY, Assembly, Emulator, Slots, TracerCode, Wanted
from ftpatch.arch.seven_bit_tracer import (
    AT_MARK,
    AT_WORD,
    SEMIHOSTED,
    SEMIHOSTING,
    WRITE0,
    WRITEC,
    SevenBitTracer,
)
from ftpatch.arch.seven_bits import MARKER, SevenBits

__all__ = ["BOOT_ARM64", "adr"]

HALF = 16  # bits that movk sets
EVENT = SevenBits(sp=7)
ROOM = 32  # bytes on the stack for an event and its NUL
SAVED = 16  # bytes for x0 and x1
INSN = 4  # bytes
BTI_C = bytes.fromhex("5f2403d5")  # bti c
RETURN = ("mov x10, x30", "mov x30, x9", "ret x10")  # with the lr that the function was called with

TELL = (
    *("stp x0, x1, [sp, -16]!", f"mov w0, #{WRITEC}", "mov x1, x14", "hlt #0xf000"),
    "ldp x0, x1, [sp], 16",
)


@dataclass(frozen=True, kw_only=True)
class _BootArm64(SevenBitTracer):
    name: str = "arm64"
    sinks: tuple[str, ...] = (SEMIHOSTING,)
    event: SevenBits = EVENT
    field: int = 261  # R_AARCH64_PREL32
    pads: bytes = b"\0"

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
            sinks=dict.fromkeys((SEMIHOSTING, MEMORY), SEMIHOSTED),
            consoles={SEMIHOSTING: "", MEMORY: ""},
        )

    def assemble(self, wanted: Wanted) -> TracerCode:
        """Build the code."""
        out = self.begun(wanted)
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
        at = _bytes(out, 1, EVENT.place, "x11")
        at = _bytes(out, at, EVENT.place, "x14")
        out.add(f"lsr x12, x12, #{EVENT.grain}")
        at = _bytes(out, at, EVENT.sp, "x12")
        if wanted.time:
            out.add("mrs x11, cntvct_el0")
            at = _bytes(out, at, EVENT.time, "x11")
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


BOOT_ARM64 = _BootArm64()
