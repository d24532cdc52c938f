# SPDX-License-Identifier: MIT
"""The dynamic linker's hook on x86_64:

push what a call may change; return if r_state is not RT_CONSISTENT, or seccomp's mode is another
rt_sigprocmask(SIG_SETMASK, all); socket(AF_UNIX); connect()
getsockopt(SO_PEERCRED): return if it is another user's
(recvfrom(number, six arguments); make that call; sendto(result)) until nothing comes
  number < 0: call the function that is the sixth, with the first
close(); rt_sigprocmask(SIG_SETMASK, before); pop it all; ret

rsp + 0: all signals | 8: mask before | 16: length | 32: struct ucred | 64: the call
"""

from __future__ import annotations

import struct
from typing import Final

from ftpatch.arch.linker_hook import LinkerHook

__all__ = ["LINKER_HOOK"]

CODE: Final = bytes.fromhex(
    "9c fc 50 51 52 56 57"  # pushfq; cld; push rax; push rcx; push rdx; push rsi; push rdi
    "41 50 41 51 41 52 41 53 53 55"  # push r8; push r9; push r10; push r11; push rbx; push rbp
    "48 89 e5 48 81 ec 00 01 00 00 48 83 e4 c0"  # mov rbp, rsp; sub rsp, 256; and rsp, -64
    "48 8b 05 72 01 00 00 83 38 00"  # mov rax, [rip + debug]; cmp dword [rax], 0
    "0f 85 54 01 00 00"  # jne out
    "b8 9d 00 00 00 bf 15 00 00 00 0f 05"  # mov eax, 157; mov edi, 21; syscall
    "3b 05 5f 01 00 00 0f 85 3c 01 00 00"  # cmp eax, [rip + filtered]; jne out
    "48 c7 04 24 ff ff ff ff b8 0e 00 00 00"  # mov qword [rsp], -1; mov eax, 14
    "bf 02 00 00 00 48 89 e6 48 8d 54 24 08"  # mov edi, 2; mov rsi, rsp; lea rdx, [rsp + 8]
    "41 ba 08 00 00 00 0f 05"  # mov r10d, 8; syscall
    "b8 29 00 00 00 bf 01 00 00 00 be 01 00 08 00"  # mov eax, 41; mov edi, 1; mov esi, 0x80001
    "31 d2 0f 05"  # xor edx, edx; syscall
    "85 c0 0f 88 e6 00 00 00"  # test eax, eax; js unblock
    "89 c3 b8 2a 00 00 00 89 df"  # mov ebx, eax; mov eax, 42; mov edi, ebx
    "48 8d 35 18 01 00 00 8b 15 0e 01 00 00"  # lea rsi, [rip + address]; mov edx, [rip + size]
    "0f 05"  # syscall
    "85 c0 0f 85 bd 00 00 00"  # test eax, eax; jnz close
    "c7 44 24 10 0c 00 00 00 b8 37 00 00 00"  # mov dword [rsp + 16], 12; mov eax, 55
    "89 df be 01 00 00 00 ba 11 00 00 00"  # mov edi, ebx; mov esi, 1; mov edx, 17
    "4c 8d 54 24 20 4c 8d 44 24 10 0f 05"  # lea r10, [rsp + 32]; lea r8, [rsp + 16]; syscall
    "85 c0 0f 85 90 00 00 00"  # test eax, eax; jnz close
    "8b 44 24 24 3b 05 c9 00 00 00"  # mov eax, [rsp + 36]; cmp eax, [rip + owner]
    "0f 85 80 00 00 00"  # jne close
    "b8 2d 00 00 00 89 df"  # next: mov eax, 45; mov edi, ebx
    "48 8d 74 24 40 ba 40 00 00 00"  # lea rsi, [rsp + 64]; mov edx, 64
    "41 ba 00 01 00 00 45 31 c0 45 31 c9"  # mov r10d, 0x100; xor r8d, r8d; xor r9d, r9d
    "0f 05"  # syscall
    "48 83 f8 40 75 5b"  # cmp rax, 64; jne close
    "48 8b 44 24 40 48 8b 7c 24 48"  # mov rax, [rsp + 64]; mov rdi, [rsp + 72]
    "48 8b 74 24 50 48 8b 54 24 58"  # mov rsi, [rsp + 80]; mov rdx, [rsp + 88]
    "4c 8b 54 24 60 4c 8b 44 24 68"  # mov r10, [rsp + 96]; mov r8, [rsp + 104]
    "4c 8b 4c 24 70 48 85 c0 79 07"  # mov r9, [rsp + 112]; test rax, rax; jns make
    "41 ff d1 31 c0 eb 02"  # call r9; xor eax, eax; jmp made
    "0f 05"  # make: syscall
    "48 89 44 24 40 b8 2c 00 00 00 89 df"  # made: mov [rsp + 64], rax; mov eax, 44; mov edi, ebx
    "48 8d 74 24 40 ba 08 00 00 00"  # lea rsi, [rsp + 64]; mov edx, 8
    "41 ba 00 40 00 00 45 31 c0 45 31 c9"  # mov r10d, 0x4000; xor r8d, r8d; xor r9d, r9d
    "0f 05"  # syscall
    "48 83 f8 08 74 80"  # cmp rax, 8; je next
    "b8 03 00 00 00 89 df 0f 05"  # close: mov eax, 3; mov edi, ebx; syscall
    "b8 0e 00 00 00 bf 02 00 00 00"  # unblock: mov eax, 14; mov edi, 2
    "48 8d 74 24 08 31 d2 41 ba 08 00 00 00"  # lea rsi, [rsp + 8]; xor edx, edx; mov r10d, 8
    "0f 05"  # syscall
    "48 89 ec 5d 5b 41 5b 41 5a"  # out: mov rsp, rbp; pop rbp; pop rbx; pop r11; pop r10
    "41 59 41 58 5f 5e 5a 59 58"  # pop r9; pop r8; pop rdi; pop rsi; pop rdx; pop rcx; pop rax
    "9d c3"  # popfq; ret
    "cc"  # .balign 8, 0xcc
)
DATA: Final = struct.Struct("<QIII")
"""debug, filtered, owner, size; behind them `address`, a struct sockaddr_un."""
AF_UNIX: Final = b"\x01\x00"
JUMP: Final = b"\xe9"  # jmp rel32
RET: Final = b"\xc3"
NOPS: Final = (
    b"\x66\x66\x2e\x0f\x1f",  # data16 cs nop word [rax + rax]: its beginning
    b"\x66\x2e\x0f\x1f",  # cs nop word [rax + rax]
    b"\x0f\x1f\x44\x00",  # nop dword [rax + rax]
    b"\x0f\x1f\x84\x00",  # nop dword [rax + rax]
    b"\x0f\x1f\x40\x00",  # nop dword [rax]
    b"\xcc\xcc\xcc\xcc",  # int3
    b"\x90\x90\x90\x90",  # nop
)


def _make(state: int, filtered: int, owner: int, name: bytes) -> bytes:
    address = AF_UNIX + b"\0" + name
    return CODE + DATA.pack(state, filtered, owner, len(address)) + address


def _jump(at: int, to: int) -> bytes:
    return JUMP + struct.pack("<i", to - at - 5)


def _target(at: int, code: bytes) -> int | None:
    if len(code) < 5 or code[:1] != JUMP:
        return None
    return at + 5 + int.from_bytes(code[1:5], "little", signed=True)


LINKER_HOOK: Final = LinkerHook(
    make=_make,
    jump=_jump,
    target=_target,
    empty=(
        b"\xf3\x0f\x1e\xfa" + RET,  # endbr64; ret
        *(RET + nop for nop in NOPS),  # which stands alone in 16 bytes
    ),
)
