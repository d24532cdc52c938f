# SPDX-License-Identifier: MIT
"""Code of injected calls: GNU as makes the same of its assembly, and Capstone reads it back."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import capstone
import numpy as np
import pytest

from ftpatch.arch import feature
from ftpatch.arch.injected_call import Done, Function, GoingOn, InjectedCall, Step, SystemCall
from ftpatch.arch.thread_state import thread_state_of

BACK, MASK = 0x5555_5555_1234, 0xFFFF_FFFE_7FFB_FEFF
NEAR, FAR, NEGATIVE = 0x1000, 0x7FFF_F7DD_3000, -1


def _call(arch: str) -> InjectedCall:
    found: InjectedCall = feature(arch, "injected_call")
    return found


def _steps(call: InjectedCall) -> tuple[Step, ...]:
    return (
        SystemCall(call.mmap, (FAR, NEAR, 5, 0x100022, NEGATIVE, 0)),
        SystemCall(call.munmap, (NEAR, FAR)),
        Function(FAR, (NEAR, NEGATIVE), FAR + 0x1008),
        Done(FAR, 3),
    )


def _whole(arch: str, steps: Sequence[Step], **registers: int) -> bytes:
    call, state = _call(arch), thread_state_of(arch)
    held = np.zeros(1, state.layout)[0]
    for name, value in registers.items():
        held[name] = value
    vectors = bytes(n % 251 for n in range(state.vectors[1]))
    return call.make(steps) + call.tail(GoingOn(registers=held, vectors=vectors, mask=MASK))


X86_64 = """
    lea -128(%rsp), %rsp
    pushfq
    cld
    push %rax; push %rcx; push %rdx; push %rsi; push %rdi
    push %r8; push %r9; push %r10; push %r11
    push %rbx
    mov %rsp, %rbx
    movabs $0x7ffff7dd3000, %rdi
    mov $0x1000, %rsi
    mov $5, %rdx
    mov $0x100022, %r10
    mov $-1, %r8
    mov $0, %r9
    mov $9, %rax
    syscall
    test %rax, %rax
    {disp32} js end
    mov $0x1000, %rdi
    movabs $0x7ffff7dd3000, %rsi
    mov $11, %rax
    syscall
    test %rax, %rax
    {disp32} js end
    mov $0x1000, %rdi
    mov $-1, %rsi
    movabs $0x7ffff7dd4000, %rsp
    movabs $0x7ffff7dd3000, %rax
    call *%rax
    mov $3, %rax
    movabs %rax, 0x7ffff7dd3000
end:
    mov %rbx, %rsp
    mov $14, %eax
    mov $2, %edi
    lea mask(%rip), %rsi
    xor %edx, %edx
    mov $8, %r10d
    syscall
    pop %rbx
    pop %r11; pop %r10; pop %r9; pop %r8
    pop %rdi; pop %rsi; pop %rdx; pop %rcx; pop %rax
    popfq
    {disp32} lea 128(%rsp), %rsp
    notrack jmp *0(%rip)
    .quad 0x555555551234
mask:
    .quad 0xfffffffe7ffbfeff
"""
ARM64 = """
    hint #38
    movz x0, #0x3000
    movk x0, #0xf7dd, lsl #16
    movk x0, #0x7fff, lsl #32
    movz x1, #0x1000
    movz x2, #5
    movz x3, #0x22
    movk x3, #0x10, lsl #16
    movn x4, #0
    movz x5, #0
    movz x8, #222
    svc #0
    tbnz x0, #63, end
    movz x0, #0x1000
    movz x1, #0x3000
    movk x1, #0xf7dd, lsl #16
    movk x1, #0x7fff, lsl #32
    movz x8, #215
    svc #0
    tbnz x0, #63, end
    movz x0, #0x1000
    movn x1, #0
    movz x9, #0x4000
    movk x9, #0xf7dd, lsl #16
    movk x9, #0x7fff, lsl #32
    movz x16, #0x3000
    movk x16, #0xf7dd, lsl #16
    movk x16, #0x7fff, lsl #32
    mov sp, x9
    blr x16
    movz x0, #3
    movz x1, #0x3000
    movk x1, #0xf7dd, lsl #16
    movk x1, #0x7fff, lsl #32
    str x0, [x1]
end:
    adr x9, frame
    mov sp, x9
    movz x8, #139
    svc #0
    .p2align 4
    .set frame, . - (128 + 16)
