# SPDX-License-Identifier: MIT
"""The code of probes in an arm64 kernel on disk.

A site is `mov x9, lr; bl probe`: x9 is where the function returns, and x10 to x17 are free. The
frame, which the code at a return makes as well:

    sp+0     8   16           80         152              160             176
    | status | - | buffer ... | x0 to x8 | x9: the return | x30: the site | sp of the function

An instance's key is that stack pointer. The tracer takes x9 for a return address. A jump leaves
every register live:

    ...    152  160   168              240    248   256
    | ...  | x30 | x9 | x10 ... to x18 | nzcv | -   | sp
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.arm64.boot import adr
from ftpatch.arch.boot import Assembly
from ftpatch.arch.kernel_probe import (
    INSTANCE,
    NESTED,
    TEXT,
    Aim,
    First,
    KernelProbe,
    Part,
    Read,
    Tell,
    Value,
)

__all__ = ["KERNEL_PROBE"]

STATUS, BUFFER = 0, 16
SAVED_AT = BUFFER + TEXT
RETURN, SITE = SAVED_AT + 72, SAVED_AT + 80
FRAME = SAVED_AT + 96
SAVED = 9  # x0 to x8
KEPT = range(19, 30)
LR, SP, PSTATE = 30, 31, 32
EFAULT = 14
HALF = 16  # bits that movk sets
LOW = (
    *(f"stp x0, x1, [sp, #{SAVED_AT}]", f"stp x2, x3, [sp, #{SAVED_AT + 16}]"),
    *(f"stp x4, x5, [sp, #{SAVED_AT + 32}]", f"stp x6, x7, [sp, #{SAVED_AT + 48}]"),
)
HIGH = range(9, 19, 2)  # pairs from SITE on, behind a jump
NZCV = SITE + 80
WIDE = SITE + 96


class _KernelProbe:
    registers = frozenset({*range(SAVED), *KEPT, LR, SP})
    frame = FRAME

    @property
    def jumped(self) -> KernelProbe:
        return _Jumped()

    def enter(self, out: Assembly) -> None:
        out.add(f"sub sp, sp, #{self.frame}", *LOW)
        out.add(f"stp x8, x9, [sp, #{SAVED_AT + 64}]", f"str x30, [sp, #{SITE}]")

    def leave(self, out: Assembly) -> None:
        self._restore(out)
        out.add(f"ldr x10, [sp, #{SITE}]", f"add sp, sp, #{self.frame}")
        out.add("mov x30, x9", "ret x10")

    def _restore(self, out: Assembly) -> None:
        """Load x0 to x8, and where the function returns into x9."""
        out.add(*(line.replace("stp", "ldp") for line in LOW), f"ldp x8, x9, [sp, #{RETURN - 8}]")

    def arrive(self, out: Assembly, aim: Aim, pool: tuple[int, int]) -> None:
        at, count = pool
        self.enter(out)
        self._mark(out)
        self._begin(out, at, count)
        out.add(f"add x12, sp, #{self.frame}", "mov x16, #0", "mov w17, #0")
        again = out.here
        out.add("ldr x15, [x14]", "cmp x15, x12")
        other = out.ahead("b.ne")
        out.add("ldr w15, [x14, 16]")
        only = out.ahead("cbz x16,")
        out.add("sub w11, w15, w17")  # the latest, also where the number has wrapped
        older = out.ahead("tbnz w11, 31,")
        out.land(only)
        out.add("mov x16, x14", "mov w17, w15")
        out.land(other)
        out.land(older)
        out.add(f"add x14, x14, #{INSTANCE}", "subs w13, w13, #1", f"b.ne ${again}")
        out.add("ldr x9, [x16, #8]", f"str x9, [sp, #{RETURN}]", "stlr xzr, [x16]")  # it is free

    def depart(self, out: Assembly) -> None:
        self._restore(out)
        out.add("mov x30, x9", f"add sp, sp, #{self.frame}", "ret")

    def claim(self, out: Assembly, aim: Aim, pool: tuple[int, int], to: int, tell: Tell) -> None:
        at, count = pool
        self._mark(out)
        out.add(f"add x12, sp, #{self.frame}", f"ldr x11, [sp, #{RETURN}]", "sub x11, x11, x10")
        self._number(out, "w13", aim.span)
        out.add("cmp x11, x13")
        followed = out.ahead("b.lo")  # a tail call: one with this key may be in use
        self._begin(out, at, count)
        again = out.here
        out.add("ldr x15, [x14]", "cmp x15, x12")
        left = out.ahead("b.eq")  # by a task that died
        out.add(f"add x14, x14, #{INSTANCE}", "subs w13, w13, #1", f"b.ne ${again}")
        out.land(followed)
        self._begin(out, at, count)
        again = out.here
        out.add("ldxr x15, [x14]")
        used = out.ahead("cbnz x15,")
        out.add("stxr w16, x12, [x14]", f"cbnz w16, ${again}")
        free = out.ahead("b")
        out.land(used)
        out.add(f"add x14, x14, #{INSTANCE}", "subs w13, w13, #1", f"b.ne ${again}")
        out.add("mov x9, x10", f"bl ${aim.entry}")
        tell(Part.MISSED)
        done = out.ahead("b")
        out.land(left)
        out.land(free)
        out.add(f"ldr x9, [sp, #{RETURN}]", "str x9, [x14, #8]")
        self._word(out, aim.words + 4)
        again = out.here
        out.add("ldxr w15, [x13]", "add w11, w15, #1", "stxr w16, w11, [x13]")
        out.add(f"cbnz w16, ${again}", "str w15, [x14, 16]")
        out.words(adr(11, to - out.here), "adr")  # adr x11, where it returns to
        out.add(f"str x11, [sp, #{RETURN}]", f"bl ${aim.entry}")
        tell(Part.ENTERED)
        out.land(done)

    def hit(self, out: Assembly, aim: Aim, *, inside: bool) -> None:
        if inside:
            self._mark(out)
            out.add("mov x9, x10", f"bl ${aim.entry}")
        else:
            out.add(f"ldr x9, [sp, #{RETURN}]", f"bl ${aim.entry}")

    def load(self, out: Assembly, aim: Aim, value: Value, *, returned: bool) -> None:
        number = value.number
        if value.first is First.ADDRESS:
            self._mark(out)
            self._number(out, "w11", aim.distance(number))
            out.add("add x0, x10, w11, sxtw")
        elif value.first is First.STACK or number == SP:
            out.add(f"add x0, sp, #{self.frame}")
        elif number == LR:
            out.add(f"ldr x0, [sp, #{RETURN}]")
        elif number < SAVED:
            out.add(f"ldr x0, [sp, {SAVED_AT + 8 * number}]")
        elif number == PSTATE:  # its flags alone
            out.add(f"ldr x0, [sp, {NZCV}]")
        elif number in range(HIGH.start, HIGH.stop):
            out.add(f"ldr x0, [sp, {SITE + 8 * (number - HIGH.start)}]")
        else:
            out.add(f"mov x0, x{number}")

    def read(self, out: Assembly, aim: Aim, read: Read, callee: int, *, first: bool) -> None:
        if first:
            out.add(f"str xzr, [sp, #{STATUS}]")
        self._number(out, "w11", read.offset)
        out.add("add x1, x0, w11, sxtw", f"str xzr, [sp, #{BUFFER}]")
        self._mark(out)
        self._count(out, aim, "add")
        out.add(f"mov w0, #{-EFAULT}", f"cmp w15, #{NESTED}")
        nested = out.ahead("b.hs")
        out.add(f"add x0, sp, #{BUFFER}", f"mov x2, #{read.size or TEXT}", f"bl ${callee}")
        out.land(nested)
        self._mark(out)
        self._count(out, aim, "sub")
        if read.size:
            out.add(f"ldr w11, [sp, #{STATUS}]", "orr w0, w0, w11")
        out.add(f"str w0, [sp, #{STATUS}]")  # of a string: bytes, or an error
        out.add(f"ldr x0, [sp, {BUFFER}]")

    def send(self, out: Assembly, aim: Aim, value: Value, tell: Tell) -> None:
        self._mark(out)
        if value.linked:
            out.add("sub x0, x0, x10")
        out.add("add x9, x10, x0", f"bl ${aim.entry}")
        tell(Part.LOW)
        if value.width > 4:
            self._mark(out)
            out.add("add x9, x10, x0, lsr #0x20", f"bl ${aim.entry}")
            tell(Part.HIGH)

    def text(self, out: Assembly, aim: Aim, tell: Tell) -> None:
        out.add("mov x2, #0")
        again = out.here
        self._mark(out)
        out.add(f"add x3, sp, #{BUFFER}", "ldr w0, [x3, x2]", "add x9, x10, x0")
        out.add(f"bl ${aim.entry}")
        tell(Part.TEXT)
        out.add("add x2, x2, #4", f"ldr w11, [sp, #{STATUS}]", "cmp w2, w11", f"b.lt ${again}")

    def status(self, out: Assembly, aim: Aim) -> None:
        self._mark(out)
        out.add(f"ldr w0, [sp, #{STATUS}]", "add x9, x10, x0", f"bl ${aim.entry}")

    def _count(self, out: Assembly, aim: Aim, how: str) -> None:
        """Count a read that begins or ends; w15 is how many there were. x10 is the mark."""
        self._word(out, aim.words)
        again = out.here
        out.add("ldxr w15, [x13]", f"{how} w11, w15, #1", "stxr w17, w11, [x13]")
        out.add(f"cbnz w17, ${again}")

    def _begin(self, out: Assembly, at: int, count: int) -> None:
        """x14: the first instance, w13: how many; x10 is the mark."""
        self._number(out, "w14", at)
        out.add("add x14, x10, w14, sxtw", f"mov w13, #{count}")

    def _word(self, out: Assembly, at: int) -> None:
        """x13: an address so far from the mark, which is x10."""
        self._number(out, "w13", at)
        out.add("add x13, x10, w13, sxtw")

    def _number(self, out: Assembly, register: str, number: int) -> None:
        """Load 32 bits."""
        out.add(f"mov {register}, #{number & 0xFFFF}")
        out.add(f"movk {register}, #{number >> 16 & 0xFFFF}, lsl #{HALF}")

    def _mark(self, out: Assembly) -> None:
        """x10: the mark."""
        out.words(adr(10, -out.here), "adr")


class _Jumped(_KernelProbe):
    registers = _KernelProbe.registers | {*range(HIGH.start, HIGH.stop), PSTATE}
    frame = WIDE

    def enter(self, out: Assembly) -> None:
        out.add(f"sub sp, sp, #{self.frame}", *LOW, f"stp x8, x30, [sp, #{RETURN - 8}]")
        out.add(*(f"stp x{n}, x{n + 1}, [sp, #{SITE + 8 * (n - 9)}]" for n in HIGH))
        out.add("mrs x10, nzcv", f"str x10, [sp, #{NZCV}]")

    def leave(self, out: Assembly) -> None:
        out.add(f"ldr x10, [sp, #{NZCV}]", "msr nzcv, x10")
        out.add(*(line.replace("stp", "ldp") for line in LOW), f"ldp x8, x30, [sp, #{RETURN - 8}]")
        out.add(*(f"ldp x{n}, x{n + 1}, [sp, #{SITE + 8 * (n - 9)}]" for n in HIGH))
        out.add(f"add sp, sp, #{self.frame}")

    def depart(self, out: Assembly) -> None:
        self.leave(out)
        out.add("ret")


KERNEL_PROBE: Final[KernelProbe] = _KernelProbe()
