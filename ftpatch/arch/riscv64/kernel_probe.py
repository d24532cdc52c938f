# SPDX-License-Identifier: MIT
"""The code of probes in a riscv64 kernel on disk.

A site is `auipc t0; jalr t0, probe(t0)`: ra is where the function returns, and t1 to t6 are free.
The frame, which the code at a return makes as well:

    sp+0     8   16           80         144             152            160
    | status | - | buffer ... | a0 to a7 | ra: the return | t0: the site | sp of the function

An instance's key is that stack pointer. The tracer takes t0 for the place, and ra for a return
address; it changes t1 to t6. A jump leaves every register live but gp (kernel_text.py):

    ...    144  152             208
    | ...  | ra | t0, t1 to t6  | sp
"""

from __future__ import annotations

from typing import Final

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
from ftpatch.arch.riscv64.encode import RV

__all__ = ["KERNEL_PROBE"]

STATUS, BUFFER = 0, 16
SAVED_AT = BUFFER + TEXT
SAVED = range(10, 18)  # a0 to a7
RETURN, SITE = SAVED_AT + 8 * len(SAVED), SAVED_AT + 8 * len(SAVED) + 8
FRAME = SITE + 8
RA, SP = 1, 2
KEPT: Final = {4: "tp", 8: "s0", 9: "s1"} | {number: f"s{number - 16}" for number in range(18, 28)}
TEMPORARY: Final = {5: "t0", 6: "t1", 7: "t2"} | {
    number: f"t{number - 25}" for number in range(28, 32)
}
WIDE = SITE + 8 * len(TEMPORARY)
EFAULT = 14
FREE = "fence rw, w"
"""Order of what was done to an instance, and of freeing it."""


class _KernelProbe:
    registers = frozenset({*SAVED, *KEPT, RA, SP})
    frame = FRAME

    @property
    def jumped(self) -> KernelProbe:
        return _Jumped()

    def enter(self, out: Assembly) -> None:
        out.add(f"addi sp, sp, -{self.frame}", *(f"sd {one}" for one in _places()))
        out.add(f"sd ra, {RETURN}(sp)", f"sd t0, {SITE}(sp)")

    def leave(self, out: Assembly) -> None:
        out.add(*(f"ld {one}" for one in _places()), f"ld ra, {RETURN}(sp)", f"ld t0, {SITE}(sp)")
        out.add(f"addi sp, sp, {self.frame}", "jr t0")

    def arrive(self, out: Assembly, aim: Aim, pool: tuple[int, int]) -> None:
        self.enter(out)
        _mark(out)
        _begin(out, pool)
        out.add(f"addi t2, sp, {self.frame}", "mv a0, zero", "mv a1, zero")
        again = out.here
        out.add("ld t3, 0(t4)")
        other = out.ahead("bne t3, t2,")
        out.add("lw t3, 16(t4)")
        only = out.ahead("beqz a0,")
        out.add("subw t6, t3, a1")  # the latest, also where the number has wrapped
        older = out.ahead("bltz t6,")
        out.land(only)
        out.add("mv a0, t4", "mv a1, t3")
        out.land(other)
        out.land(older)
        _next(out, again)
        out.add("ld t3, 8(a0)", f"sd t3, {RETURN}(sp)", FREE, "sd zero, 0(a0)")

    def depart(self, out: Assembly) -> None:
        out.add(*(f"ld {one}" for one in _places()), f"ld ra, {RETURN}(sp)")
        out.add(f"addi sp, sp, {self.frame}", "ret")

    def claim(self, out: Assembly, aim: Aim, pool: tuple[int, int], to: int, tell: Tell) -> None:
        _mark(out)
        out.add(f"addi t2, sp, {self.frame}", f"ld t3, {RETURN}(sp)", "sub t3, t3, t1")
        _number(out, "t4", aim.span)
        followed = out.ahead("bltu t3, t4,")  # a tail call: one with this key may be in use
        _begin(out, pool)
        again = out.here
        out.add("ld t3, 0(t4)")
        left = out.ahead("beq t3, t2,")  # by a task that died
        _next(out, again)
        out.land(followed)
        _begin(out, pool)
        again = out.here
        out.add("lr.d t3, (t4)")
        used = out.ahead("bnez t3,")
        out.add("sc.d t6, t2, (t4)", f"bnez t6, ${again}")
        free = out.ahead("j")
        out.land(used)
        _next(out, again)
        out.add("mv ra, t1")
        _tracer(out, aim)
        tell(Part.MISSED)
        done = out.ahead("j")
        out.land(left)
        out.land(free)
        out.add(f"ld ra, {RETURN}(sp)", "sd ra, 8(t4)")
        _word(out, aim.words + 4)
        out.add("addi t6, zero, 1", "amoadd.w t5, t6, (t3)", "sw t5, 16(t4)")
        _near(out, "t5", to)
        out.add(f"sd t5, {RETURN}(sp)")
        _tracer(out, aim)
        tell(Part.ENTERED)
        out.land(done)

    def hit(self, out: Assembly, aim: Aim, *, inside: bool) -> None:
        if inside:
            _near(out, "ra", 0)
        else:
            out.add(f"ld ra, {RETURN}(sp)")
        _tracer(out, aim)

    def load(self, out: Assembly, aim: Aim, value: Value, *, returned: bool) -> None:
        number = value.number
        if value.first is First.ADDRESS:
            _mark(out)
            _number(out, "t3", aim.distance(number))
            out.add("add a0, t1, t3")
        elif value.first is First.STACK or number == SP:
            out.add(f"addi a0, sp, {self.frame}")
        elif number == RA:
            out.add(f"ld a0, {RETURN}(sp)")
        elif number in SAVED:
            out.add(f"ld a0, {SAVED_AT + 8 * (number - SAVED.start)}(sp)")
        elif number in TEMPORARY:
            out.add(f"ld a0, {SITE + 8 * list(TEMPORARY).index(number)}(sp)")
        else:
            out.add(f"mv a0, {KEPT[number]}")

    def read(self, out: Assembly, aim: Aim, read: Read, callee: int, *, first: bool) -> None:
        if first:
            out.add(f"sd zero, {STATUS}(sp)")
        _number(out, "t3", read.offset)
        out.add("add a1, a0, t3", f"sd zero, {BUFFER}(sp)")
        _count(out, aim, 1)
        out.add(f"addi a0, zero, -{EFAULT}", f"addi t6, zero, {NESTED}")
        nested = out.ahead("bgeu t5, t6,")
        out.add(f"addi a0, sp, {BUFFER}", f"addi a2, zero, {read.size or TEXT}")
        high, low = _halves(callee - out.here)
        out.add(f"auipc ra, {high}", f"jalr ra, {low}(ra)")
        out.land(nested)
        _count(out, aim, -1)
        if read.size:
            out.add(f"lw t3, {STATUS}(sp)", "or a0, a0, t3")
        out.add(f"sw a0, {STATUS}(sp)")  # of a string: bytes, or an error
        out.add(f"ld a0, {BUFFER}(sp)")

    def send(self, out: Assembly, aim: Aim, value: Value, tell: Tell) -> None:
        _mark(out)
        if value.linked:
            out.add("sub a0, a0, t1")
        out.add("add ra, t1, a0")
        _tracer(out, aim)
        tell(Part.LOW)
        if value.width > 4:
            _mark(out)
            out.add("srli a0, a0, 32", "add ra, t1, a0")
            _tracer(out, aim)
            tell(Part.HIGH)

    def text(self, out: Assembly, aim: Aim, tell: Tell) -> None:
        out.add("mv a2, zero")
        again = out.here
        _mark(out)
        out.add("add t3, sp, a2", f"lw a0, {BUFFER}(t3)", "add ra, t1, a0")
        _tracer(out, aim)
        tell(Part.TEXT)
        out.add("addi a2, a2, 4", f"lw t3, {STATUS}(sp)", f"blt a2, t3, ${again}")

    def status(self, out: Assembly, aim: Aim) -> None:
        _mark(out)
        out.add(f"lw a0, {STATUS}(sp)", "add ra, t1, a0")
        _tracer(out, aim)


