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

BIAS = dict.fromkeys(("i386", "arm", "thumb"), 0x100_0000) | dict.fromkeys(
    ("x86_64", "arm64", "riscv64", "s390x"), 0x1_0000_0000
)
SAMPLE = 1500
ARCHES = ("x86_64", "i386", "arm64", "riscv64", "arm", "thumb", "s390x")
NAMES = {"thumb": "arm"}
"""Architectures of instruction sets with other names."""
SETS = ("arm", "thumb")

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
    "s390x": [
        *(f"j{c} .+0x60" for c in ("o", "h", "nle", "l", "nhe", "lh", "ne", "e", "nl", "nh", "no")),
        *(f"jg{c} target" for c in ("o", "h", "l", "ne", "e")), "j .+0x40", "jg target",
        "brc 0, .+0x40", "brcl 0, target",
        *(f"{b} .+0x40" for b in ("brct %r3,", "brctg %r4,", "brxh %r2, %r4,", "brxle %r2, %r5,",
                                  "brxhg %r2, %r4,", "brxlg %r2, %r5,")),
        *(f"{b}e %r1, %r3, .+0x40" for b in ("cgrj", "clgrj", "crj", "clrj")),
        *(f"{b}l %r2, 5, .+0x40" for b in ("cgij", "clgij", "cij", "clij")),
        "brasl %r14, target", "brasl %r1, target", "bras %r13, .+0x20", "bras %r14, .+4",
        "basr %r14, %r3", "basr %r13, 0", "balr %r14, %r5", "br %r14", "br %r1", "bner %r14",
        "b 0(%r3)", "bc 8, 16(%r3)", "bctr %r2, %r3", "bct %r2, 0(%r3)",
        "larl %r1, target", "larl %r14, target", "lgrl %r3, target", "lrl %r3, target",
        "lgfrl %r3, target", "llgfrl %r3, target", "lhrl %r3, target", "llghrl %r3, target",
        "stgrl %r3, target", "strl %r3, target", "sthrl %r3, target", "cgrl %r3, target",
        "clrl %r3, target", "chrl %r3, target", "cghrl %r3, target", "clgfrl %r3, target",
        "exrl %r2, target+64", "pfdrl 1, target",
        "stmg %r6, %r15, 48(%r15)", "lay %r15, -160(%r15)", "aghi %r15, -176", "lgr %r1, %r15",
        "la %r11, 160(%r15)", "lmg %r6, %r13, 48(%r15)", "ltgr %r2, %r2", "xc 0(8,%r3),0(%r4)",
        "mvc 0(8,%r3),0(%r4)", "cs %r1, %r2, 0(%r3)", "lghi %r2, 5", "ld %f0, 0(%r3)",
        "adbr %f0, %f2", "stckf 0(%r3)", "ear %r1, %a0", "ipm %r1", "clfi %r2, 7",
        "risbg %r1,%r2,0,31,0",
    ],
    "arm": [
        *(f"b{c} .+0x60" for c in ("eq", "ne", "hs", "lo", "mi", "vs", "hi", "ls", "gt", "le")),
        "b target", "bl target", "bleq target", "bllt .+0x40", "blx target+0x40", "b .+8", "bl .+4",
        "blx .+0x42", "blx r3", "blxne r4", "blx ip", "bx lr", "bxeq r7", "mov pc, lr",
        "mov pc, r3",
        "ldr r3, .+0x400", "ldreq r3, .-0x400", "ldr lr, .+0x40", "ldrb r0, .+0x40",
        "ldrh r9, .+0x40",
        "ldrsb r5, .+0x40", "ldrsh r1, .-0x40", "ldrd r2, r3, .+0x40", "ldrdne r6, r7, .-0x40",
        "ldr r0, [pc, r1]", "ldr r3, [pc, -r3, lsl #2]", "ldrb r2, [pc, r7]", "ldrh r4, [pc, r4]",
        "add r3, pc, r3", "add r0, r1, pc", "addne r3, pc, r3", "add r4, pc, #16",
        "sub r5, pc, #64",
        "adds r4, pc, #16", "sub r0, pc, r0", "rsb r2, pc, #0", "mov r3, pc", "moveq ip, pc",
        "mvn r3, pc", "cmp r0, pc", "tst pc, r4", "add r1, r2, pc, lsl #3", "orr lr, pc, #1",
        "vldr d0, .-0x40", "vldr s5, .+0x40", "vldreq d3, .-0x40", "vldr d17, .+0x40",
        "pld [pc, #16]", "pop {r4, pc}", "popeq {r4, pc}", "ldr pc, [r3]", "ldr pc, [sp], #8",
        "push {r4, lr}", "str lr, [sp, #-4]!", "sub sp, sp, #24", "movw r0, #0x1234", "nop",
        "movt r3, #0x1234", "strd r4, r5, [sp]", "mla r0, r1, r2, r3", "ubfx r0, r1, #2, #4",
        "vpush {d8-d9}", "vadd.f64 d0, d1, d2", "vmrs apsr_nzcv, fpscr", "clz r0, r1", "dmb ish",
        "vld1.32 {d0}, [r1]", "uxtb r0, r1", "umull r0, r1, r2, r3", "mrs r0, apsr", "pld [r0]",
    ],
    "thumb": [
        *(f"b{c}.n .+0x60" for c in ("eq", "ne", "hs", "lo", "mi", "vs", "hi", "ls", "gt", "le")),
        *(f"b{c}.w .+0x160" for c in ("eq", "ne", "hs", "lo", "pl", "vc", "ge", "lt")),
        *(f"{kind} {r}, .+0x40" for kind in ("cbz", "cbnz") for r in ("r0", "r3", "r7")),
        "b.n .+0x40", "b.n .-0x60", "b.w .+0x4000", "bl .+0x4000", "blx target",
        "bl .-0x40", "blx r3",
        "blx ip", "bx lr", "bx r3", "mov pc, lr", "mov pc, r2", "pop {r4, pc}",
        "pop.w {r4, r8, pc}",
        "ldr.n r3, .+0x40", "ldr.w r3, .+0x800", "ldr.w r9, .-0x40", "ldr.w lr, .+0x40",
        "ldrb.w r0, .+0x40", "ldrh.w r1, .-0x40", "ldrsb.w r2, .+0x40", "ldrsh.w ip, .+0x40",
        "ldrd r2, r3, .+0x40", "ldrd r8, r1, .-0x40", "adr.n r0, .+0x40", "adr.w r9, .-0x40",
        "adr.w r0, .+0x400", "add r3, pc", "add r0, pc", "add lr, pc", "add r9, pc", "mov r3, pc",
        "mov ip, pc", "vldr d0, .+0x40", "vldr s3, .-0x40", "vldr d18, .+0x40", "pld [pc, #16]",
        "ldr.w pc, [r3]", "ldr pc, [sp], #4", "push {r4, lr}", "push.w {r4, r8, lr}",
        "nop", "nop.w",
        "sub sp, #24", "movs r0, #1", "mov.w r0, #0x100", "cmp r0, #3", "subs r1, r2, #3",
        "movw r0, #0x1234", "movt r3, #0x1234", "strd r4, r5, [sp]", "mla r0, r1, r2, r3",
        "vpush {d8-d9}", "vadd.f64 d0, d1, d2", "vmrs apsr_nzcv, fpscr", "dmb ish", "uxtb r0, r1",
        "ubfx r0, r1, #2, #4", "bfc r0, #2, #4", "vld1.32 {d0}, [r1]", "add sp, r0", "mrs r0, apsr",
        "clz r0, r1", "stmdb sp!, {r3, r4, lr}", "str.w lr, [sp, #-4]!", "mvn.w r0, r1", "pld [r0]",
        "add.w r0, sp, #8", "tst.w r0, #1", "sxth.w r0, r8",
    ],
}  # fmt: skip


