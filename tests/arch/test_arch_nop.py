# SPDX-License-Identifier: MIT
"""make_nop: every form does nothing, for as many bytes as it should."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ftpatch.arch import Abi, State, architectures
from tests.support.command import PATIENCE
from tests.support.cross_root import CROSS, use_cross_root
from tests.support.gnu import program, runner
from tests.support.readers import disassembled, target_of

ARCHES = {arch.name: arch for arch in architectures().values()}
IP = 0x40_1000
SIGN = 0x0101_0101
PAIRED = ("arm", "arm64", "loongarch64", "riscv64", "ppc64le")
"""A site is two instructions."""


def _forms(name: str) -> list[tuple[str, bytes, int]]:
    """(name, bytes, width) of everything that make_nop can write."""
    arch = ARCHES[name]
    widths = [8] if name in PAIRED else {"s390x": [6]}.get(name, [5, 6])
    chosen = {"": b"", **arch.nops}
    out = []
    for label, nop in chosen.items():
        for width in widths:
            code = arch.make_nop(np.array([width], np.uint8), nop, Abi(pad=True))
            assert not code[0, width:].any()
            out.append((f"{label or 'own'}-{width}", code[0, :width].tobytes(), width))
    for nop in sorted(arch.own_nops):
        code = arch.make_nop(np.array([5], np.uint8), b"", Abi(nop=nop))
        out.append((f"image's {nop.hex()}", code[0, :5].tobytes(), 5))
    return out


ALL = [
    pytest.param(name, code, width, id=f"{name} {label}")
    for name in ARCHES
    for label, code, width in _forms(name)
]
READ = [one for one in ALL if ARCHES[str(one.values[0])].capstone]
"""The others are asked of objdump (test_loongarch64.py)."""


@pytest.mark.parametrize(("name", "code", "width"), READ)
def test_capstone_reads_a_nop(name: str, code: bytes, width: int) -> None:
    assert len(code) == width
    read = disassembled(name, code, IP)
    assert sum(i.size for i in read) == width, "Capstone knows every byte"
    if read[0].mnemonic == "jmp":
        assert target_of(read[0]) == IP + width
        read = read[1:]
        assert all(i.mnemonic == "nop" for i in read)
        return
    if read[0].mnemonic == "brcl":  # a mask of 0: never taken
        assert read[0].operands[0].imm == 0
        read = read[1:]
        assert not read
        return
    for i in read:
        # lea %ds:0x0(%esi,%eiz,1),%esi is GNU's NOP for processors without nopl.
        is_lea = i.mnemonic == "lea" and i.op_str == "esi, ds:[esi]"
        assert is_lea or "nop" in i.mnemonic or i.op_str == "ax, ax"
    assert len(read) == (2 if name in PAIRED else 1), "one instruction, or the pair"


@pytest.mark.parametrize(("name", "code", "width"), ALL)
def test_decode_knows_it(name: str, code: bytes, width: int) -> None:
    arch = ARCHES[name]
    row = np.zeros((1, arch.width), np.uint8)
    row[0, :width] = list(code)
    abi = Abi(pad=True, nop=code if code in arch.own_nops else b"")
    state, addr, read, _ = arch.decode(row, np.array([IP], np.uint64), abi)
    assert (state[0], addr[0], read[0]) == (State.NOP, 0, width)


def test_each_name_is_its_form() -> None:
    """The option's words are the kernel's: P6 NOP5, five prefixed NOP, and a jump over."""
    for name in ("x86_64", "i386"):
        assert ARCHES[name].nops == {
            "p6": bytes.fromhex("0f1f440000"),
            "nop5": bytes.fromhex("6666666690"),
            "jmp": bytes.fromhex("eb03909090"),
        }
    assert ARCHES["arm64"].nops == ARCHES["riscv64"].nops == {}


@pytest.mark.parametrize("name", ["x86_64", "i386"])
def test_without_a_choice_it_is_the_image_s_own_and_else_p6(name: str) -> None:
    arch = ARCHES[name]
    five = np.array([5], np.uint8)
    own = bytes.fromhex("6666666690")
    assert arch.make_nop(five, b"", Abi())[0, :5].tobytes() == arch.nops["p6"]
    assert arch.make_nop(five, b"", Abi(nop=own))[0, :5].tobytes() == own
    assert arch.make_nop(five, arch.nops["jmp"], Abi(nop=own))[0, :5].tobytes()[:1] == b"\xeb"


def _x86(name: str, codes: list[bytes]) -> str:
    """Sets all registers and flags, runs the codes, and exits with 1 if anything changed."""
    wide = name == "x86_64"
    names = ["ax", "bx", "cx", "dx", "si", "di", "bp"]
    registers = [("r" if wide else "e") + n for n in names] + [f"r{i}" for i in range(8, 16)] * wide
    a, sp, size = registers[0], "rsp" if wide else "esp", 8 if wide else 4
    suffix = "q" if wide else "l"
    lines = [".globl _start", "_start:", f"sub $256, %{sp}", f"push{suffix} $0x8d5"]
    lines += [f"mov $0x{SIGN * (i + 1):x}, %{r}" for i, r in enumerate(registers)]
    lines += [f"mov %{sp}, saved", f"popf{suffix}"]
    lines += [f".byte {','.join(map(str, code))}" for code in codes]
    lines += [f"pushf{suffix}", f"cmp %{sp}, saved", "jne bad"]
    lines += [f"cmp $0x{SIGN * (i + 1):x}, %{r}\njne bad" for i, r in enumerate(registers)]
    lines += [f"mov (%{sp}), %{a}", f"and $0xcd5, %{a}", f"cmp $0x8d5, %{a}", "jne bad"]
    good, bad = ("xor %edi, %edi", "mov $1, %edi") if wide else ("xor %ebx, %ebx", "mov $1, %ebx")
    end = ["mov $60, %eax", "syscall"] if wide else ["mov $1, %eax", "int $0x80"]
    lines += [good, *end, "bad:", bad, *end, ".bss", f"saved: .skip {size}"]
    return "\n".join(lines) + "\n"


def _arm64(codes: list[bytes]) -> str:
    lines = [".globl _start", "_start:", "mov x0, #-1", "cmp x0, #5"]
    registers = [i for i in range(31) if i not in (18, 29)]
    lines += [f"movz x{i}, #{i + 7}, lsl #16" for i in registers]
    lines += ["mov x29, sp"]
    lines += [f".byte {','.join(map(str, code))}" for code in codes]
    lines += ["b.pl bad", "b.eq bad", "b.cc bad", "b.vs bad", "cmp sp, x29", "b.ne bad"]
    for i in registers:
        lines += [f"movz x29, #{i + 7}, lsl #16", f"cmp x{i}, x29", "b.ne bad"]
    end = ["mov x8, #93", "svc #0"]
    lines += ["mov x0, #0", *end, "bad:", "mov x0, #1", *end]
    return "\n".join(lines) + "\n"


def _riscv64(codes: list[bytes]) -> str:
    registers = [i for i in range(1, 32) if i not in (2, 8)]
    lines = [".globl _start", "_start:", "mv s0, sp"]
    lines += [f"li x{i}, {SIGN * i}" for i in registers]
    lines += [f".byte {','.join(map(str, code))}" for code in codes]
    lines += ["bne s0, sp, bad"]
    for i in registers:
        lines += [f"li s0, {SIGN * i}", f"bne x{i}, s0, bad"]
    end = ["li a7, 93", "ecall"]
    lines += ["li a0, 0", *end, "bad:", "li a0, 1", *end]
    return "\n".join(lines) + "\n"


def _ppc64le(codes: list[bytes]) -> str:
    registers = [i for i in range(3, 32) if i != 13]
    lines = [".abiversion 2", ".globl _start", "_start:", "mr 13, 1"]
    lines += [f"lis {i}, {0x101 * i}\nori {i}, {i}, {i}" for i in registers]
    lines += ["mtlr 3", "mtctr 4", "li 0, 77", "cmpdi 0, 5"]
    lines += [f".byte {','.join(map(str, code))}" for code in codes]
    lines += ["ble bad", "cmpdi 0, 77", "bne bad", "cmpd 13, 1", "bne bad"]
    lines += ["mflr 0", "cmpd 0, 3", "bne bad", "mfctr 0", "cmpd 0, 4", "bne bad"]
    for i in registers:
        lines += [f"lis 0, {0x101 * i}", f"ori 0, 0, {i}", f"cmpd {i}, 0", "bne bad"]
    end = ["li 0, 1", "sc"]
    lines += ["li 3, 0", *end, "bad:", "li 3, 1", *end]
    return "\n".join(lines) + "\n"


def _arm(codes: list[bytes]) -> str:
    registers = [i for i in range(15) if i not in (11, 13)]
    lines = [".globl _start", "_start:", "mov r11, sp", "mov r0, #1", "cmp r0, #5"]
    lines += [f"mov r{i}, #{i + 7}" for i in registers]
    lines += [f".byte {','.join(map(str, code))}" for code in codes]
    lines += ["bpl bad", "beq bad", "bcs bad", "bvs bad", "cmp sp, r11", "bne bad"]
    for i in registers:
        lines += [f"cmp r{i}, #{i + 7}", "bne bad"]
    end = ["mov r7, #1", "svc #0"]
    lines += ["mov r0, #0", *end, "bad:", "mov r0, #1", *end]
    return "\n".join(lines) + "\n"


def _loongarch64(codes: list[bytes]) -> str:
    registers = [i for i in range(1, 32) if i not in (2, 3, 22)]
    lines = [".globl _start", "_start:", "move $fp, $sp"]
    lines += [f"li.d $r{i}, {SIGN * i}" for i in registers]
    lines += [f".byte {','.join(map(str, code))}" for code in codes]
    lines += ["bne $fp, $sp, bad"]
    for i in registers:
        lines += [f"li.d $fp, {SIGN * i}", f"bne $r{i}, $fp, bad"]
    end = ["li.w $a7, 93", "syscall 0"]
    lines += ["li.w $a0, 0", *end, "bad:", "li.w $a0, 1", *end]
    return "\n".join(lines) + "\n"


def _s390x(codes: list[bytes]) -> str:
    registers = [i for i in range(15) if i != 13]
    lines = [".globl _start", "_start:", "lgr %r13, %r15"]
    lines += [f"llilf %r{i}, {SIGN * (i + 1)}" for i in registers]
    lines += ["cghi %r14, 5"]
    lines += [f".byte {','.join(map(str, code))}" for code in codes]
    lines += ["jnh bad", "cgr %r13, %r15", "jne bad"]
    for i in registers:
        lines += [f"llilf %r13, {SIGN * (i + 1)}", f"cgr %r{i}, %r13", "jne bad"]
    lines += ["lghi %r2, 0", "svc 1", "bad:", "lghi %r2, 1", "svc 1"]
    return "\n".join(lines) + "\n"


HARNESSES = {
    "arm": _arm, "arm64": _arm64, "loongarch64": _loongarch64, "riscv64": _riscv64,
    "ppc64le": _ppc64le, "s390x": _s390x,
}  # fmt: skip


def _run(name: str, codes: list[bytes], folder: Path) -> int:
    if name in CROSS:
        use_cross_root(name)
    target = folder / "program"
    source = HARNESSES.get(name, partial(_x86, name))(codes)
    program(name, source, target)
    return subprocess.run([*runner(name), str(target)], check=False, timeout=PATIENCE).returncode


@pytest.mark.parametrize("name", ARCHES)
def test_executed_it_changes_nothing(name: str, tmp_path: Path) -> None:
    assert _run(name, [code for _, code, _ in _forms(name)], tmp_path) == 0


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("x86_64", b"\x48\xff\xc0"),  # inc %rax
        ("x86_64", b"\xf8"),  # clc
        ("i386", b"\x46"),  # inc %esi
        ("arm64", bytes.fromhex("21040091")),  # add x1, x1, #1
        ("riscv64", bytes.fromhex("9382f2ff")),  # addi t0, t0, -1
        ("ppc64le", bytes.fromhex("01002939")),  # addi r9, r9, 1
        ("s390x", bytes.fromhex("a79b0001")),  # aghi %r9, 1
        ("arm", bytes.fromhex("015085e2")),  # add r5, r5, #1
        ("loongarch64", bytes.fromhex("2905c002")),  # addi.d $a5, $a5, 1
    ],
)
def test_the_harness_sees_a_change(name: str, code: bytes, tmp_path: Path) -> None:
    assert _run(name, [code], tmp_path) == 1
