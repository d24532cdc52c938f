# SPDX-License-Identifier: MIT
"""The BPF program that records an access at the moment of the access, and the ring it writes to.

The kernel runs it in the thread's own debug exception, before the thread can go on: the value that
it reads is the one that the instruction found or left there.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from ftpatch.process.system_call import system_call

__all__ = ["RECORD", "STACKED", "load_program", "make_ring"]

RECORD: Final = np.dtype(
    [
        ("time", "<u8"),  # CLOCK_MONOTONIC, nanoseconds
        ("tid", "<u4"),
        ("pid", "<u4"),  # 0: of a PID namespace that ours does not see
        ("ip", "<u8"),
        ("value", "<u8"),
        ("mark", "<u4"),  # as given to load_program
        ("cpu", "<u4"),
    ]
)
"""One access, as the program writes it."""
BLOCK: Final = 256
"""Bytes of a stack that are read at once: none is on two pages."""
BLOCKS: Final = 32
"""8 KiB in all, as perf takes by default (--call-graph dwarf)."""
STACKED: Final = np.dtype(
    [
        *(RECORD.descr),
        ("general", "<u8", 16),  # the registers, in the order of load_program's
        ("low", "<u8"),  # where the copy begins: at or below the stack pointer
        ("stack", "<u8", BLOCK * BLOCKS // 8),  # zeros where it could not be read
    ]
)
"""The same with a copy of the stack. Without one, what follows is not set."""
AT: Final = {name: field[1] for name, field in (STACKED.fields or {}).items()}
MAP_CREATE: Final = 0
PROG_LOAD: Final = 5
"""Commands of bpf(2) (include/uapi/linux/bpf.h)."""
TYPE_RINGBUF: Final = 27
TYPE_PERF_EVENT: Final = 7
ATTRIBUTES: Final = 128
"""Bytes of union bpf_attr: zeros where nothing is said."""
LICENCE: Final = b"Dual MIT/GPL"
"""bpf_probe_read_user() is for programs whose licence the kernel takes for compatible."""
HOST: Final = 0xEFFF_FFFC
"""Inode of the first PID namespace (PROC_PID_INIT_INO)."""
KTIME_GET_NS, GET_SMP_PROCESSOR_ID, GET_CURRENT_PID_TGID = 5, 8, 14
PROBE_READ_USER, GET_NS_CURRENT_PID_TGID, RINGBUF_RESERVE, RINGBUF_SUBMIT = 112, 120, 131, 132
"""Helpers (___BPF_FUNC_MAPPER)."""
NO_WAKEUP: Final = 1
"""BPF_RB_NO_WAKEUP: the reader looks by itself."""
LOG: Final = 1 << 16


def make_ring(bpf: int, size: int) -> int:
    """Make a ring of ``size`` bytes, a power of two; its descriptor. ``bpf``: the system call's
    number. Raises OSError."""
    return _bpf(bpf, MAP_CREATE, struct.pack("<5I", TYPE_RINGBUF, 0, 0, size, 0))


def load_program(
    bpf: int,
    ring: int,
    *,
    address: int,
    length: int,
    mark: int,
    ip: int,
    size: int = RECORD.itemsize,
    stack: Sequence[int] = (),
    pointer: int = 0,
) -> int:
    """Load a program that records accesses to ``length`` bytes at ``address`` into a ring, each
    with ``mark``; its descriptor. ``ip``: where the program counter is among the registers.
    ``size`` of a record; to copy the ``stack``, the places of its registers, of which number
    ``pointer`` is the stack pointer. Raises OSError."""
    copied = _stack(stack, pointer) if stack else []
    code = _code(ring, address, length, mark, ip=ip, size=size, copied=copied)
    held = ctypes.create_string_buffer(code, len(code))
    licence, log = ctypes.create_string_buffer(LICENCE), ctypes.create_string_buffer(LOG)
    places = ctypes.addressof(held), ctypes.addressof(licence)
    attributes = struct.pack("<2I2Q", TYPE_PERF_EVENT, len(code) // 8, *places)
    try:
        return _bpf(bpf, PROG_LOAD, attributes)
    except PermissionError:
        raise
    except OSError as error:  # once more, for the verifier's reason
        told = struct.pack("<2IQ", 1, LOG, ctypes.addressof(log))
        try:
            return _bpf(bpf, PROG_LOAD, attributes + told)
        except OSError:
            why = log.value.decode(errors="replace").strip().splitlines()
            raise OSError(error.errno, " ".join([str(error.strerror), *why[-1:]])) from None


def _bpf(number: int, command: int, attributes: bytes) -> int:
    held = ctypes.create_string_buffer(attributes.ljust(ATTRIBUTES, b"\0"), ATTRIBUTES)
    return system_call(number, command, held, ATTRIBUTES)


def _code(
    ring: int, address: int, length: int, mark: int, *, ip: int, size: int, copied: list[bytes]
) -> bytes:
    """The program; r1 is struct bpf_perf_event_data, which begins with the registers."""
    rest = [
        _op(0xBF, 7, 0),  # r7 = r0, the record
        _op(0x85, value=KTIME_GET_NS),  # call bpf_ktime_get_ns
        _op(0x7B, 7, 0, AT["time"]),  # *(u64 *)(r7 + time) = r0
        *_who(),
        _op(0x79, 1, 6, ip),  # r1 = *(u64 *)(r6 + ip)
        _op(0x7B, 7, 1, AT["ip"]),  # *(u64 *)(r7 + ip) = r1
        _op(0x62, 7, 0, AT["mark"], mark),  # *(u32 *)(r7 + mark) = mark
        _op(0x85, value=GET_SMP_PROCESSOR_ID),  # call bpf_get_smp_processor_id
        _op(0x63, 7, 0, AT["cpu"]),  # *(u32 *)(r7 + cpu) = r0
        _op(0x7A, 7, 0, AT["value"], 0),  # *(u64 *)(r7 + value) = 0
        _op(0xBF, 1, 7),  # r1 = r7
        _op(0x07, 1, value=AT["value"]),  # r1 += value
        _op(0xB7, 2, value=length),  # r2 = length
        _wide(3, address),  # r3 = address ll
        _op(0x85, value=PROBE_READ_USER),  # call bpf_probe_read_user
        *copied,
        _op(0xBF, 1, 7),  # r1 = r7
        _op(0xB7, 2, value=NO_WAKEUP),  # r2 = BPF_RB_NO_WAKEUP
        _op(0x85, value=RINGBUF_SUBMIT),  # call bpf_ringbuf_submit
    ]
    body = b"".join(rest)
    start = [
        _op(0xBF, 6, 1),  # r6 = r1
        _wide(1, ring, 1),  # r1 = map_fd(ring) ll
        _op(0xB7, 2, value=size),  # r2 = sizeof(record)
        _op(0xB7, 3, value=0),  # r3 = 0
        _op(0x85, value=RINGBUF_RESERVE),  # call bpf_ringbuf_reserve
        _op(0x15, 0, 0, len(body) // 8, 0),  # if r0 == 0 goto the end: the ring is full
    ]
    end = [
        _op(0xB7, 0, value=0),  # r0 = 0: perf has nothing to do
        _op(0x95),  # exit
    ]
    return b"".join([*start, body, *end])


def _stack(places: Sequence[int], pointer: int) -> list[bytes]:
    """Store the registers, and copy the stack block by block."""
    out = list[bytes]()
    for number, place in enumerate(places):
        out += [
            _op(0x79, 1, 6, place),  # r1 = *(u64 *)(r6 + place)
            _op(0x7B, 7, 1, AT["general"] + 8 * number),  # *(u64 *)(r7 + general) = r1
        ]
    out += [
        _op(0x79, 8, 6, places[pointer]),  # r8 = the stack pointer
        _op(0x57, 8, value=-BLOCK),  # r8 &= -BLOCK
        _op(0x7B, 7, 8, AT["low"]),  # *(u64 *)(r7 + low) = r8
    ]
    for block in range(BLOCKS):
        out += [
            _op(0xBF, 1, 7),  # r1 = r7
            _op(0x07, 1, value=AT["stack"] + block * BLOCK),  # r1 += stack
            _op(0xB7, 2, value=BLOCK),  # r2 = BLOCK
            _op(0xBF, 3, 8),  # r3 = r8
            _op(0x07, 3, value=block * BLOCK),  # r3 += block * BLOCK
            _op(0x85, value=PROBE_READ_USER),  # call bpf_probe_read_user: zeros where it fails
        ]
    return out


def _who() -> list[bytes]:
    """Store thread and process, as numbered in our PID namespace."""
    own = Path("/proc/self/ns/pid").stat()
    if own.st_ino == HOST:
        return [
            _op(0x85, value=GET_CURRENT_PID_TGID),  # call bpf_get_current_pid_tgid
            _op(0x7B, 7, 0, AT["tid"]),  # *(u64 *)(r7 + tid) = r0
        ]
    return [
        _wide(1, own.st_dev),  # r1 = dev ll
        _wide(2, own.st_ino),  # r2 = ino ll
        _op(0xBF, 3, 7),  # r3 = r7
        _op(0x07, 3, value=AT["tid"]),  # r3 += tid
        _op(0xB7, 4, value=8),  # r4 = 8
        _op(0x85, value=GET_NS_CURRENT_PID_TGID),  # call bpf_get_ns_current_pid_tgid
    ]


def _op(code: int, to: int = 0, of: int = 0, at: int = 0, value: int = 0) -> bytes:
    """One struct bpf_insn: code, registers, offset, immediate."""
    return struct.pack("<BBhI", code, to | of << 4, at, value & 0xFFFF_FFFF)


def _wide(to: int, value: int, kind: int = 0) -> bytes:
    """Load 64 bits; of ``kind`` 1 (BPF_PSEUDO_MAP_FD) a map."""
    low, high = value & 0xFFFF_FFFF, value >> 32
    return struct.pack("<BBhIBBhI", 0x18, to | kind << 4, 0, low, 0, 0, 0, high)
