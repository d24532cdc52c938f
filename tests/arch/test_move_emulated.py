# SPDX-License-Identifier: MIT
"""Instructions of libc and libstdc++ do elsewhere what they do at their site."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.move import Immovable, Moved, Mover, mover_of
from tests.support.emulator import Machine, Outcome
from tests.support.gnu import link_at
from tests.support.moves import LIBRARIES, library

BIAS = {"i386": 0x100_0000} | dict.fromkeys(("x86_64", "arm64", "riscv64"), 0x1_0000_0000)
SAMPLE = 1500
ARCHES = ("x86_64", "i386", "arm64", "riscv64")

ALONE = {
    "x86_64": [
        *(f"{kind} {where}" for kind in ("jo", "jae", "jne", "ja", "js", "jp", "jl", "jg")
          for where in (".+3", ".+0x40", "target")),
        *(f"{kind} .+0x30" for kind in ("loop", "loope", "loopne", "jrcxz", "jecxz", "jmp")),
        *(f"call {where}" for where in (".+5", ".+0x80", "target", "*%rax", "*%r11", "*(%rax)")),
        *(f"call *{m}" for m in ("8(%rsp)", "(%rsp)", "-16(%rsp)", "0x400(%rsp)", "8(%r12)")),
        *(f"call *{m}" for m in ("8(%rsp,%rcx,8)", "target(%rip)", "%fs:8", "-8(%rax,%rbx,2)")),
        *(f"jmp *{m}" for m in ("%rax", "8(%rsp)", "target(%rip)", "%rsp", "(%rbx)")),
        "movl $0x12345678, target(%rip)", "addb $7, target(%rip)", "lea target(%rip), %r9",
        "cmpq $-1, target(%rip)", "imul $0x1234, target(%rip), %ecx", "push target(%rip)",
        "shld $5, %rax, target(%rip)", "lock xadd %rdx, target(%rip)", "pop target(%rip)",
        "pshufd $0x1b, target(%rip), %xmm3", "mov %fs:0x28, %rax", "ret", "ret $16", "push %rsp",
        "rep movsb", "pushf", "leave", "cld", "cmpxchg16b target(%rip)", "notrack jmp *%rdx",
    ],
    "i386": [
        *(f"{kind} {where}" for kind in ("jo", "jae", "jne", "ja", "js", "jp", "jl", "jg")
          for where in (".+3", ".+0x40", "target")),
        *(f"{kind} .+0x30" for kind in ("loop", "loope", "loopne", "jecxz", "jcxz", "jmp")),
        *(f"call {where}" for where in (".+5", ".+0x80", "target", "*%eax", "*%esi", "*(%eax)")),
        *(f"call *{m}" for m in ("8(%esp)", "(%esp)", "-16(%esp)", "0x400(%esp)", "8(%ebx)")),
        *(f"call *{m}" for m in ("target", "-8(%eax,%ebx,2)")),
        *(f"jmp *{m}" for m in ("%eax", "8(%esp)", "target", "%esp", "(%ebx)")),
        "movl $0x12345678, target", "addb $7, target", "lea target, %edx", "inc %eax", "dec %edi",
        "push target", "shld $5, %eax, target", "lock xadd %edx, target", "pop target", "pusha",
        "pshufd $0x1b, target, %xmm3", "ret", "ret $16", "push %esp", "rep movsb", "pushf",
        "leave", "cld", "cmpxchg8b target", "notrack jmp *%edx", "aaa", "daa", "bound %eax, (%ebx)",
        "les (%ebx), %eax", "push %cs", "mov %ds, %eax", "enter $8, $0", "popa", "xlat",
    ],
    "arm64": [
        *(f"b.{c} target" for c in ("eq", "ne", "hs", "lo", "mi", "vs", "hi", "ge", "gt", "al")),
        "b target", "bl target", "b .+8", "bl .+4", "ret", "ret x7", "br x3", "blr x3", "blr x16",
        *(f"{kind} {r}, target" for kind in ("cbz", "cbnz") for r in ("x0", "w3", "xzr", "x30")),
        *(f"{kind} {r}, target" for kind in ("tbz", "tbnz") for r in ("w0, #3", "x7, #63")),
        "adr x5, target", "adr xzr, target", "adrp x9, target", "adrp xzr, target",
        *(f"ldr {r}, target" for r in ("x1", "w2", "xzr", "x30", "s0", "d1", "q2", "q31")),
        "ldrsw x4, target", "prfm pldl1keep, target", "paciasp", "stp x29, x30, [sp, #-32]!",
        "sub sp, sp, #64", "casp x0, x1, x2, x3, [x4]", "ldr q0, [sp]", "str d3, [sp, #-8]!",
    ],
    "riscv64": [
        *(f"{b} {r}, .+0x60" for b in ("beq", "bne", "blt", "bge", "bltu", "bgeu")
          for r in ("a0, a1", "s2, zero", "ra, t0")),
        *(f"{b} {r}, .+0x30" for b in ("c.beqz", "c.bnez") for r in ("a0", "s0", "a5")),
        "j target", "c.j .+0x40", "jal target", "jal t0, target", "jal .+4", "call target",
        "ret", "jr t1", "jr 16(a5)", "c.jr s1", "c.jalr a5", "jalr a4",
        "jalr t0, 8(s3)", "auipc a0, 0", "auipc ra, 0xfffff", "auipc t1, 0x12345", "auipc zero, 1",
        "addi sp, sp, -64", "c.addi16sp sp, -32", "c.sdsp ra, 8(sp)", "sd s0, 16(sp)",
        "c.mv a0, a1", "ld a0, 8(s1)", "c.li a0, 5", "lui a0, 0x12345", "c.nop", "nop",
        "mul a0, a1, a2", "amoadd.w a0, a1, (a2)", "fld fa0, 8(sp)", "fence",
        "fadd.d fa0, fa1, fa2",
    ],
}  # fmt: skip


def _mover(arch: str) -> Mover:
    mover = mover_of(arch)
    assert mover is not None
    return mover


def _compare(machine: Machine, at: int, moved: Moved, to: int, chance: random.Random) -> str:
    """Run both; what kind of end it was."""
    machine.write(to, moved.code)
    state = machine.state(chance)
    wanted = machine.run(state, at, moved.size)
    found = machine.run(state, to, len(moved.code))
    if wanted.fault:
        assert found.fault == wanted.fault
        return "fault"
    if machine.fixed:
        assert found == wanted, _difference(wanted, found)
    else:
        # arm64 and i386 have nothing below the stack pointer; what is above must be the same.
        sp = wanted.registers[len(machine.general)]
        keep = [
            {a: b for a, b in o.memory.items() if a >= sp or a < sp - 16} for o in (wanted, found)
        ]
        assert keep[0] == keep[1]
        assert (found.pc, found.registers) == (wanted.pc, wanted.registers), _difference(
            wanted, found
        )
        below = max(sp - state[machine.sp] + 128, 0)
        assert found.near[below:] == wanted.near[below:]
    return "behind" if wanted.pc == at + moved.size else "elsewhere"


def _difference(wanted: Outcome, found: Outcome) -> str:
    pairs = zip(wanted.registers, found.registers, strict=True)
    registers = [(i, hex(a), hex(b)) for i, (a, b) in enumerate(pairs) if a != b]
    return f"pc {wanted.pc:#x} {found.pc:#x} registers {registers} {wanted.memory} {found.memory}"


@pytest.mark.parametrize("arch", ARCHES)
def test_each_form_alone(arch: str) -> None:
    """Also those that no function begins with."""
    mover, chance = _mover(arch), random.Random(3)
    # The last page of the image is data, so that targets can be read and written.
    bias = BIAS[arch]
    machine = Machine(arch, ((0, bytes.fromhex("0100") * 0x1_8000),), bias)  # riscv64: c.nop
    target = bias + 0x6000
    machine.uc.mem_write(target, chance.randbytes(64))
    ats = [bias + 0x1000 + 64 * i for i in range(len(ALONE[arch]))]
    texts = [f"{'.arch armv8.5-a+lse;' * (arch == 'arm64')} {text}" for text in ALONE[arch]]
    codes = link_at(arch, [(at, text, target) for at, text in zip(ats, texts, strict=True)])
    for text, at, code in zip(ALONE[arch], ats, codes, strict=True):
        machine.write(at, code)
        ends: Counter[str] = Counter()
        for i in range(24):
            to = machine.slots + 64 * (24 * ats.index(at) + i)
            moved = mover.move(code, at, to, 1)
            assert moved.size == len(code)
            ends[_compare(machine, at, moved, to, chance)] += 1
        assert ends["behind"] + ends["elsewhere"] >= 2, (text, ends)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("arch", ARCHES)
def test_a_sample_of_functions(arch: str, name: str) -> None:
    """Half of it at starts, half at any instruction."""
    mover, chance = _mover(arch), random.Random(f"{arch} {name}")
    loaded = library(arch, name)
    machine = Machine(arch, loaded.segments, BIAS[arch])
    to, ends = machine.slots, Counter[str]()
    while ends.total() < SAMPLE:
        function = chance.choice(loaded.functions)
        skip = mover.landing(function.code)
        if chance.random() < 0.5:
            insns = disassemble(arch, function.code[:2048], 0)
            skip = chance.choice(insns).address if insns else skip
        at = BIAS[arch] + function.address + skip
        try:
            need = chance.choice([1, mover.jump_size])
            moved = mover.move(function.code[skip:], at, to, need)
        except Immovable:
            continue
        ends[_compare(machine, at, moved, to, chance)] += 1
        to += (len(moved.code) + 15) & ~15
    print(f"{arch} {name}: {dict(ends)}")
    assert ends["behind"] > SAMPLE // 2
    assert ends["elsewhere"] > SAMPLE // 20
