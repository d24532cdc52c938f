# SPDX-License-Identifier: MIT
"""Standing of the threads of a stopped process: the code they are in, now or after their signal
handlers."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.signal_frames import saved_instruction_pointers
from ftpatch.process.maps import read_spans
from ftpatch.process.memory_target import MemoryTarget
from ftpatch.process.stop import World

__all__ = ["is_used", "saved_ips", "stack_words"]

LARGE = 64 << 20
"""A mapping of more bytes than this is no stack alone: threads have theirs somewhere in it."""
DEEP = 1 << 20
"""Bytes of a stack in such a mapping to search."""
WORD = 8


def saved_ips(arch: str, world: World, target: MemoryTarget) -> NDArray[np.uint64]:
    """The addresses at which threads go on after their signal handlers, uint64[n]: those in the
    signal frames on the stacks of a stopped process."""
    if world.saved_ips is None:
        spans = read_spans(target.process)
        stacks = [stack_words(target, spans, thread.sp) for thread in world.threads]
        # Words of two stacks taken for one frame would only make us look again.
        words = np.frombuffer(b"".join(stacks), np.uint64)
        world.saved_ips = saved_instruction_pointers(arch, words)
    return world.saved_ips


def is_used(
    arch: str, world: World, target: MemoryTarget, spans: Sequence[tuple[int, int]]
) -> bool:
    """Test whether any thread of a stopped process is in one of these spans of code, or will be
    when its signal handler returns."""
    stands = np.array([thread.ip for thread in world.threads], np.uint64)
    for addresses in (stands, saved_ips(arch, world, target)):
        for low, high in spans:
            if ((addresses >= low) & (addresses < high)).any():
                return True
    return False


def stack_words(target: MemoryTarget, spans: Sequence[tuple[int, int]], sp: int) -> bytes:
    """The words from a stack pointer up to the end of its mapping."""
    row = bisect.bisect_right(spans, (sp, 1 << 64)) - 1
    if row < 0 or sp >= spans[row][1]:
        return b""
    (start, end), low = spans[row], sp // WORD * WORD
    if end - start > LARGE:
        end = min(end, low + DEEP)
    return target.read(low, end - low) or b""
