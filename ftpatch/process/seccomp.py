# SPDX-License-Identifier: MIT
"""System calls that a process under seccomp may make: its filters, run by hand.

A filter is a program of classic BPF over struct seccomp_data. All that a thread has are run, and
the most restrictive result holds (Documentation/userspace-api/seccomp_filter.rst).
"""

from __future__ import annotations

import errno
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ftpatch.errors import InputError
from ftpatch.process.process import read_status
from ftpatch.process.ptrace import get_filter
from ftpatch.process.stop import World
from ftpatch.process.thread import Thread

__all__ = ["Call", "allows", "may_call", "run_filter"]

STRICT, FILTER = "1", "2"
"""Modes in /proc/PID/status: read(), write(), _exit() and sigreturn() alone; what filters say."""
ALLOW, LOG = 0x7FFF_0000, 0x7FFC_0000
"""SECCOMP_RET_*: actions with which the call is made; with any other it is not, or not as it is."""
ACTION: Final = 0xFFFF_0000
"""SECCOMP_RET_ACTION_FULL."""
INSN: Final = struct.Struct("=HBBI")
"""struct sock_filter: code, jt, jf, k."""
DATA: Final = struct.Struct("=iIQ6Q")
"""struct seccomp_data: nr, arch, instruction_pointer, args."""
WORD: Final = 0xFFFF_FFFF
SLOTS: Final = 16
"""BPF_MEMWORDS."""
LD, LDX, ST, STX, ALU, JMP, RET, MISC = range(8)
"""Classes of instructions, in the low three bits of a code (linux/bpf_common.h)."""
FROM_X, DIVIDE, TXA = 0x08, 0x30, 0x80
IMMEDIATE, ABSOLUTE, MEMORY, LENGTH = 0x00, 0x20, 0x60, 0x80
"""Places that a load takes its word from."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A system call: ``audit``: AUDIT_ARCH_* of the machine; ``ip``: the address behind its
    instruction, if it matters."""

    number: int
    arguments: tuple[int, ...] = ()
    audit: int
    ip: int = 0


def may_call(world: World, thread: Thread, calls: Sequence[Call]) -> list[bool]:
    """Tell which calls a stopped thread may make. Raises InputError where its filters cannot be
    read."""
    mode = read_status(thread.place).get("Seccomp", "0")
    if mode == FILTER:
        filters = world.do(lambda: _filters(thread))
        return [allows(filters, call) for call in calls]
    return [mode != STRICT] * len(calls)


def _filters(thread: Thread) -> list[bytes]:
    found: list[bytes] = []
    while True:
        try:
            found.append(get_filter(thread.tid, len(found)))
        except OSError as error:
            if error.errno == errno.ENOENT and found:
                return found
            raise InputError(
                None,
                f"{thread.process}: it is under seccomp, and its filter cannot be read: "
                f"{error.strerror}",
                "run as root, not under seccomp yourself",
            ) from None


def allows(filters: Sequence[bytes], call: Call) -> bool:
    """Test whether all filters let a call through. Raises InputError for one that is no filter."""
    return all(run_filter(one, call) & ACTION in (ALLOW, LOG) for one in filters)


def run_filter(program: bytes, call: Call) -> int:
    """Run a filter, and return its SECCOMP_RET_*. Raises InputError if the kernel would not have
    taken it."""
    arguments = [one % (1 << 64) for one in (*call.arguments, *(0,) * 6)][:6]
    data = DATA.pack(call.number, call.audit, call.ip, *arguments)
    code = list(INSN.iter_unpack(program))
    a = x = at = 0
    slots = [0] * SLOTS
    while 0 <= at < len(code):
        op, yes, no, k = code[at]
        at += 1
        kind, operand = op & 7, x if op & FROM_X else k
        if kind in (LD, LDX):
            value = _loaded(op & 0xE0, k, data, slots)
            a, x = (value, x) if kind == LD else (a, value)
        elif kind in (ST, STX) and k < SLOTS:
            slots[k] = a if kind == ST else x
        elif kind == ALU:
            if op & 0xF0 == DIVIDE and operand == 0:
                return 0  # as the kernel does, which is SECCOMP_RET_KILL_THREAD
            a = _computed(op & 0xF0, a, operand)
        elif kind == JMP:
            at += _jump(op & 0xF0, a, operand, (k, yes, no))
        elif kind == RET:
            return a if op & 0x18 == 0x10 else k
        elif kind == MISC:
            a, x = (x, x) if op & TXA else (a, a)
        else:
            break
    raise InputError(None, "a seccomp filter that cannot be read")


def _loaded(mode: int, k: int, data: bytes, slots: list[int]) -> int:
    if mode == ABSOLUTE and k % 4 == 0 and k + 4 <= len(data):
        return int.from_bytes(data[k : k + 4], sys.byteorder)
    if mode == IMMEDIATE:
        return k
    if mode == MEMORY and k < SLOTS:
        return slots[k]
    if mode == LENGTH:
        return len(data)
    raise InputError(None, "a seccomp filter that cannot be read")


def _computed(op: int, a: int, b: int) -> int:
    table = {
        0x00: a + b,
        0x10: a - b,
        0x20: a * b,
        DIVIDE: a // b if b else 0,
        0x40: a | b,
        0x50: a & b,
        0x60: a << (b & 31),
        0x70: a >> (b & 31),
        0x80: -a,
        0xA0: a ^ b,
    }
    if op not in table:
        raise InputError(None, "a seccomp filter that cannot be read")
    return table[op] & WORD


def _jump(op: int, a: int, b: int, to: tuple[int, int, int]) -> int:
    always, yes, no = to
    table = {0x10: a == b, 0x20: a > b, 0x30: a >= b, 0x40: bool(a & b)}
    if op == 0x00:
        return always
    if op not in table:
        raise InputError(None, "a seccomp filter that cannot be read")
    return yes if table[op] else no
