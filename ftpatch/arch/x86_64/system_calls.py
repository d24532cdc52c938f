# SPDX-License-Identifier: MIT
"""System calls of x86_64 that set or block signals:

    mov eax, 13; syscall       b8 0d 00 00 00 ... 0f 05

Numbers: arch/x86/entry/syscalls/syscall_64.tbl.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ftpatch.arch.disassemble import disassemble
from ftpatch.arch.system_calls import MAX_DISTANCE, SystemCall

__all__ = ["system_calls"]

NUMBERS = frozenset((13, 14, 128, 130, 270, 271, 281, 333, 426, 441))
"""rt_sigaction, rt_sigprocmask, rt_sigtimedwait, rt_sigsuspend, pselect6, ppoll, epoll_pwait,
io_pgetevents, io_uring_enter, epoll_pwait2: with one of these unmet a program may lose hits, or end
(rt_sigpending only tells)."""
MAX_INSNS, MIN_SHUFFLED = 24, 4
"""Instructions before a system call to follow; and how many must be moves of arguments where a
register holds the number."""
JUMP = 5
GIVEN = 512
"""Bytes before it where a register may have got the number."""
LEAVES = re.compile(r"j\w+|call\w*|ret\w*|loop\w*|syscall|int\w*|ud\w|hlt|leave|v\w+")
NUMBER = re.compile(r"\$(0x[0-9a-f]+|\d+), %[er]ax")
COPY = re.compile(r"%([er]?\w+), %[er]ax")
KEPT = re.compile(r"(?:-?0x[0-9a-f]+)?\(%r[sb]p\), %[er]ax")
FIRST = re.compile(
    rb"[\x40-\x4f]?(?:\x89[\xc0\xc8\xd0\xd8\xe0\xe8\xf0\xf8]"  # mov %reg, %eax
    rb"|[\x63\x8b][\xc0-\xc7\x04\x44\x84\x45\x85]"  # mov, movslq to %eax: register, stack
    rb"|\xc7\xc0)|\xb8|[\x31\x33]\xc0|\x6a[\x0d\x0e]|\x68",
    re.DOTALL,
)
"""First bytes of what gives the number, or tells that it is another: only from there on is code
disassembled."""
PREFIXES = (range(0x40, 0x50), (0x41, 0x49))
"""In front of what is no first byte then; and of b8."""
LEGACY = ("ax", "cx", "dx", "bx", "sp", "bp", "si", "di")
ARGUMENTS = ("rdi", "rsi", "edi", "esi")


def system_calls(code: bytes, address: int) -> Iterator[SystemCall]:
    """Those in ``code`` at ``address``."""
    at = code.find(b"\x0f\x05")
    while at >= 0:
        found = _one(code, at, address)
        if found:
            yield found
        at = code.find(b"\x0f\x05", at + 1)


def _one(code: bytes, at: int, address: int) -> SystemCall | None:
    """Prefer the nearest: of a 32-bit copy, with a prefix before it, the longer one."""
    for start in range(at - 2, max(at - MAX_DISTANCE, 0) - 1, -1):
        if not FIRST.match(code, start) or (code[start - 1] in PREFIXES[code[start] == 0xB8]):
            continue
        found = disassemble("x86_64", code[start:at], address + start)
        if sum(one.size for one in found) != at - start or len(found) > MAX_INSNS:
            continue
        if any(LEAVES.fullmatch(one.mnemonic) for one in found):
            continue
        first, *rest = found
        if first.mnemonic.startswith("push"):
            popped = any(one.mnemonic[:3] + one.operands == "pop%rax" for one in rest)
            number = NUMBER.fullmatch(f"{first.operands}, %rax")
            if popped and number and int(number[1], 0) in NUMBERS:
                return SystemCall(address + start, address + at + 2, False)
            continue
        if first.operands == "%eax, %eax" and first.mnemonic.startswith("xor"):
            return None
        if not first.mnemonic.startswith("mov"):
            continue
        if number := NUMBER.fullmatch(first.operands):
            if int(number[1], 0) not in NUMBERS:
                return None
            return SystemCall(address + start, address + at + 2, first.size >= JUMP)
        copy = COPY.fullmatch(first.operands)
        if KEPT.fullmatch(first.operands) or (
            copy and _was_asked(code, start, copy[1], len(found))
        ):
            room = at + 2 - start
            return SystemCall(address + start, address + at + 2, room >= JUMP)
    return None


def _was_asked(code: bytes, start: int, register: str, count: int) -> bool:
    """Return whether a register may have such a number: it got one before, or is an argument."""
    if register[1:] in LEGACY:
        head = (0xB8 + LEGACY.index(register[1:])).to_bytes()
    else:
        head = b"\x41" + (0xB8 + int(register.strip("rd")) - 8).to_bytes()
    at = start
    while (at := code.rfind(head, max(start - GIVEN, 0), at)) >= 0:
        if len(head) == 1 and code[at - 1] & 0xF1 == 0x41:
            continue
        at += len(head)
        if int.from_bytes(code[at : at + 4], "little") in NUMBERS:
            return True
        break
    return register in ARGUMENTS and count >= MIN_SHUFFLED
