# SPDX-License-Identifier: MIT
"""Programs compiled while testing, for every architecture, and what runs them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.gnu import runner

__all__ = ["END", "MAIN", "OTHER", "TARGETS", "Target"]

MAIN = """
int printf(const char *, ...);
extern int calls;
__attribute__((noinline)) int one(int a) { return a * 3; }
__attribute__((noinline)) int two(int a) { return one(a) + one(a + 1); }
__attribute__((patchable_function_entry(0, 0), no_instrument_function))
int main(void) { int r = two(4); printf("%d %d\\n", r, calls); return 0; }
"""
"""Prints "27 0", or "27 3" where one() and two() call ftrace_caller."""
OTHER = "__attribute__((noinline)) int other(int a) { return a * 5; }\n"
END = """
    .bss
    .globl calls
    .balign 64
calls: .zero 64
    .section .note.GNU-stack,"",%progbits
"""
X86_64 = """
    .globl ftrace_caller, __fentry__
    .type ftrace_caller, %function
    .type __fentry__, %function
ftrace_caller:
    incl calls(%rip)
    ret
__fentry__:
    ret
"""
I386 = """
    .globl ftrace_caller
    .type ftrace_caller, %function
ftrace_caller:
    pushl %eax
    call 1f
1:  popl %eax
    incl calls - 1b(%eax)  // the flags are free at a function's entry, and behind its prologue
    popl %eax
    ret
"""
ARM64 = """
    .globl ftrace_caller
    .type ftrace_caller, %function
