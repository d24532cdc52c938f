# SPDX-License-Identifier: MIT
"""Calls that a tracer waits for in a stopped process: their return addresses are put back.

A ret_stack (stubs/runtime/runtime.h) has the place of each return address that it replaced:

    struct thread | frames that were unwound | frames ... top     frame: slot, ret, ...
    stack         ... | return_to_handler | ...
                        ^ slot
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.layout import constants, offset_of, structure, texts
from ftpatch.process.maps import read_maps
from ftpatch.process.memory_target import MemoryTarget

__all__ = [
    "PutBack",
    "Runtime",
    "mapped_by",
    "put_back",
    "read_runtime",
    "replaced",
    "slots_used",
]

WORD: Final = 8


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """The ret_stacks of a runtime. ``frames``: struct frame[n] of all threads, with the address
    (``places``) and the thread pointer (``owners``) of each, uint64[n]."""

    frames: NDArray[np.void]
    places: NDArray[np.uint64]
    owners: NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class PutBack:
    """Return addresses that were put back: how many are ``done``; ``moved``: there may be calls
    whose return address is not where it was, because they are over, or their stack was copied
    elsewhere; ``signed``: there are some that only the thread itself can put back, by returning."""

    done: int = 0
    moved: bool = False
    signed: bool = False


def read_runtime(arch: str, target: MemoryTarget, at: int) -> Runtime | None:
    """Read a runtime's ret_stacks, whose struct process is at an address; None if it is not
    there."""
    frame, process = structure("frame", arch), _process(arch, target, at)
    if process is None:
        return None
    held, lows, owners = [b""], list[int](), list[int]()
    for row in _threads(arch, target, process):
        low, top = int(row["low"]), int(row["top"])
        stack = target.read(low, top - low) if low and top > low else None
        if stack:
            held.append(stack)
            lows.append(low)
            owners.append(int(row["tp"]))
    counts = np.array([len(stack) // frame.itemsize for stack in held[1:]], np.intp)
    frames = np.frombuffer(b"".join(held), frame)
    starts = np.array(lows, np.uint64) - np.uint64(frame.itemsize) * _before(counts)
    rows = np.arange(len(frames), dtype=np.uint64)
    return Runtime(
        frames=frames,
        places=np.repeat(starts, counts) + rows * np.uint64(frame.itemsize),
        owners=np.repeat(np.array(owners, np.uint64), counts),
    )


def _before(counts: NDArray[np.intp]) -> NDArray[np.uint64]:
    """The sum of all counts before each."""
    return (np.cumsum(counts) - counts).astype(np.uint64)


def mapped_by(arch: str, target: MemoryTarget, at: int) -> list[tuple[int, int, int]]:
    """List what a runtime has mapped: (address, bytes, address of the word that holds that, or 0)
    of each. ``at``: address of its struct process."""
    process = _process(arch, target, at)
    if process is None:
        return []
    sizes = {
        "known": structure("known_threads", arch).itemsize,
        "region": int(process["stride"]) * int(process["most"]),
        "header": 0,
    }
    fields = structure("trace_header", arch)
    told = target.read(int(process["header"]), fields.itemsize) if process["header"] else None
    if told is not None:
        sizes["header"] = int(np.frombuffer(told, fields)[0]["size"])
    mapped = [
        (int(process[name]), size, at + offset_of("process", name, arch))
        for name, size in sizes.items()
        if process[name] and size
    ]
    return mapped + [one for one in _traces(arch, target) if one[0] != int(process["header"])]


def _process(arch: str, target: MemoryTarget, at: int) -> np.void | None:
    """A runtime's struct process."""
    layout = structure("process", arch)
    held = target.read(at, layout.itemsize)
    if held is None:
        return None
    found: np.void = np.frombuffer(held, layout)[0]
    return found


def slots_used(arch: str, target: MemoryTarget, at: int) -> NDArray[np.uint64]:
    """All places of return addresses that a runtime still knows, those of calls that are over as
    well, in ascending order. ``at``: address of its struct process."""
    frame, process = structure("frame", arch), _process(arch, target, at)
    found = [np.empty(0, np.uint64)]
    if process is not None:
        for row in _threads(arch, target, process):
            low, limit = int(row["low"]), int(row["limit"])
            rows = target.read(low, limit - low) if low and limit > low else None
            found.append(np.frombuffer(rows or b"", frame)["slot"].astype(np.uint64))
    return np.unique(np.concatenate(found))


def _threads(arch: str, target: MemoryTarget, process: np.void) -> Iterator[np.void]:
    """Its structs thread."""
    thread = structure("thread", arch)
    for number in range(min(int(process["count"]), int(process["most"]))):
        one = target.read(int(process["region"]) + number * int(process["stride"]), thread.itemsize)
        if one is not None:
            yield np.frombuffer(one, thread)[0]


def _traces(arch: str, target: MemoryTarget) -> list[tuple[int, int, int]]:
    """Trace files that are mapped by a runtime that came into a process: a child still has its
    parent's."""
    fields, magic = structure("trace_header", arch), texts["TRACE_MAGIC"]
    out = []
    for one in read_maps(target.process):
        if not (one.shared and one.writable and one.inode) or one.offset:
            continue
        held = target.read(one.start, fields.itemsize) or bytes(fields.itemsize)
        header = np.frombuffer(held, fields)[0]
        if held.startswith(magic) and int(header["flags"]) & constants["TRACE_ATTACHED"]:
            out.append((one.start, one.end - one.start, 0))
    return out


def replaced(runtime: Runtime, returns: int) -> dict[int, int]:
    """The true return addresses, by the places of those that were replaced by ``returns``."""
    pending = (runtime.frames["slot"] != 0) & (runtime.frames["ret"] != returns)
    frames = runtime.frames[pending]
    frames = frames[np.argsort(frames["calltime"], kind="stable")]
    return dict(zip(frames["slot"].tolist(), frames["ret"].tolist(), strict=True))


def put_back(
    arch: str,
    target: MemoryTarget,
    runtime: Runtime,
    returns: int,
    kept: Sequence[tuple[int, int]] = (),
) -> PutBack:
    """Put the return addresses back that were replaced by ``returns``, but for those within the
    bounds of what is ``kept``. A frame that was put back
    gets ``returns`` as its return address, as those of tail calls have: who comes after one that
    was killed does not take it for a pending call."""
    # Those of tail calls share a slot: the first has the true one.
    pending = (runtime.frames["slot"] != 0) & (runtime.frames["ret"] != returns)
    frames, places = runtime.frames[pending], runtime.places[pending]
    order = np.argsort(frames["calltime"], kind="stable")
    frames, places = frames[order], places[order]
    done, moved, back = 0, False, set[int]()
    latest = replaced(runtime, returns)
    new = returns.to_bytes(WORD, "little")
    for slot, ret in latest.items():
        if any(low <= slot < high for low, high in kept):
            continue
        held, old = target.read(slot, WORD), ret.to_bytes(WORD, "little")
        if held == new:
            target.write(slot, old)
            done += 1
        elif held != old:
            moved = True
            continue
        back.add(slot)
    where = offset_of("frame", "ret", arch)
    for slot, place in zip(frames["slot"].tolist(), places.tolist(), strict=True):
        if slot in back:
            target.write(place + where, new)
    return PutBack(done=done, moved=moved)
