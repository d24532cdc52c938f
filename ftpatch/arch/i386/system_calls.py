# SPDX-License-Identifier: MIT
"""System calls of i386 that set or block signals:

    mov eax, 174; int 0x80             b8 ae 00 00 00 ... cd 80
    mov eax, 174; call *%gs:0x10       b8 ae 00 00 00 ... 65 ff 15 10 00 00 00

Numbers: arch/x86/entry/syscalls/syscall_32.tbl.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.system_calls import MAX_DISTANCE, SystemCall

__all__ = ["system_calls"]

OLD = frozenset((48, 67, 68, 69, 72))
"""signal, sigaction, sgetmask, ssetmask, sigsuspend: with signals of one word. No libc of today
makes them, and the runtime does not answer them."""
OWN = frozenset((126, 413, 414, 416, 421))
"""sigprocmask of one word, of glibc's getcontext(); pselect6, ppoll, io_pgetevents and
rt_sigtimedwait with times of 64 bits: these only i386 has."""
NUMBERS = frozenset((174, 175, 177, 179, 308, 309, 319, 385, 426, 441)) | OWN
"""rt_sigaction, rt_sigprocmask, rt_sigtimedwait, rt_sigsuspend, pselect6, ppoll, epoll_pwait,
io_pgetevents, io_uring_enter, epoll_pwait2, and those: with one of these unmet a program may lose
hits, or end (rt_sigpending only tells)."""
MAX_INSNS = 24
"""Instructions before a system call to follow."""
JUMP = 5
GIVEN = 512
"""Bytes before it where a register may have got the number."""
CALL = re.compile(rb"\xcd\x80|\x65\xff\x15\x10\0\0\0")
LEAVES = re.compile(r"j\w+|call\w*|ret\w*|loop\w*|int\w*|ud\w|hlt|leave|sys\w+|v\w+")
NUMBER = re.compile(r"\$(0x[0-9a-f]+|\d+), %eax")
COPY = re.compile(r"%(e\w\w), %eax")
KEPT = re.compile(r"(?:-?0x[0-9a-f]+|-?\d+)?\(%e[sb]p\), %eax")
SIX = bytes.fromhex("53 57 55 8b1f 8b6f08 8b7f04")
"""glibc's __libc_do_syscall(), for six arguments: push %ebx; push %edi; push %ebp;
mov (%edi), %ebx; mov 8(%edi), %ebp; mov 4(%edi), %edi. Its caller gives the number."""
FIRST = re.compile(
    rb"\xb8|\x6a.\x58"  # mov $n, %eax; push $n, pop %eax
    rb"|\x89[\xc8\xd0\xd8\xe0\xe8\xf0\xf8]|\x8b[\xc1-\xc7\x44\x84\x45\x85]"  # mov, to eax
    rb"|[\x31\x33]\xc0|" + re.escape(SIX),
    re.DOTALL,
)
"""First bytes of what gives the number, or tells that it is another: only from there on is code
disassembled."""
ORDER = ("eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi")


def system_calls(code: bytes, address: int) -> Iterator[SystemCall]:
    """Those in ``code`` at ``address``."""
    for found in CALL.finditer(code):
        one = _one(code, found.start(), found.end(), address)
        if one:
            yield one


def _one(code: bytes, at: int, end: int, address: int) -> SystemCall | None:
    """Prefer the nearest."""
    for start in range(at - 2, max(at - MAX_DISTANCE, 0) - 1, -1):
        if not FIRST.match(code, start):
            continue
        found = disassemble("i386", code[start:at], address + start)
        if sum(one.size for one in found) != at - start or len(found) > MAX_INSNS:
            continue
        if any(LEAVES.fullmatch(one.mnemonic) for one in found):
            continue
        first = found[0]
        led = SystemCall(address + start, address + end, end - start >= JUMP)
        if code.startswith(SIX, start):
            return led
        if first.mnemonic.startswith("push"):
            return _asked(code[start + 1], led)
        if first.operands == "%eax, %eax" and first.mnemonic.startswith("xor"):
            return None
        if not first.mnemonic.startswith("mov"):
            continue
        if number := NUMBER.fullmatch(first.operands):
            return _asked(int(number[1], 0), led)
        copy = COPY.fullmatch(first.operands)
        if KEPT.fullmatch(first.operands) or (copy and _was_asked(code, start, copy[1])):
            return led
    return None


def _asked(number: int, led: SystemCall) -> SystemCall | None:
    """A call of this number, if it is one of them."""
    if number in OLD:
        return SystemCall(led.start, led.end, False)
    return led if number in NUMBERS else None


def _was_asked(code: bytes, start: int, register: str) -> bool:
    """Return whether a register got such a number before."""
    at = code.rfind(bytes([0xB8 + ORDER.index(register)]), max(start - GIVEN, 0), start)
    return at >= 0 and int.from_bytes(code[at + 1 : at + 5], "little") in NUMBERS
