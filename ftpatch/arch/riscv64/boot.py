# SPDX-License-Identifier: MIT
"""The boot tracer of riscv64: it sends an event by one semihosting call, or by the SBI's console.

A site is `auipc t0; jalr t0, tracer(t0)` at the function's entry, so t1 to t6 are free, and ra is
where the function returns. An event is that of seven_bits.py, with eight bytes of the stack
pointer: Sv57 has addresses of 57 bits.

The firmware writes single bytes (SBI, chapter "Debug Console Extension": console_write_byte; before
version 2.0, the legacy console_putchar), so a lock keeps an event together. Calls leave all
registers alone but a0 and a1.
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

__all__ = ["BOOT_RISCV64"]

SBI = "sbi"
DEBUG_CONSOLE, WRITE_BYTE = 0x4442_434E, 2  # EID "DBCN" and its FID
PUTCHAR = 1  # EID of the legacy console_putchar, sbi_console_putchar(int ch)
EVENT = SevenBits(sp=8)
ROOM = 32  # bytes on the stack for an event and its NUL
SAVED = 16  # bytes for a0 and a1
KEPT = ("a0", "a1", "a6", "a7")
"""Registers for calls of the firmware."""
STOP = 0xC000_0000
"""Value of the counter word: stopped. Far enough from 0 that no late decrement wraps."""
LOCK = 4
"""Bytes from the counter word to the lock: 0, or 1 while an event is sent."""
PATIENCE = 1 << 21
"""Maximum number of attempts to take the lock: after that its holder must have been stopped."""
SIE = 2
"""sstatus.SIE: interrupts are on."""
CALL_ALIGN = 16
"""QEMU looks at the instructions around an ebreak only if they are in one page: twelve bytes."""
INSN = 4  # bytes
ROUND = 0x800


@dataclass(frozen=True, kw_only=True)
class _BootRiscv64(SevenBitTracer):
    name: str = "riscv64"
    sinks: tuple[str, ...] = (SEMIHOSTING, SBI)
    event: SevenBits = EVENT
    field: int = 57  # R_RISCV_32_PCREL
    tail: str = "__init_begin"
    locked: tuple[str, ...] = (SBI,)

    @property
    def emulator(self) -> Emulator:
        """The firmware's console is the kernel's, so the sink "sbi" has the words of both."""
        return Emulator(
            program="qemu-system-riscv64",
            package="qemu-system-misc",
            words=(
                *("-M", "virt", "-nodefaults", "-display", "none", "-no-reboot"),
                *("-m", "1G"),
            ),
            append="console=ttyS0 earlycon panic=-1",
            flat=True,
            sinks={
                SEMIHOSTING: SEMIHOSTED,
                SBI: (
                    *("-chardev", "file,id=both,path={stream},logfile={console}"),
                    *("-serial", "chardev:both"),
                ),
                MEMORY: SEMIHOSTED,
            },
            consoles={SEMIHOSTING: "", SBI: "", MEMORY: ""},
            shared=(SBI,),
        )

    def assemble(self, wanted: Wanted) -> TracerCode:
        """Build the code."""
        out = self.begun(wanted)
        body = {MEMORY: _to_memory, SEMIHOSTING: _by_call, SBI: _by_firmware}[wanted.sink]
        return out.assemble(wanted, self.sinks, ("jr t0",), partial(body, out, wanted))


def _begin(out: Assembly, wanted: Wanted, stopped: int, *, last: bool) -> None:
    """Load the mark's address into t1 and the word's into t2, and return from a stopped tracer."""
    if wanted.apart:
        _to_field(out, "t1", AT_MARK)
    else:
        out.add("auipc t1, 0", f"addi t1, t1, {-out.here}")
    if wanted.word is None:
        return
    if wanted.apart:
        _to_field(out, "t2", AT_WORD)
    else:
        high = (wanted.word + ROUND) >> 12
        low = wanted.word - (high << 12)
        out.add(f"lui t2, {high & 0xF_FFFF}", "add t2, t1, t2")
        out.add(f"addi t2, t2, {low}" if low else "nop")  # addi of 0 has another name
    out.add("lw t3, 0(t2)", f"blez t3, ${stopped}")
    if last:
        out.add(f"lui t3, {STOP >> 12}", "sw t3, 0(t2)")
    else:
        out.add("addi t3, zero, -1", "amoadd.w zero, t3, (t2)")


def _to_field(out: Assembly, register: str, at: int) -> None:
    """Load the address that a Field tells the distance to; t3 is lost."""
    out.add(f"auipc {register}, 0", f"addi {register}, {register}, {at - out.here}")
    out.add(f"lw t3, 0({register})", f"add {register}, {register}, t3")


def _by_call(out: Assembly, wanted: Wanted, stopped: int, last: bool) -> None:
    """One entry that makes a semihosting call; the ``last`` one stops the tracer."""
    _begin(out, wanted, stopped, last=last)
    out.add("sub t2, t0, t1", "sub t3, ra, t1", f"srli t4, sp, {EVENT.grain}")
    out.add(f"addi sp, sp, -{ROOM + SAVED}", f"sd a0, {ROOM}(sp)", f"sd a1, {ROOM + 8}(sp)")
    out.add(f"addi t5, zero, {MARKER}", "sb t5, 0(sp)")
    at = _bytes(out, 1, EVENT.place, "t2")
    at = _bytes(out, at, EVENT.place, "t3")
    at = _bytes(out, at, EVENT.sp, "t4")
    if wanted.time:
        out.add("rdtime t2")
        at = _bytes(out, at, EVENT.time, "t2")
    out.add(f"sb zero, {at}(sp)", "mv a1, sp")
    _semihosting(out, WRITE0)
    out.add(f"ld a0, {ROOM}(sp)", f"ld a1, {ROOM + 8}(sp)", f"addi sp, sp, {ROOM + SAVED}")
    out.add("jr t0")


def _by_firmware(out: Assembly, wanted: Wanted, stopped: int, last: bool) -> None:
    """One entry that calls the firmware for each byte; the ``last`` one stops the tracer. t2 is the
    lock's address, t6 sstatus."""
    _begin(out, wanted, stopped, last=last)
    out.add(f"csrrci t6, sstatus, {SIE}")
    if wanted.word is not None:
        _lock(out)
    out.add("sub t3, t0, t1", "sub t4, ra, t1", f"srli t1, sp, {EVENT.grain}")
    size = 8 * len(KEPT)
    out.add(f"addi sp, sp, -{size}")
    out.add(*(f"sd {name}, {8 * number}(sp)" for number, name in enumerate(KEPT)))
    high = (DEBUG_CONSOLE + ROUND) >> 12
    out.add(f"lui a7, {high}", f"addi a7, a7, {DEBUG_CONSOLE - (high << 12)}")
    out.add(f"addi a6, zero, {WRITE_BYTE}", f"addi a0, zero, {MARKER}", "ecall")
    taken = out.ahead("beqz a0,")
    out.add(f"addi a7, zero, {PUTCHAR}", f"addi a0, zero, {MARKER}", "ecall")
    out.land(taken)
    for register, count in (("t3", EVENT.place), ("t4", EVENT.place), ("t1", EVENT.sp)):
        _send(out, register, count)
    if wanted.time:
        out.add("rdtime t3")
        _send(out, "t3", EVENT.time)
    out.add(*(f"ld {name}, {8 * number}(sp)" for number, name in enumerate(KEPT)))
    out.add(f"addi sp, sp, {size}")
    if wanted.word is not None:
        out.add("fence rw, w", "sw zero, 0(t2)")
    _leave(out)