"""


@pytest.mark.parametrize(
    ("arch", "prefix", "text", "tail"),
    [
        ("x86_64", "x86_64-linux-gnu-", X86_64, 0),
        ("arm64", "aarch64-linux-gnu-", ARM64, 992),
    ],
    ids=["x86_64", "arm64"],
)
def test_as_gnu_as_assembles_it(
    tmp_path: Path, arch: str, prefix: str, text: str, tail: int
) -> None:
    if shutil.which(f"{prefix}as") is None:
        pytest.skip(f"needs GNU as for {arch}")
    source, built, raw = tmp_path / "call.s", tmp_path / "call.o", tmp_path / "call.bin"
    source.write_text(text)
    subprocess.run([f"{prefix}as", source, "-o", built], check=True)
    subprocess.run([f"{prefix}objcopy", "-O", "binary", built, raw], check=True)
    code = _whole(arch, _steps(_call(arch)), **{thread_state_of(arch).ip: BACK})
    assert code[: len(code) - tail] == raw.read_bytes()


FRAME = r"""
#include <asm/sigcontext.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <signal.h>
#include <ucontext.h>
struct frame { siginfo_t info; ucontext_t uc; };
static union { struct frame frame; unsigned char bytes[sizeof(struct frame)]; } u;
int main(void)
{
	size_t from = offsetof(struct frame, uc.uc_stack), size = fread(u.bytes + from, 1, 4096, stdin);
	mcontext_t *m = &u.frame.uc.uc_mcontext;
	struct fpsimd_context *f = (void *)m->__reserved;
	struct _aarch64_ctx *end = (void *)((char *)f + f->head.size);
	unsigned char *v = (void *)f->vregs;

	printf("%zu %zu\n", from, from + size - ((char *)(end + 1) - (char *)u.bytes));
	printf("%d %lx\n", u.frame.uc.uc_stack.ss_flags, *(unsigned long *)&u.frame.uc.uc_sigmask);
	for (int n = 0; n < 31; n++)
		printf("%llx ", m->regs[n]);
	printf("%llx %llx %llx\n", m->sp, m->pc, m->pstate);
	printf("%d %d ", f->head.magic == FPSIMD_MAGIC, f->head.size == sizeof(*f));
	printf("%x %x\n", f->fpsr, f->fpcr);
	for (int n = 0; n < 512; n++)
		printf("%d ", v[n]);
	printf("\n%d %d\n", end->magic, end->size);
	return 0;
}
"""


def test_the_frame_is_the_c_library_s(tmp_path: Path) -> None:
    """What rt_sigreturn will read, as the headers of Linux and glibc name it."""
    if None in (shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64-static")):
        pytest.skip("needs a compiler for arm64, and qemu-user")
    (tmp_path / "frame.c").write_text(FRAME)
    words = ["aarch64-linux-gnu-gcc", "-O1", "-static", "frame.c", "-o", "frame"]
    subprocess.run(words, cwd=tmp_path, check=True)
    names = {f"x{n}": 0x1111 * n for n in range(31)}
    code = _whole("arm64", (), **names, sp=0x7FF0, pc=BACK, pstate=0x6000_0000)
    tail = code[-_call("arm64").tail_size :]
    said = subprocess.run(
        ["qemu-aarch64-static", tmp_path / "frame"], input=tail, capture_output=True, check=True
    ).stdout.decode()
    lines = said.splitlines()
    assert lines[0] == "144 8"  # siginfo, uc_flags, uc_link; zeros up to the next 16 bytes
    assert lines[1] == f"4 {MASK:x}"
    values = [int(word, 16) for word in lines[2].split()]
    assert values == [*names.values(), 0x7FF0, BACK, 0x6000_0000]
    held = bytes(n % 251 for n in range(528))
    fpsr, fpcr = (int.from_bytes(held[at : at + 4], "little") for at in (512, 516))
    assert lines[3] == f"1 1 {fpsr:x} {fpcr:x}"
    assert bytes(map(int, lines[4].split())) == held[:512]
    assert lines[5] == "0 0"


def test_what_is_pushed_is_popped() -> None:
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    call = _call("x86_64")
    words = [(one.mnemonic, one.op_str) for one in engine.disasm(call.make(_steps(call)), 0)]
    pushed = [text for mnemonic, text in words if mnemonic in ("push", "pushfq")]
    popped = [text for mnemonic, text in words if mnemonic in ("pop", "popfq")]
    assert pushed == popped[::-1] and len(pushed) == 11
    assert words[-1] == ("notrack jmp", "qword ptr ds:[rip]")


@pytest.mark.parametrize(
    ("arch", "engine", "test", "last"),
    [
        ("x86_64", (capstone.CS_ARCH_X86, capstone.CS_MODE_64), "js", "mov rsp, rbx"),
        ("arm64", (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM), "tbnz", "adr"),
    ],
    ids=["x86_64", "arm64"],
)
def test_failures_go_to_the_end(arch: str, engine: tuple[int, int], test: str, last: str) -> None:
    call = _call(arch)
    found = list(capstone.Cs(*engine).disasm(call.make(_steps(call)), 0))
    (end,) = [one.address for one in found if f"{one.mnemonic} {one.op_str}".startswith(last)]
    to = [one.op_str.split()[-1] for one in found if one.mnemonic == test]
    assert [int(text.strip("#"), 16) for text in to] == [end, end]


@pytest.mark.parametrize("value", [0, 1, -1, -2, 0xFFFF, 0x10000, -0x10000, 1 << 63, FAR, ~FAR])
def test_every_number_is_loaded(value: int) -> None:
    """On arm64 by its parts, put together here as Capstone reads them."""
    call = _call("arm64")
    engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    code = call.make((SystemCall(call.mmap, (value,)),))
    held = 0
    for one in engine.disasm(code, 0):
        words = one.op_str.replace("#", "").replace(",", "").split()
        if words[:1] != ["x0"] or one.mnemonic == "tbnz":
            continue
        number, shift = int(words[1], 0), int(words[3]) if len(words) > 3 else 0
        if one.mnemonic == "movk":
            held = held & ~(0xFFFF << shift) | number << shift
        else:  # Capstone shows movz and movn as mov, with the value that comes out
            held = number << shift
    assert held % (1 << 64) == value % (1 << 64)