def _mover(arch: str) -> Mover:
    mover = mover_of(NAMES.get(arch, arch))
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
        # Nor has what was below it at first, when a frame is made there.
        sp, first = wanted.registers[len(machine.general)], state[machine.sp]
        free = {a for a in range(first - 16, first) if a not in wanted.memory}
        free |= {*range(sp - 16, sp)}
        keep = [{a: b for a, b in o.memory.items() if a not in free} for o in (wanted, found)]
        assert keep[0] == keep[1]
        assert (found.pc, found.registers) == (wanted.pc, wanted.registers), _difference(
            wanted, found
        )
        for a in range(max(sp, first - 128), first + 128):
            row = a - first + 128
            assert a in free or found.near[row] == wanted.near[row]
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
    second = arch == "thumb"
    target = bias + 0x6000
    machine.uc.mem_write(target, chance.randbytes(64))
    if arch == "s390x":
        machine.uc.mem_write(target + 64, bytes.fromhex("d200 3000 4000"))  # for exrl: mvc
    ats = [bias + 0x1000 + 64 * i for i in range(len(ALONE[arch]))]
    begin = {"arm64": ".arch armv8.5-a+lse;"} | dict.fromkeys(SETS, ".syntax unified;")
    texts = [f"{begin.get(arch, '')} {text}" for text in ALONE[arch]]
    codes = link_at(arch, [(at, text, target) for at, text in zip(ats, texts, strict=True)])
    for text, at, code in zip(ALONE[arch], ats, codes, strict=True):
        machine.write(at, code)
        ends: Counter[str] = Counter()
        for i in range(24):
            to = machine.slots + 64 * (24 * ats.index(at) + i)
            moved = mover.move(code, at | second, to, 1)
            assert moved.size == len(code)
            ends[_compare(machine, at | second, moved, to | second, chance)] += 1
        assert ends["behind"] + ends["elsewhere"] >= 2, (text, ends)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("arch", [one for one in ARCHES if one != "arm"])  # all is in Thumb
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
            insns = disassemble(NAMES.get(arch, arch), function.code[:2048], function.address & 1)
            skip = chance.choice(insns).address if insns else skip
        at = BIAS[arch] + function.address + skip
        try:
            need = chance.choice([1, mover.jump_size])
            moved = mover.move(function.code[skip:], at, to, need)
        except Immovable:
            continue
        second = function.address & 1 if arch in SETS else 0
        ends[_compare(machine, at, moved, to | second, chance)] += 1
        to += (len(moved.code) + 15) & ~15
    print(f"{arch} {name}: {dict(ends)}")
    assert ends["behind"] > SAMPLE // 2
    assert ends["elsewhere"] > SAMPLE // 20