class _Jumped(_KernelProbe):
    registers = _KernelProbe.registers | TEMPORARY.keys()
    frame = WIDE

    def enter(self, out: Assembly) -> None:
        out.add(f"addi sp, sp, -{self.frame}", *(f"sd {one}" for one in self._all()))

    def leave(self, out: Assembly) -> None:
        out.add(*(f"ld {one}" for one in self._all()), f"addi sp, sp, {self.frame}")

    def depart(self, out: Assembly) -> None:
        self.leave(out)
        out.add("ret")

    def _all(self) -> list[str]:
        more = [f"{name}, {SITE + 8 * n}(sp)" for n, name in enumerate(TEMPORARY.values())]
        return [*_places(), f"ra, {RETURN}(sp)", *more]


def _places() -> list[str]:
    """a0 to a7 with their places."""
    return [f"a{n}, {SAVED_AT + 8 * n}(sp)" for n in range(len(SAVED))]


def _tracer(out: Assembly, aim: Aim) -> None:
    """Call the tracer with ra."""
    out.add(f"jal t0, ${aim.entry}")


def _count(out: Assembly, aim: Aim, more: int) -> None:
    """Count a read that begins or ends; t5 is how many there were."""
    _mark(out)
    _word(out, aim.words)
    out.add(f"addi t6, zero, {more}", "amoadd.w t5, t6, (t3)")


def _begin(out: Assembly, pool: tuple[int, int]) -> None:
    """t4: the first instance, t5: how many; t1 is the mark."""
    at, count = pool
    _number(out, "t4", at)
    out.add("add t4, t1, t4")
    _number(out, "t5", count)


def _next(out: Assembly, again: int) -> None:
    """Go on with the next instance, if there is one."""
    out.add(f"addi t4, t4, {INSTANCE}", "addi t5, t5, -1", f"bnez t5, ${again}")


def _word(out: Assembly, at: int) -> None:
    """t3: an address so far from the mark, which is t1."""
    _number(out, "t3", at)
    out.add("add t3, t1, t3")


def _number(out: Assembly, register: str, number: int) -> None:
    """Load 32 bits, with their sign, by two instructions: addiw of 0 has another name."""
    high, low = _halves(number)
    out.add(f"lui {register}, {high}", f"addiw {register}, {register}, {low}" if low else "nop")


def _mark(out: Assembly) -> None:
    """t1: the mark."""
    _near(out, "t1", 0)


def _near(out: Assembly, register: str, to: int) -> None:
    """Load the address of a position."""
    high, low = _halves(to - out.here)
    out.add(f"auipc {register}, {high}")
    out.add(f"addi {register}, {register}, {low}" if low else "nop")


def _halves(number: int) -> tuple[int, int]:
    """The operands of lui or auipc, and of what adds the rest."""
    high = (number + RV.ROUND) >> 12
    return high & 0xF_FFFF, number - (high << 12)


KERNEL_PROBE: Final[KernelProbe] = _KernelProbe()