def _lock(out: Assembly) -> None:
    """Wait for the lock, but not forever, and load its address into t2."""
    out.add(f"addi t2, t2, {LOCK}", "addi t4, zero, 1", f"lui t3, {PATIENCE >> 12}")
    again = out.here
    out.add("addi t3, t3, -1", "amoswap.w.aq t5, t4, (t2)")
    enough = out.ahead("beqz t3,")
    out.add(f"bnez t5, ${again}")
    out.land(enough)


def _send(out: Assembly, register: str, count: int) -> None:
    """Call the firmware for each byte of seven bits of a register; t5 counts them."""
    out.add(f"addi t5, zero, {count}")
    byte = out.here
    out.add(f"andi a0, {register}, 0x7f", "ori a0, a0, 0x80", "ecall")
    out.add(f"srli {register}, {register}, 7", "addi t5, t5, -1", f"bnez t5, ${byte}")


def _to_memory(out: Assembly, wanted: Wanted, stopped: int, last: bool) -> None:
    """One entry that fills a slot of the ring; the ``last`` one stops the tracer. t3 is the slot's
    number, t4 its address, t6 sstatus."""
    slots = Slots(wanted.time)
    _begin(out, wanted, stopped, last=last)
    # An interrupt between taking a slot and filling it might wait for that slot.
    out.add(f"csrrci t6, sstatus, {SIE}", f"addi t3, t2, {Slots.HEAD}", "addi t4, zero, 1")
    out.add("amoadd.w t3, t4, (t3)", f"addi t5, zero, {slots.count}")
    wait = out.here
    out.add(f"lw t4, {Slots.TAIL}(t2)", "subw t4, t3, t4", f"bgeu t4, t5, ${wait}")
    out.add(f"andi t4, t3, {slots.count - 1}")
    if wanted.time:  # 24 bytes: three times 8
        out.add("slli t5, t4, 1", "add t4, t4, t5", "slli t4, t4, 3")
    else:
        out.add("slli t4, t4, 4")
    out.add("add t4, t2, t4", f"addi t4, t4, -{Slots.RING}")
    out.add("sub t5, ra, t1", "sw t5, 4(t4)", "sd sp, 8(t4)")
    if wanted.time:
        out.add("rdtime t5", "sd t5, 16(t4)")
    out.add("sub t5, t0, t1", "fence rw, w", "sw t5, 0(t4)")  # the slot is full
    out.add(f"andi t3, t3, {slots.told - 1}")
    leave = out.ahead("bnez t3,")
    out.add(f"addi sp, sp, -{SAVED}", "sd a0, 0(sp)", "sd a1, 8(sp)", "mv a1, t4")
    _semihosting(out, WRITEC)
    out.add("ld a0, 0(sp)", "ld a1, 8(sp)", f"addi sp, sp, {SAVED}")
    out.land(leave)
    _leave(out)


def _leave(out: Assembly) -> None:
    """Return, with interrupts as they were in t6."""
    out.add(f"andi t6, t6, {SIE}", "csrs sstatus, t6", "jr t0")


def _semihosting(out: Assembly, number: int) -> None:
    """A call ("RISC-V Semihosting", chapter 2): two shifts of nothing around an ebreak."""
    out.add(f"addi a0, zero, {number}")
    out.add(*["nop"] * (-out.here % CALL_ALIGN // INSN))
    out.add("slli zero, zero, 0x1f", "ebreak", "srai zero, zero, 7")


def _bytes(out: Assembly, at: int, count: int, register: str) -> int:
    """Store ``count`` bytes of seven bits each of a register from ``at`` on; return the end."""
    for number in range(count):
        out.add(f"ori t5, {register}, -128", f"sb t5, {at + number}(sp)")
        if number < count - 1:
            out.add(f"srli {register}, {register}, 7")
    return at + count


BOOT_RISCV64 = _BootRiscv64()
