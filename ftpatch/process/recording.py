# SPDX-License-Identifier: MIT
"""Switching a process's recording on and off: a word in its trace file (`off` of struct
trace_header), which it has mapped and its runtime looks at."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass

from ftpatch.core.byte_order import NATIVE
from ftpatch.errors import InputError, UsageError
from ftpatch.io.cleanup import CLEANUP
from ftpatch.layout import constants, offset_of, structure, texts, unpack
from ftpatch.process.maps import read_maps
from ftpatch.process.memory import memory_file
from ftpatch.process.memory_target import MemoryTarget, writable_memory
from ftpatch.process.process import Process, read_status
from ftpatch.process.process_journal import Entry, locked, recall

__all__ = ["Recorded", "is_recording", "record"]

MAGIC = texts["TRACE_MAGIC"]
SIZE = structure("trace_header").itemsize
"""Bytes."""
WORD = 4
"""Bytes of `off`."""
PATIENCE = 5.0
"""Seconds to go on trying."""
LOOKS, PAUSE = 20, 0.005
"""Looks at a process without a file, and seconds in between: one that rotates its files has none
for a moment."""


@dataclass(frozen=True)
class Recorded:
    """The trace file that a process records to: its name, empty while it has none, and where its
    header is in memory."""

    trace: str
    address: int


def record(process: Process, *, on: bool) -> Recorded:
    """Switch the recording on or off, of a tracer, probes or watches, however they came into the
    process. Raises UsageError for a process that records nothing, InputError for memory that cannot
    be written."""
    with CLEANUP, locked(process), writable_memory(process) as target:
        entry = recall(process)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = _found(target, entry)
            if _switched(target, found.address, on=on):
                return found
    reason = f"{process}: it rotates its trace files too fast to be switched"
    raise UsageError(None, reason, "use a larger --size")


def _switched(target: MemoryTarget, address: int, *, on: bool) -> bool:
    """Store to the header at an address; return whether that reached the file being written.

        file mapped there   store to `off`   flags   file mapped there
              A                                            A

    If A was there all the time and has no next file, its runtime has seen the store or will see it:
    the next file starts with what A says. Otherwise another file has taken A's place, and the store
    went to that one, or to one that is full."""
    before = _mapped_file(target.process, address)
    target.write(address + offset_of("trace_header", "off"), int(not on).to_bytes(WORD, "little"))
    raw = target.read(address, SIZE)
    if raw is None or not raw.startswith(MAGIC):
        return False
    full = unpack("trace_header", NATIVE, raw)["flags"] & constants["TRACE_NEXT"]
    return not full and _mapped_file(target.process, address) == before


def _mapped_file(process: Process, address: int) -> str:
    """The name of the file mapped from an address on; empty if there is none. The numbers in names
    of a recording's files are never used again; inodes are."""
    with suppress(OSError):
        for one in (process.place / "map_files").iterdir():
            if one.name.startswith(f"{address:x}-"):
                return str(one.readlink())
    return ""


def is_recording(process: Process) -> bool | None:
    """Test whether the recording is switched on; None for a process that records nothing, or whose
    memory cannot be read."""
    try:
        with memory_file(process, os.O_RDONLY) as fd:
            target = MemoryTarget(process, fd)
            found = _current(target, recall(process))
            held = target.read(found.address + offset_of("trace_header", "off"), WORD)
    except (InputError, UsageError):
        return None
    return None if held is None else not any(held)


def _found(target: MemoryTarget, entry: Entry | None) -> Recorded:
    """The same, looking again where it has none for a moment."""
    for _ in range(LOOKS):
        try:
            return _recorded(target, entry)
        except UsageError:
            time.sleep(PAUSE)
    return _recorded(target, entry)


def _current(target: MemoryTarget, entry: Entry | None) -> Recorded:
    """The same, looking again only where a full file says that there is a next one: whoever asks
    for the state of any process need not wait for those that record nothing."""
    for _ in range(LOOKS):
        try:
            return _recorded(target, entry)
        except _BetweenFiles:
            time.sleep(PAUSE)
    return _recorded(target, entry)


class _BetweenFiles(UsageError):
    """The file that is mapped is full, and the next one not yet there."""


def _recorded(target: MemoryTarget, entry: Entry | None) -> Recorded:
    """Find the file of a process among what it has mapped; a forked child has its parent's, too."""
    process, others, between = target.process, list[int](), False
    inside = read_status(process.place).get("NSpid", str(process.pid)).split()[-1]
    for one in read_maps(process):
        if not (one.shared and one.writable and one.inode) or one.offset:
            continue
        raw = target.read(one.start, SIZE)
        if raw is None or not raw.startswith(MAGIC):
            continue
        header = unpack("trace_header", NATIVE, raw)
        pid = header["pid"]
        if header["flags"] & constants["TRACE_NEXT"]:
            between |= str(pid) == inside
            continue
        if str(pid) == inside and header["tracer"] != constants["TRACER_NOP"]:
            name = "" if one.deleted else os.fsdecode(one.path)
            return Recorded(entry.trace if entry else name, one.start)
        if str(pid) != inside:
            others.append(pid)
    if between:
        raise _BetweenFiles(None, f"{process}: it has just begun another trace file", "try again")
    if others:
        reason = f"{process}: it has no trace file of its own yet, but that of process {others[0]}"
        raise UsageError(None, reason, f"use --pid {others[0]}")
    if entry is None:
        hint = "trace it, or run a program that ftpatch has patched"
        raise UsageError(None, f"{process}: it records nothing", hint)
    if target.read(entry.areas[0][0], len(entry.token)) != entry.token:
        raise InputError(None, f"{process}: it has started another program since")
    raise UsageError(None, f"{process}: the {entry.tracer} tracer records nothing")
