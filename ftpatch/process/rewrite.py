# SPDX-License-Identifier: MIT
"""Rewriting code in a running process, as stop_machine() lets ftrace do it.

compare all old code, prepare whole pages    the process runs
stop all threads; where does each stand?     one inside of old code is moved on, or waited for
compare the pages again, write them
let all threads go on
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature
from ftpatch.core.changes import Changes
from ftpatch.errors import InputError
from ftpatch.process.memory_target import MemoryTarget, in_pages
from ftpatch.process.refusals import STOPS, NotStopped
from ftpatch.process.standing import saved_ips
from ftpatch.process.stop import World, stopped
from ftpatch.process.thread import Thread

__all__ = ["Pause", "rewrite", "when_stopped"]

FIRST_REST, MAX_REST = 0.0005, 0.05
"""Seconds to let a process run before it is stopped again."""


@dataclass(frozen=True, kw_only=True)
class Pause:
    """The price of stopping a process: nanoseconds from the first thread stopped to the last one
    continued, and those ``waited`` before until no thread was in the way; how often it was
    ``tried``, and the number of ``threads``."""

    pause: int = 0
    waited: int = 0
    tried: int = 0
    threads: int = 0


def rewrite(
    arch: str,
    target: MemoryTarget,
    changes: Changes,
    *,
    wait: float,
    is_nop: NDArray[np.bool_] | None = None,
    also: Callable[[World], object] | None = None,
) -> Pause:
    """Make verified Changes in a process's memory. ``is_nop``, bool[n]: the old code does nothing,
    so that a thread inside of it may go on behind it; others are waited for. ``also`` is called
    when that is done, before any thread goes on.

    Raises InputError where the code is not the one that was verified, or when threads are in the
    way for ``wait`` seconds; then nothing is written.
    """
    order = np.argsort(changes.offset, kind="stable")
    changes = changes.take(order)
    passable = np.zeros(len(changes), bool) if is_nop is None else is_nop[order]
    pages = _prepared(target, changes)
    feature(arch, "signal_frames")  # loaded before anything waits
    start = changes.offset.view(np.uint64)
    end = start + changes.width.astype(np.uint64)

    def inside(addresses: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Rows of the Changes that these are inside of, -1 for none."""
        row = np.searchsorted(start, addresses, "right").astype(np.intp) - 1
        found = (row >= 0) & (addresses > start[row]) & (addresses < end[row])
        return np.where(found, row, -1)

    def attempt(world: World) -> bool:
        ips = np.array([thread.ip for thread in world.threads], np.uint64)
        rows = inside(ips)
        if (inside(saved_ips(arch, world, target)) >= 0).any():
            return False
        if not passable[rows[rows >= 0]].all():
            return False
        # A system call that is made again may be in the old code, and its thread stands behind it.
        behind = (rows < 0) & (inside(ips - np.uint64(world.state.size)) >= 0)
        again = [_resumed(world.threads[row]) for row in np.flatnonzero(behind).tolist()]
        if (inside(np.array(again, np.uint64)) >= 0).any():
            return False
        for page in pages:
            if target.read(page.start, len(page.before)) != page.before:
                reason = f"the code at {page.start:#x} changed while it was being read"
                raise InputError(None, f"{target.name}: {reason}", "try again")
        for thread, row in zip(world.threads, rows.tolist(), strict=True):
            if row >= 0:
                thread.move(int(end[row]))
        _write(target, pages)
        if also is not None:
            also(world)
        return True

    pause = when_stopped(target, wait, attempt)
    if pause is None:
        reason = f"a thread stayed inside of the code to change for {wait:g} s"
        raise InputError(None, f"{target.name}: {reason}", "try again")
    return pause


def _resumed(thread: Thread) -> int:
    """The address at which a thread goes on."""
    return int(thread.resumed[thread.state.ip])


def when_stopped(
    target: MemoryTarget, wait: float, attempt: Callable[[World], bool]
) -> Pause | None:
    """Stop a process, and call ``attempt`` with its threads; again after a while, for ``wait``
    seconds, until that returns true. None if it never did. Raises InputError, NotStopped if its
    threads did not stop STOPS times."""
    begun = time.monotonic_ns()
    rest, tried, failed = FIRST_REST, 0, 0
    while True:
        tried += 1
        try:
            with stopped(target.process) as world:
                done = attempt(world)
        except NotStopped:
            failed += 1
            if failed == STOPS:
                raise
            time.sleep(MAX_REST)
            continue
        waited = world.since - begun
        if done:
            threads = len(world.threads)
            return Pause(pause=world.pause_ns, waited=waited, tried=tried, threads=threads)
        if waited > wait * 1e9:
            return None
        time.sleep(rest)
        rest = min(2 * rest, MAX_REST)


@dataclass(frozen=True)
class _Page:
    """The bytes at an address, before and after."""

    start: int
    before: bytes
    after: bytes = b""


def _prepared(target: MemoryTarget, changes: Changes) -> list[_Page]:
    """What is to be compared and written. Raises InputError where the old code is not there."""
    out = []
    for start, rows in in_pages(changes):
        part = changes.take(rows)
        size = int((part.offset + part.width).max()) - start
        held = target.read(start, size)
        if held is None:
            raise InputError(None, f"{target.name}: {start:#x} is not mapped any more")
        data = np.frombuffer(held, np.uint8).copy()
        part.put(data, old=True, base=start)
        if data.tobytes() != held:
            reason = f"the code at {start:#x} changed while it was being read"
            raise InputError(None, f"{target.name}: {reason}", "try again")
        part.put(data, base=start)
        page = _Page(start, held)
        out.append(replace(page, after=data.tobytes()))
    return out


def _write(target: MemoryTarget, pages: list[_Page]) -> None:
    """Write all, or none. Raises InputError."""
    for number, page in enumerate(pages):
        try:
            target.write(page.start, page.after)
        except InputError:
            for done in pages[: number + 1]:
                target.write(done.start, done.before)
            raise
