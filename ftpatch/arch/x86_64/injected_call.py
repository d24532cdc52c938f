# SPDX-License-Identifier: MIT
"""The code of an injected call on x86_64:

lea rsp, [rsp - 128]        the red zone
pushfq; push what a call may change, and rbx
mov rbx, rsp                which no call changes
(steps)
mov rsp, rbx
rt_sigprocmask(SIG_SETMASK, mask, NULL, 8)
pop it all; popfq
lea rsp, [rsp + 128]
notrack jmp [rip]           a `ret` would not pass with a shadow stack
.quad back, mask
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ftpatch.arch.injected_call import Done, Function, GoingOn, InjectedCall, Step, SystemCall

__all__ = ["INJECTED_CALL", "LEAVE", "RESTORE", "TAIL", "UNBLOCK", "called", "taken"]

ENTER: Final = bytes.fromhex(
    "48 8d 64 24 80"  # lea rsp, [rsp - 128]
    "9c fc"  # pushfq; cld
    "50 51 52 56 57"  # push rax, rcx, rdx, rsi, rdi
    "41 50 41 51 41 52 41 53"  # push r8, r9, r10, r11
    "53"  # push rbx
    "48 89 e3"  # mov rbx, rsp
)
RESTORE: Final = bytes.fromhex("48 89 dc")  # mov rsp, rbx
UNBLOCK: Final = bytes.fromhex(
    "b8 0e 00 00 00"  # mov eax, 14 (rt_sigprocmask)
    "bf 02 00 00 00"  # mov edi, 2 (SIG_SETMASK)
    "48 8d 35 30 00 00 00"  # lea rsi, [rip + mask]
    "31 d2 41 ba 08 00 00 00"  # xor edx, edx; mov r10d, 8 (bytes of it)
    "0f 05"  # syscall
)
LEAVE: Final = bytes.fromhex(
    "5b"  # pop rbx
    "41 5b 41 5a 41 59 41 58"  # pop r11, r10, r9, r8
    "5f 5e 5a 59 58"  # pop rdi, rsi, rdx, rcx, rax
    "9d"  # popfq
    "48 8d a4 24 80 00 00 00"  # lea rsp, [rsp + 128]
    "3e ff 25 00 00 00 00"  # notrack jmp [rip]
)
NUMBERED: Final = (0x48B8, 0x48BF, 0x48BE, 0x48BA, 0x49BA, 0x49B8, 0x49B9)
"""movabs imm64 to rax, rdi, rsi, rdx, r10, r8, r9: 48 b8 imm64 ..."""
SHORT: Final = (0x48C7C0, 0x48C7C7, 0x48C7C6, 0x48C7C2, 0x49C7C2, 0x49C7C0, 0x49C7C1)
"""mov imm32, sign-extended, to the same: 48 c7 c0 imm32 ..."""
SYSCALL: Final = bytes.fromhex("0f 05")
FAILED: Final = bytes.fromhex("48 85 c0 0f 88")  # test rax, rax; js rel32
RAX = 0
TAIL: Final = struct.Struct("<QQ")


def _load(register: int, value: int) -> bytes:
    value &= (1 << 64) - 1
    signed = value - (1 << 64) if value >> 63 else value
    if -(1 << 31) <= signed < 1 << 31:
        return SHORT[register].to_bytes(3, "big") + struct.pack("<i", signed)
    return NUMBERED[register].to_bytes(2, "big") + struct.pack("<Q", value)


def called(call: SystemCall) -> bytes:
    """Make a system call."""
    loads = b"".join(_load(1 + n, value) for n, value in enumerate(call.arguments))
    return loads + _load(RAX, call.number) + SYSCALL


def taken(steps: Sequence[Step]) -> bytes:
    """Save what a call may change, and take these steps."""
    code = bytearray(ENTER)
    failures = []
    for step in steps:
        if isinstance(step, SystemCall):
            code += called(step) + FAILED + bytes(4)
            failures.append(len(code))
        elif isinstance(step, Function):
            code += b"".join(_load(1 + n, value) for n, value in enumerate(step.arguments))
            code += b"\x48\xbc" + struct.pack("<Q", step.stack & ~15)  # movabs rsp, imm64
            code += _load(RAX, step.address) + b"\xff\xd0"  # call rax
        else:
            assert isinstance(step, Done)
            code += _load(RAX, step.value)
            code += b"\x48\xa3" + struct.pack("<Q", step.address)  # mov [moffs64], rax
    for end in failures:
        struct.pack_into("<i", code, end - 4, len(code) - end)
    return bytes(code)


def _make(steps: Sequence[Step]) -> bytes:
    return taken(steps) + RESTORE + UNBLOCK + LEAVE


def _tail(going_on: GoingOn) -> bytes:
    return TAIL.pack(int(going_on.registers["rip"]), going_on.mask)


NEEDED: Final = (
    (9, (0, 4096, 5, 0x100022)),  # mmap: r-x, private, anonymous
    (9, (0, 4096, 3, 1)),  # mmap: rw-, shared
    (10, (0, 4096, 3)),  # mprotect: rw-
    (11, (0, 4096)),  # munmap
    (14, (2, 4096, 0, 8)),  # rt_sigprocmask: SIG_SETMASK
    (3, (3,)),  # close
    (28, (0, 4096, 23)),  # madvise: MADV_POPULATE_WRITE
    (39, ()),  # getpid
    (41, (1, 0o2000001)),  # socket: AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC
    (42, (3,)),  # connect
    (47, (3,)),  # recvmsg
    (54, (3, 1)),  # setsockopt: SOL_SOCKET
    (55, (3, 1)),  # getsockopt
    (77, (3,)),  # ftruncate
    (79, ()),  # getcwd
    (89, ()),  # readlink
    (97, (9,)),  # getrlimit: RLIMIT_AS
    (102, ()),  # getuid
    (110, ()),  # getppid
    (157, (16,)),  # prctl: PR_GET_NAME
    (186, ()),  # gettid
    (228, (1,)),  # clock_gettime: CLOCK_MONOTONIC
    (285, (3,)),  # fallocate
    (332, ()),  # statx
)
"""By their numbers (arch/x86/entry/syscalls/syscall_64.tbl), as stubs/runtime makes them."""
TRAPPING: Final = (
    (13, (4, 4096, 0, 8)),  # rt_sigaction: SIGILL
    (15, ()),  # rt_sigreturn
    (234, (1, 1, 4)),  # tgkill: SIGILL
)
INJECTED_CALL: Final = InjectedCall(
    make=_make,
    tail=_tail,
    tail_size=TAIL.size,
    mmap=9,
    mprotect=10,
    munmap=11,
    reach=(1 << 31) - (1 << 20),
    needed=NEEDED,
    trapping=TRAPPING,
)