@pytest.mark.parametrize("arch", SETS)
def test_random_words(arch: str) -> None:
    """Of 32-bit ARM, with pc in many of their fields: moved, they do the same, or are refused."""
    mover, chance, second = _mover(arch), random.Random(arch), arch == "thumb"
    machine = Machine(arch, ((0, random.Random(9).randbytes(0x4_0000)),), BIAS[arch])
    at, to, ends = BIAS[arch] + 0x8000, machine.slots, Counter[str]()
    while ends.total() < SAMPLE:
        code = _word(chance, thumb=second)
        try:
            moved = mover.move(code, at | second, to | second, 1)
        except Immovable as error:
            ends[error.why.name] += 1
            continue
        machine.write(at, code[: moved.size])
        ends[_compare(machine, at | second, moved, to | second, chance)] += 1
        to += (len(moved.code) + 15) & ~15
    assert ends["behind"] > SAMPLE // 10 and ends["elsewhere"] > SAMPLE // 50, ends


def _word(chance: random.Random, *, thumb: bool) -> bytes:
    """An instruction, but none that changes the processor's mode (msr)."""
    while True:
        word = chance.getrandbits(32)
        if thumb:
            wide = chance.choice([0xE800, 0xF000, 0xF800]) | word & 0x7FF
            word = word & 0xFFFF_0000 | (wide if chance.random() < 0.7 else word & 0xFFFF)
            word |= 0xF * (chance.random() < 0.4 and word >> 11 & 31 > 28)
            if word & 0xFFE0 != 0xF380:
                return word.to_bytes(4, "little")
        else:
            word = word & 0x0FFF_FFFF | 0xE000_0000 if chance.random() < 0.8 else word
            for field in (0, 12, 16):
                word |= (0xF << field) * (chance.random() < 0.25)
            if word & 0x0DB0_F000 != 0x0120_F000:
                return word.to_bytes(4, "little")
