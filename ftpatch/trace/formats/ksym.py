# SPDX-License-Identifier: MIT
"""Accesses to variables as the ksym tracer printed them (``ksym_trace_output`` in v2.6.33's
kernel/trace/trace_ksym.c), with what a write changed, or what was read, at the end.

       prog-123   [001] counter+0x0/0x4                W       step+0x8/0x9            0x3 -> 0x6
       prog-123   [001] counter+0x0/0x4                R       main+0x2c/0x40          0x6

The type is that of the access where the code tells; else that of the watch. The calls that led
there are below it, if they were recorded.
"""

from __future__ import annotations

from collections.abc import Iterator

from ftpatch.trace.accesses import Access, Accesses
from ftpatch.trace.render.stack_text import stack_text
from ftpatch.trace.render.style import Style, ThreadTexts
from ftpatch.trace.report import Report
from ftpatch.trace.source import Data, EventSource, Recording

__all__ = ["REPORT"]

HEADER = """\
#       TASK-TID   CPU#      Symbol                    Type    Function
#          |        |          |                        |         |
"""
Key = tuple[str, int, str]
"""A watch's line and address, and the function that came."""
LATE = "SIGTRAP was blocked"


def _ksym(source: EventSource, style: Style) -> Iterator[str]:
    recording, accesses = source.recording, source.accesses()
    assert accesses is not None
    yield "# tracer: ksym_tracer\n#\n"
    notes = [*style.notes, *_refusals(recording, accesses)]
    yield from (f"# {style.clean(note)}\n" for note in notes)
    yield "#\n" if notes else ""
    yield HEADER

    def tasks() -> list[str]:
        pairs = zip(recording.comms, recording.tids, strict=True)
        return [f"{style.clean(comm):>11}-{tid:<5}" for comm, tid in pairs]

    texts = ThreadTexts(recording, tasks)
    sums: dict[Key, list[int]] = {}
    stacks: dict[int | None, str] = {None: ""}
    for access in accesses:
        symbol = style.shown(access.variable.place)
        place = LATE if access.place is None else access.place
        name = LATE if access.function is None else access.function
        cpu = "???" if access.cpu is None else f"{access.cpu:03}"
        type = access.kind.upper() or "?"
        line = f"{texts.one(access.thread)} [{cpu}] {symbol:<30} {type:<7} {style.shown(place)}"
        if access.stack not in stacks:
            assert accesses.stacks is not None and access.stack is not None
            stacks[access.stack] = stack_text(accesses.stacks, access.stack, style.shown)
        yield f"{line:<84} {_values(access)}{stacks[access.stack]}\n"
        total = sums.setdefault((access.variable.line, access.variable.address, name), [0, 0, 0])
        total[0] += 1
        total[1] += "r" in access.kind
        total[2] += "w" in access.kind
    late = [note for note in _refusals(recording, accesses) if note not in notes]
    yield from (f"# {style.clean(note)}\n" for note in late)  # counted while it was followed
    yield "#\n"
    yield from _totals(accesses, sums, style)


def _values(access: Access) -> str:
    """What a write changed, else what was there, and before it if nobody was seen to change it."""
    if "w" in access.kind:
        return f"{access.before:#x} -> {access.after:#x}"
    was = f" (was {access.before:#x})" if access.before != access.after else ""
    return f"{access.after:#x}{was}"


def _refusals(recording: Recording, accesses: Accesses) -> Iterator[str]:
    """What the kernel did not set, and what was missed, a clause each."""
    several = len(recording.headers) > 1
    for one in accesses.variables:
        place = f"{recording.headers[one.header].pid}: " if several else ""
        if one.refusal:
            yield place + one.note
        if one.missed:
            yield f"{place}{one.line}: accesses missed: {one.missed}"


def _totals(accesses: Accesses, sums: dict[Key, list[int]], style: Style) -> Iterator[str]:
    """How often each function came to each symbol; what nobody came to."""
    clean = style.clean
    lines = [
        (clean(watch), -total[0], style.shown(name), total)
        for (watch, _, name), total in sums.items()
    ]
    seen = {line[0] for line in lines}
    idle = {clean(one.line) for one in accesses.variables if one.meant} - seen
    wide = max(len(name) for name in ("WATCH", *seen, *idle))
    yield f"# {'WATCH':{wide}}  {'ACCESSES':>8}  {'READS':>8}  {'WRITES':>8}  FUNCTION\n"
    for watch, _, name, (number, reads, writes) in sorted(lines):
        yield f"# {watch:{wide}}  {number:>8}  {reads:>8}  {writes:>8}  {name}\n"
    for watch in sorted(idle):
        yield f"# {watch:{wide}}  {0:>8}  {0:>8}  {0:>8}\n"


class Ksym(Report):
    """ftrace's ksym."""

    name = "ksym"
    shows = Data.ACCESSES
    follows = Data.ACCESSES
    text = True

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        return _ksym(source, style)


REPORT: Report = Ksym()
