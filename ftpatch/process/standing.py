# SPDX-License-Identifier: MIT
"""Standing of the threads of a stopped process: the code they are in, now or after their signal
handlers.

    sp ...  | frame | what the signal interrupted | ... | frame | ...      the next on any stack

Handlers leave their frames behind, and a function that reserves a large buffer may have one in it,
whole. Two things tell it from a frame that a thread returns by:

    its handler is in the code in question       a thread in that stands there, or was interrupted
                                                 there, which another frame has
    the thread's callers lie around it           by unwind information, as far as that goes
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.signal_frames import SignalFrames, signal_frames
from ftpatch.process.callers import Callers, Unknown
from ftpatch.process.maps import read_spans
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.stop import World
from ftpatch.process.thread import Thread

__all__ = ["Unwound", "frames_of", "is_used", "saved_ips", "stack_words", "within"]

LARGE = 64 << 20
"""A mapping of more bytes than this is no stack alone: threads have theirs somewhere in it."""
DEEP = 1 << 20
"""Bytes of a stack in such a mapping to search."""
WORD = 8
Spans = Sequence[tuple[int, int]]


class Unwound:
    """Tells by the ``callers`` of threads which signal frames they return by. ``replaced``: as
    Callers takes it, asked for when it is needed."""

    def __init__(
        self, callers: Callers, replaced: Callable[[], Mapping[int, int]] = dict[int, int]
    ) -> None:
        self._callers = callers
        self._replaced = replaced

    def are_dead(self, thread: Thread, frames: SignalFrames) -> NDArray[np.bool_]:
        """Test which frames were left behind, bool[n]: callers of the thread lie around them."""
        saved = dict(zip(frames.at.tolist(), frames.sp.tolist(), strict=True))
        low, passed, last = thread.sp, list[tuple[int, int]](), list[tuple[int, int]]()
        live = set[int]()
        try:
            for _, place in self._callers.of(thread, self._replaced()):
                passed += last  # it was a caller: it has one itself
                if place < low:  # on another stack, and not by a signal
                    last = []
                    break
                last = [(low, place)]
                if place in saved:
                    live.add(place)
                    low = saved[place]
            passed += last
        except Unknown:
            pass
        dead = np.zeros(len(frames), bool)
        for start, end in passed:
            dead |= (frames.at >= np.uint64(start)) & (frames.at <= np.uint64(end))
        return dead & ~np.isin(frames.at, np.array([*live], np.uint64))


def frames_of(arch: str, world: World, target: MemoryTarget, thread: Thread) -> SignalFrames:
    """Find what has the form of a signal frame on the stack of a thread of a stopped process, or on
    one on which it goes on after another frame."""
    if thread.tid not in world.frames:
        missing = [one for one in world.threads if one.tid not in world.frames]
        world.frames |= _found(arch, target, missing)
    return world.frames[thread.tid]


def saved_ips(arch: str, world: World, target: MemoryTarget) -> NDArray[np.uint64]:
    """The addresses at which threads go on after their signal handlers, uint64[n]: those in the
    signal frames on the stacks of a stopped process."""
    found = [frames_of(arch, world, target, one) for one in world.threads]
    return np.concatenate([np.empty(0, np.uint64), *(one.ip for one in found if len(one))])


def is_used(
    arch: str, world: World, target: MemoryTarget, spans: Spans, unwound: Unwound | None = None
) -> bool:
    """Test whether any thread of a stopped process is in one of these spans of code, or will be
    when its signal handler returns."""
    if within(np.array([one.ip for one in world.threads], np.uint64), spans).any():
        return True
    for thread in world.threads:
        frames = frames_of(arch, world, target, thread)
        if not len(frames):
            continue
        frames = frames.take(within(frames.ip, spans) & ~within(frames.back, spans))
        if len(frames) and (unwound is None or not unwound.are_dead(thread, frames).all()):
            return True
    return False


def within(addresses: NDArray[np.uint64], spans: Iterable[tuple[int, int]]) -> NDArray[np.bool_]:
    """Test which addresses are in any of these spans, which may overlap."""
    out = np.zeros(len(addresses), bool)
    for low, high in spans:
        out |= (addresses >= np.uint64(low)) & (addresses < np.uint64(high))
    return out


def stack_words(target: MemoryTarget, spans: Spans, sp: int) -> bytes:
    """The words from a stack pointer up to the end of its mapping."""
    row = bisect.bisect_right(spans, (sp, 1 << 64)) - 1
    if row < 0 or sp >= spans[row][1]:
        return b""
    (start, end), low = spans[row], sp // WORD * WORD
    if end - start > LARGE:
        end = min(end, low + DEEP)
    return target.read(low, end - low) or b""


def _found(arch: str, target: MemoryTarget, threads: Sequence[Thread]) -> dict[int, SignalFrames]:
    spans, held, out = read_spans(target.process), dict[int, bytes](), dict[int, SignalFrames]()
    searched: dict[int, dict[int, int]] = {one.tid: {} for one in threads}
    waiting = {one.tid: _lowest([one.sp], {}) for one in threads}
    while waiting:
        for tid, places in waiting.items():
            for low in places:
                if low not in held:
                    held[low] = stack_words(target, spans, low)
                searched[tid][low] = low + len(held[low])
        pool = _pool(arch, held)
        for tid in waiting:  # mostly there is none at all
            rows = within(pool.at, searched[tid].items()) if len(pool) else None
            out[tid] = pool if rows is None else pool.take(rows)
        waiting = {
            tid: places
            for tid in waiting
            if (places := _lowest(out[tid].sp.tolist(), searched[tid]))
        }
    return out


def _lowest(pointers: Iterable[int], searched: Mapping[int, int]) -> list[int]:
    """Where to search for the frames of what has these stack pointers, but for what is ``searched``
    already, from one address to another each. A handler is entered with its frame's first word on
    top of the stack, and returns by it."""
    places = [max(sp - WORD, 0) // WORD * WORD for sp in pointers]
    return [
        place
        for place in places
        if place not in searched and not any(low <= place < searched[low] for low in searched)
    ]


def _pool(arch: str, held: Mapping[int, bytes]) -> SignalFrames:
    """What has the form of a signal frame among the words of stacks, by their first address."""
    sizes = np.array([len(words) // WORD for words in held.values()], np.intp)
    starts, begins = np.array([*held], np.uint64), np.cumsum(sizes) - sizes

    def addresses_of(rows: NDArray[np.intp]) -> NDArray[np.uint64]:
        stack = np.searchsorted(begins, rows, "right") - 1
        return starts[stack] + (rows - begins[stack]).astype(np.uint64) * np.uint64(WORD)

    found = signal_frames(arch, np.frombuffer(b"".join(held.values()), np.uint64), addresses_of)
    return found.take(np.unique(found.at, return_index=True)[1])
