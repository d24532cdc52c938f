# SPDX-License-Identifier: MIT
"""The code of probes in an x86_64 kernel on disk.

The frame below what the site's call has pushed, which the code at a return makes as well:

    rsp+0     8      16           80                152           160
    | back  | status | buffer ... | saved registers | site's return | function's return |

The tracer that is called there finds the word ``back`` where a function's return address is. A jump
has pushed nothing: flags are where the site's return would be.
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

__all__ = ["KERNEL_PROBE"]

STATUS, BUFFER = 8, 16
SAVED_AT = BUFFER + TEXT
SAVED = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")
"""Registers that a called C function may change (System V psABI, figure 3.4)."""
NUMBERS = {0: "rax", 1: "rcx", 2: "rdx", 6: "rsi", 7: "rdi", 8: "r8", 9: "r9", 10: "r10", 11: "r11"}
KEPT = {3: "rbx", 5: "rbp", 12: "r12", 13: "r13", 14: "r14", 15: "r15"}
SP, FLAGS = 4, 16
SITE = SAVED_AT + 8 * len(SAVED)
RETURN = SITE + 8
EFAULT = 14


class _KernelProbe:
    registers = frozenset({SP, *NUMBERS, *KEPT})

    @property
    def jumped(self) -> KernelProbe:
        return _Jumped()

    def enter(self, out: Assembly) -> None:
        self._save(out)

    def _save(self, out: Assembly) -> None:
        out.add(*(f"push {name}" for name in reversed(SAVED)), f"sub rsp, {SAVED_AT}")

    def leave(self, out: Assembly) -> None:
        out.add(f"add rsp, {SAVED_AT}", *(f"pop {name}" for name in SAVED), "ret")

    def arrive(self, out: Assembly, aim: Aim, pool: tuple[int, int]) -> None:
        at, count = pool
        out.add("sub rsp, 16")  # ret has popped the return address; there was no site's
        self._save(out)
        self._mark(out, "rcx")
        out.add(f"lea rdx, [rsp + {RETURN}]", f"lea rdi, [rcx + {at}]", f"mov esi, {count}")
        out.add("xor r8d, r8d", "xor r9d, r9d")
        again = out.here
        out.add("cmp qword ptr [rdi], rdx")
        other = out.ahead("jne")
        out.add("mov eax, dword ptr [rdi + 16]", "test r8, r8")
        only = out.ahead("je")
        out.add("mov r10d, eax", "sub r10d, r9d")  # the latest, also where the number has wrapped
        older = out.ahead("js")
        out.land(only)
        out.add("mov r8, rdi", "mov r9d, eax")
        out.land(other)
        out.land(older)
        out.add(f"add rdi, {INSTANCE}", "dec esi", f"jne ${again}")
        out.add("mov rax, qword ptr [r8 + 8]", "mov qword ptr [rdx], rax")
        out.add("mov qword ptr [r8], 0")  # it is free

    def depart(self, out: Assembly) -> None:
        out.add(f"add rsp, {SAVED_AT}", *(f"pop {name}" for name in SAVED))
        out.add("lea rsp, [rsp + 8]", "ret")

    def claim(self, out: Assembly, aim: Aim, pool: tuple[int, int], to: int, tell: Tell) -> None:
        at, count = pool
        begin = (f"lea rdi, [rcx + {at}]", f"mov esi, {count}")
        self._mark(out, "rcx")
        out.add(f"lea rdx, [rsp + {RETURN}]", "mov rax, qword ptr [rdx]", "sub rax, rcx")
        out.add(f"cmp rax, {aim.span}")
        followed = out.ahead("jb")  # a tail call: one with this key may be in use
        out.add(*begin)
        again = out.here
        out.add("cmp qword ptr [rdi], rdx")
        left = out.ahead("je")  # by a task that died
        out.add(f"add rdi, {INSTANCE}", "dec esi", f"jne ${again}")
        out.land(followed)
        out.add(*begin)
        again = out.here
        out.add("xor eax, eax", "lock cmpxchg qword ptr [rdi], rdx")
        free = out.ahead("je")
        out.add(f"add rdi, {INSTANCE}", "dec esi", f"jne ${again}")
        out.add("mov qword ptr [rsp], rcx", f"call ${aim.entry}")
        tell(Part.MISSED)
        done = out.ahead("jmp")
        out.land(left)
        out.land(free)
        out.add("mov rax, qword ptr [rdx]", "mov qword ptr [rdi + 8], rax")
        out.add("mov qword ptr [rsp], rax", "mov eax, 1")
        out.add(f"lock xadd dword ptr [rcx + {aim.words + 4}], eax")
        out.add("mov dword ptr [rdi + 16], eax")
        out.near(lambda end: f"lea rax, [rip + {to - end}]")
        out.add("mov qword ptr [rdx], rax", f"call ${aim.entry}")
        tell(Part.ENTERED)
        out.land(done)

    def hit(self, out: Assembly, aim: Aim, *, inside: bool) -> None:
        if inside:
            self._mark(out, "rax")
        else:
            out.add(f"mov rax, qword ptr [rsp + {RETURN}]")
        out.add("mov qword ptr [rsp], rax", f"call ${aim.entry}")

    def load(self, out: Assembly, aim: Aim, value: Value, *, returned: bool) -> None:
        number = value.number
        if value.first is First.ADDRESS:
            self._mark(out, "rax")
            out.add(f"add rax, {aim.distance(number)}")
        elif value.first is First.STACK or number == SP:
            out.add(f"lea rax, [rsp + {RETURN + 8 * returned}]")
        elif number in KEPT:
            out.add(f"mov rax, {KEPT[number]}")
        elif number == FLAGS:
            out.add(f"mov rax, qword ptr [rsp + {SITE}]")
        else:
            at = SAVED_AT + 8 * SAVED.index(NUMBERS[number])
            out.add(f"mov rax, qword ptr [rsp + {at}]")

    def read(self, out: Assembly, aim: Aim, read: Read, callee: int, *, first: bool) -> None:
        words = f"dword ptr [rcx + {aim.words}]"
        if first:
            out.add(f"mov qword ptr [rsp + {STATUS}], 0")
        out.add(f"lea rsi, [rax + {read.offset}]", f"mov qword ptr [rsp + {BUFFER}], 0")
        self._mark(out, "rcx")
        out.add(f"lock inc {words}", f"cmp {words}, {NESTED}", f"mov eax, {-EFAULT}")
        nested = out.ahead("ja")
        out.add(f"lea rdi, [rsp + {BUFFER}]", f"mov edx, {read.size or TEXT}", f"call ${callee}")
        out.land(nested)
        self._mark(out, "rcx")
        out.add(f"lock dec {words}")
        if read.size:
            out.add(f"or dword ptr [rsp + {STATUS}], eax")
        else:
            out.add(f"mov dword ptr [rsp + {STATUS}], eax")  # bytes, or an error
        out.add(f"mov rax, qword ptr [rsp + {BUFFER}]")

    def send(self, out: Assembly, aim: Aim, value: Value, tell: Tell) -> None:
        self._mark(out, "rcx")
        if value.linked:
            out.add("sub rax, rcx")
        self._word(out, aim)
        tell(Part.LOW)
        if value.width > 4:
            out.add("shr rax, 32")
            self._word(out, aim)
            tell(Part.HIGH)

    def text(self, out: Assembly, aim: Aim, tell: Tell) -> None:
        self._mark(out, "rcx")
        out.add("xor esi, esi")
        again = out.here
        out.add(f"mov eax, dword ptr [rsp + rsi + {BUFFER}]")
        self._word(out, aim)
        tell(Part.TEXT)
        out.add("add esi, 4", f"cmp esi, dword ptr [rsp + {STATUS}]", f"jl ${again}")

    def status(self, out: Assembly, aim: Aim) -> None:
        self._mark(out, "rcx")
        out.add(f"mov eax, dword ptr [rsp + {STATUS}]")
        self._word(out, aim)

    def _word(self, out: Assembly, aim: Aim) -> None:
        """Call the tracer with the low half of rax; rcx is the mark. It changes no register."""
        out.add("lea rdx, [rcx + rax]", "mov qword ptr [rsp], rdx", f"call ${aim.entry}")

    def _mark(self, out: Assembly, register: str) -> None:
        out.near(lambda end: f"lea {register}, [rip + {-end}]")


class _Jumped(_KernelProbe):
    registers = _KernelProbe.registers | {FLAGS}

    def enter(self, out: Assembly) -> None:
        out.add("pushfq")
        self._save(out)
        out.add("cld")  # as C code has it

    def leave(self, out: Assembly) -> None:
        out.add(f"add rsp, {SAVED_AT}", *(f"pop {name}" for name in SAVED), "popfq")


KERNEL_PROBE: Final[KernelProbe] = _KernelProbe()