ftrace_caller:
    hint #34  // bti c
    stp x11, x12, [sp, #-16]!
    adrp x11, calls
    ldr w12, [x11, :lo12:calls]
    add w12, w12, #1
    str w12, [x11, :lo12:calls]
    ldp x11, x12, [sp], #16
    mov x10, x30
    mov x30, x9
    ret x10
"""
RISCV64 = """
    .globl ftrace_caller
    .type ftrace_caller, %function
ftrace_caller:
    addi sp, sp, -16
    sd t1, 0(sp)
    sd t2, 8(sp)
    lla t1, calls
    lw t2, 0(t1)
    addi t2, t2, 1
    sw t2, 0(t1)
    ld t1, 0(sp)
    ld t2, 8(sp)
    addi sp, sp, 16
    jr t0
"""
S390X = """
    .globl ftrace_caller, __fentry__
    .type ftrace_caller, %function
    .type __fentry__, %function
ftrace_caller:  // a function's own registers have room in its caller's frame
    stg %r2, 16(%r15)
    larl %r2, calls
    asi 0(%r2), 1
    lg %r2, 16(%r15)
    br %r1
__fentry__:
    lgr %r1, %r0
    br %r1
"""
PPC64LE = """
    .globl ftrace_caller
    .type ftrace_caller, %function
ftrace_caller:
    std 9, -8(1)  // r1 protects what is below it
    std 10, -16(1)
    mflr 12
    bcl 20, 31, 1f
1:  mflr 9
    addis 9, 9, calls - 1b@ha
    lwz 10, calls - 1b@l(9)
    addi 10, 10, 1
    stw 10, calls - 1b@l(9)
    ld 9, -8(1)
    ld 10, -16(1)
    mtctr 12
    mtlr 0
    bctr
"""
ARM = """
    .arm
    .globl ftrace_caller
    .type ftrace_caller, %function
ftrace_caller:
    push {r0, r1, r2}
    mrs r2, cpsr
    ldr r0, 1f
2:  add r0, pc, r0
    ldr r1, [r0]
    add r1, r1, #1
    str r1, [r0]
    msr cpsr_f, r2
    pop {r0, r1, r2}
    mov ip, lr
    pop {lr}
    bx ip
1:  .word calls - (2b + 8)
"""
LOONGARCH64 = """
    .globl ftrace_caller
    .type ftrace_caller, %function
ftrace_caller:
    la.pcrel $t1, calls
    ld.w $t2, $t1, 0
    addi.w $t2, $t2, 1
    st.w $t2, $t1, 0
    move $t1, $ra
    move $ra, $t0
    jr $t1
"""


@dataclass(frozen=True)
class Target:
    """``clang`` are the flags that make clang's code like gcc's, ``own`` those that every source of
    an architecture gets, ``cpu`` the processor that its emulator needs for them."""

    arch: str
    triple: str
    gcc: str
    caller: str
    clang: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    cpu: str = ""

    def command(self, compiler: str) -> list[str]:
        """The compiler (gcc or clang) for this architecture; skips where there is none."""
        name = self.gcc if compiler == "gcc" else compiler
        for needed in (name, self.gcc):
            if shutil.which(needed) is None:
                pytest.skip(f"{needed} is not installed")
        cross = [f"--target={self.triple}", *self.clang] if compiler == "clang" else []
        return [name, *cross]

    def compile(self, compiler: str, flags: Sequence[str], source: Path) -> Path:
        """One object, beside its source."""
        part = source.with_suffix(".o")
        command = [
            *self.command(compiler),
            "-O2",
            "-c",
            *self.own,
            *flags,
            str(source),
            "-o",
            str(part),
        ]
        subprocess.run(command, check=True)
        return part

    def link(self, parts: Sequence[Path | str], flags: Sequence[str], program: Path) -> Path:
        """Link with libc, by gcc."""
        command = [*self.command("gcc"), *map(str, parts), *flags, "-o", str(program)]
        subprocess.run(command, check=True)
        return program

    def build(
        self, folder: Path, *objects: tuple[str, list[str]], flags: Sequence[str] = ("-no-pie",)
    ) -> Path:
        """A program of MAIN, compiled by the first (compiler, flags), and of OTHER by the others;
        ``flags`` are the linker's."""
        caller = folder / "caller.S"
        caller.write_text(f"    .text{self.caller}{END}")
        parts = [self.compile("gcc", [], caller)]
        for number, (compiler, own) in enumerate(objects):
            source = folder / f"{number}.c"
            source.write_text(OTHER if number else MAIN)
            parts.append(self.compile(compiler, own, source))
        return self.link(parts, flags, folder / "program")

    def run(self, program: Path) -> str:
        """What the program prints."""
        command = runner(self.arch)
        libraries = Path(shutil.which(self.gcc) or "/usr/bin/gcc").parents[1] / self.triple
        if (command or self.arch == "i386") and not (libraries / "lib").exists():
            pytest.skip(f"no libraries for {self.arch} in {libraries}")
        if command:
            cpu = ["-cpu", self.cpu] if self.cpu else []
            command = [*command, *cpu, "-L", str(libraries)]
        elif self.arch == "i386":  # whose loader is not where the program looks for it
            folder = libraries / "lib"
            command = [str(folder / "ld-linux.so.2"), "--library-path", str(folder)]
        done = subprocess.run([*command, program], check=True, capture_output=True, text=True)
        return done.stdout


TARGETS = {
    target.arch: target
    for target in (
        Target("x86_64", "x86_64-linux-gnu", "gcc", X86_64),
        Target("i386", "i686-linux-gnu", "i686-linux-gnu-gcc", I386),
        Target("arm64", "aarch64-linux-gnu", "aarch64-linux-gnu-gcc", ARM64),
        Target(
            "riscv64",
            "riscv64-linux-gnu",
            "riscv64-linux-gnu-gcc",
            RISCV64,
            ("-march=rv64gc", "-mabi=lp64d", "-mno-relax"),
        ),
        Target("s390x", "s390x-linux-gnu", "s390x-linux-gnu-gcc", S390X),
        # Addresses relative to pc: each function has one entry, with the pad behind it.
        Target(
            "ppc64le",
            "powerpc64le-linux-gnu",
            "powerpc64le-linux-gnu-gcc",
            PPC64LE,
            own=("-mcpu=power10",),
            cpu="power10",
        ),
        Target("arm", "arm-linux-gnueabihf", "arm-linux-gnueabihf-gcc", ARM),
        Target(
            "loongarch64", "loongarch64-linux-gnu", "loongarch64-linux-gnu-gcc", LOONGARCH64
        ),  # see cross_root.py
    )
}
