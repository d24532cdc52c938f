# SPDX-License-Identifier: MIT
"""The code of the dynamic linker's hook: GNU as makes the same of its assembly."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import capstone
import pytest

from ftpatch.arch import feature
from ftpatch.arch.linker_hook import LinkerHook

HOOK: LinkerHook = feature("x86_64", "linker_hook")
STATE, OWNER, NAME = 0x7FFF_F7FF_D118 + 24, 1000, b"ftpatch.0123"
ASSEMBLY = """
    .intel_syntax noprefix
    pushfq
    cld
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push rbx
    push rbp
    mov rbp, rsp
    sub rsp, 256
    and rsp, -64
    mov rax, [rip + debug]
    cmp dword ptr [rax], 0
    jne out
    mov eax, 157
    mov edi, 21
    syscall
    cmp eax, [rip + filtered]
    jne out
    mov qword ptr [rsp], -1
    mov eax, 14
    mov edi, 2
    mov rsi, rsp
    lea rdx, [rsp + 8]
    mov r10d, 8
    syscall
    mov eax, 41
    mov edi, 1
    mov esi, 0x80001
    xor edx, edx
    syscall
    test eax, eax
    js unblock
    mov ebx, eax
    mov eax, 42
    mov edi, ebx
    lea rsi, [rip + address]
    mov edx, [rip + size]
    syscall
    test eax, eax
    jnz close
    mov dword ptr [rsp + 16], 12
    mov eax, 55
    mov edi, ebx
    mov esi, 1
    mov edx, 17
    lea r10, [rsp + 32]
    lea r8, [rsp + 16]
    syscall
    test eax, eax
    jnz close
    mov eax, [rsp + 36]
    cmp eax, [rip + owner]
    jne close
next:
    mov eax, 45
    mov edi, ebx
    lea rsi, [rsp + 64]
    mov edx, 64
    mov r10d, 0x100
    xor r8d, r8d
    xor r9d, r9d
    syscall
    cmp rax, 64
    jne close
    mov rax, [rsp + 64]
    mov rdi, [rsp + 72]
    mov rsi, [rsp + 80]
    mov rdx, [rsp + 88]
    mov r10, [rsp + 96]
    mov r8, [rsp + 104]
    mov r9, [rsp + 112]
    test rax, rax
    jns make
    call r9
    xor eax, eax
    jmp made
make:
    syscall
made:
    mov [rsp + 64], rax
    mov eax, 44
    mov edi, ebx
    lea rsi, [rsp + 64]
    mov edx, 8
    mov r10d, 0x4000
    xor r8d, r8d
    xor r9d, r9d
    syscall
    cmp rax, 8
    je next
close:
    mov eax, 3
    mov edi, ebx
    syscall
unblock:
    mov eax, 14
    mov edi, 2
    lea rsi, [rsp + 8]
    xor edx, edx
    mov r10d, 8
    syscall
out:
    mov rsp, rbp
    pop rbp
    pop rbx
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    popfq
    ret
    .balign 8, 0xcc
debug: .quad 0x7ffff7ffd130
filtered: .long 2
owner: .long 1000
size: .long 15
address: .short 1
    .byte 0
    .ascii "ftpatch.0123"
"""


@pytest.mark.skipif(shutil.which("x86_64-linux-gnu-as") is None, reason="needs GNU as for x86-64")
def test_as_gnu_as_assembles_it(tmp_path: Path) -> None:
    source, built, raw = tmp_path / "hook.s", tmp_path / "hook.o", tmp_path / "hook.bin"
    source.write_text(ASSEMBLY)
    subprocess.run(["x86_64-linux-gnu-as", source, "-o", built], check=True)
    subprocess.run(["x86_64-linux-gnu-objcopy", "-O", "binary", built, raw], check=True)
    assert HOOK.make(STATE, 2, OWNER, NAME) == raw.read_bytes()


def test_it_replaces_functions_that_do_nothing() -> None:
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    for start in HOOK.empty:
        words = [one.mnemonic for one in engine.disasm(start.ljust(16, b"\x00"), 0)]
        assert words[0] == "ret" or words[:2] == ["endbr64", "ret"]
        assert len(start) >= 5


def test_the_jump_leads_there() -> None:
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    (jump,) = engine.disasm(HOOK.jump(0x1000, 0x7FFF_0000), 0x1000)
    assert (jump.mnemonic, int(jump.op_str, 16)) == ("jmp", 0x7FFF_0000)
    with pytest.raises(struct.error):
        HOOK.jump(0, 1 << 40)
