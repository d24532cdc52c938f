# SPDX-License-Identifier: MIT
"""Events that a tracer could not record: why, how many, and what helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ftpatch.layout import constants

__all__ = ["Reason", "lost_advice", "lost_by", "lost_text"]


@dataclass(frozen=True)
class Reason:
    """``when`` events were lost, the ``option`` that is the limit, and what helps."""

    when: str
    option: str = ""
    advice: str = ""


REASONS = {
    constants["LOST_FULL"]: Reason("when the trace file was full", "--size"),
    constants["LOST_DEPTH"]: Reason("when ret_stack was full", "--max-stack"),
    constants["LOST_NESTED"]: Reason("in signal handlers that interrupted the tracer"),
    constants["LOST_EARLY"]: Reason("before there was a thread pointer"),
    constants["LOST_THREAD"]: Reason("in more threads than there is room for"),
}
NO_ROOM = Reason("when the disk was full", "", "use -o FILE on a disk with more room")
UNSTARTED = Reason("before the library was initialized")
NO_CHUNK = Reason("in threads that a ring had no room for", "--size")
OTHERS = Reason("for other reasons")


def lost_by(
    lost: Sequence[int], *, no_room: bool, ring: bool = False, library: bool = False
) -> dict[Reason, int]:
    """Number of events by reason, from a header's counters; ``no_room``: it was the disk that was
    full, not the file; ``ring``: other threads had all of that; ``library``: the tracer started in
    one."""
    known = REASONS
    if library:
        known = known | {constants["LOST_EARLY"]: UNSTARTED}
    if no_room or ring:
        known = known | {constants["LOST_FULL"]: NO_ROOM if no_room else NO_CHUNK}
    found = dict[Reason, int]()
    for kind, number in enumerate(lost):
        if number:
            reason = known.get(kind, OTHERS)
            found[reason] = found.get(reason, 0) + number
    return found


def lost_text(lost: Mapping[Reason, int], *, options: bool = True) -> str:
    """``3 events lost when the trace file was full (--size)``; each reason has its number if there
    are several."""
    total = sum(lost.values())
    begin = f"{total} event{'s' * (total != 1)} lost"
    named = [
        (f"{reason.when} ({reason.option})" if options and reason.option else reason.when, number)
        for reason, number in lost.items()
    ]
    if len(named) == 1:
        return f"{begin} {named[0][0]}"
    return f"{begin}: {', '.join(f'{number} {when}' for when, number in named)}"


def lost_advice(lost: Mapping[Reason, int], *, functions: bool) -> str:
    """Advice on how to lose fewer, empty if nothing helps; ``functions``: the command can select
    fewer of them."""
    words = []
    for reason in lost:
        if reason.option == "--size" and functions:
            words.append("use a larger --size, or fewer functions (-f, -n)")
        elif reason.option:
            words.append(f"use a larger {reason.option}")
        elif reason.advice:
            words.append(reason.advice)
    return "; ".join(words)
