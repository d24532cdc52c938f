# SPDX-License-Identifier: MIT
"""Losses of a trace by thread, and their reasons: struct trace_account of stubs/runtime/trace.h."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ftpatch.core.byte_order import ByteOrder
from ftpatch.layout import constants, structure

__all__ = ["ACCOUNT", "REASONS", "Loss", "by_thread", "by_thread_text", "losses_of", "read_losses"]

ACCOUNT = structure("trace_account")
"""The account of one thread."""
MAX_ACCOUNTS = 1 << 16
"""Maximum number of accounts that are read; the runtime makes 4096 at most."""
REASONS = {
    constants["LOST_FULL"]: "full",
    constants["LOST_DEPTH"]: "depth",
    constants["LOST_NESTED"]: "nested",
    constants["LOST_EARLY"]: "early",
    constants["LOST_THREAD"]: "thread",
}
"""A word for each reason, by its number: for programs to read."""
SHOWN = 5
"""Maximum number of threads that a text names."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The losses of a thread: number of events by reason, as ``lost`` of a header, and those of a
    ring that were ``overwritten``. ``tid`` None: threads that nothing is known of."""

    tid: int | None
    lost: tuple[int, ...]
    overwritten: int

    def __add__(self, more: Loss) -> Loss:
        """Both losses of a thread."""
        lost = tuple(map(sum, zip(self.lost, more.lost, strict=True)))
        overwritten = self.overwritten + more.overwritten
        return Loss(tid=self.tid, lost=lost, overwritten=overwritten)

    @property
    def total(self) -> int:
        """Number of events that are not there."""
        return sum(self.lost) + self.overwritten


def read_losses(fd: int, start: int, count: int, order: ByteOrder) -> tuple[Loss, ...]:
    """Read ``count`` accounts from a file's offset ``start`` on, as far as they are there, and sum
    them up by thread. Raises OSError."""
    count = min(count, MAX_ACCOUNTS)
    raw = os.pread(fd, count * ACCOUNT.itemsize, start)
    raw = raw[: len(raw) // ACCOUNT.itemsize * ACCOUNT.itemsize]
    held = np.frombuffer(raw, order.record(ACCOUNT))
    held = held[(held["tid"] != 0) & ((held["lost"] != 0).any(axis=1) | (held["overwritten"] != 0))]
    columns = (held[name].tolist() for name in ("tid", "lost", "overwritten"))
    return by_thread(
        Loss(tid=tid, lost=tuple(lost), overwritten=overwritten)
        for tid, lost, overwritten in zip(*columns, strict=True)
    )


def by_thread(losses: Iterable[Loss]) -> tuple[Loss, ...]:
    """Sum up losses of the same threads."""
    found: dict[int | None, Loss] = {}
    for one in losses:
        before = found.get(one.tid)
        found[one.tid] = one if before is None else before + one
    return tuple(sorted(found.values(), key=lambda one: one.tid or 0))


def losses_of(known: Sequence[Loss], lost: Sequence[int], overwritten: int) -> tuple[Loss, ...]:
    """Complete the losses of ``known`` threads by those of all others, given what all lost
    together."""
    rest = [max(whole - sum(one.lost[kind] for one in known), 0) for kind, whole in enumerate(lost)]
    gone = max(overwritten - sum(one.overwritten for one in known), 0)
    if not any(rest) and not gone:
        return tuple(known)
    return (*known, Loss(tid=None, lost=tuple(rest), overwritten=gone))


def by_thread_text(known: Sequence[Loss]) -> str:
    """``thread 41 lost 8 events, thread 42 4, and 3 more threads 5``, those first that lost most;
    events that were overwritten are not among them. Empty if there is but one thread."""
    counts = sorted(((sum(one.lost), one.tid) for one in known), key=lambda one: -one[0])
    counts = [one for one in counts if one[0]]
    if len(counts) < 2:
        return ""
    shown = counts if len(counts) <= SHOWN + 1 else counts[:SHOWN]
    words = [
        f"{'other threads' if tid is None else f'thread {tid}'} {'lost ' * (not row)}{count}"
        for row, (count, tid) in enumerate(shown)
    ]
    rest = counts[len(shown) :]
    if rest:
        words.append(f"{len(rest)} more threads {sum(count for count, _ in rest)}")
    return "of these, " + ", ".join(words)
