"""Accesses to variables as the ksym tracer printed them (``ksym_trace_output`` in v2.6.33's
kernel/trace/trace_ksym.c), with what a write changed, or what was read, at the end.

       prog-123   [001] counter+0x0/0x4                W       step+0x8/0x9            0x3 -> 0x6
       prog-123   [001] counter+0x0/0x4                R       main+0x2c/0x40          0x6

The type is that of the access where the code tells; else that of the watch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ftpatch.trace.formats.style import Look
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows
from ftpatch.watch import Watch, watch_line
from ftpatch.watch.accesses import Access, Accesses, read_accesses
from ftpatch.watch.accessors import Accessors
from ftpatch.watch.table import Told
from ftpatch.watch.trace_watches import refusal_note

__all__ = ["ksym", "wanted"]

HEADER = """\
#       TASK-PID   CPU#      Symbol                    Type    Function
#          |        |          |                        |         |
"""
LATE = "SIGTRAP was blocked"


def ksym(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    """The report, in parts."""
    del batches
    found, accessors = read_accesses(trace), Accessors(trace)
    yield "# tracer: ksym_tracer\n#\n"
    notes = [*look.notes, *_refusals(trace, found)]
    yield from (f"# {look.clean(note)}\n" for note in notes)
    yield "#\n" if notes else ""
    yield HEADER
    tasks = [
        f"{look.clean(comm):>11}-{tid:<5}"
        for comm, tid in zip(trace.comms, trace.tids, strict=True)
    ]
    symbols = {
        (file, told.watch): look.clean(_symbol(trace, file, told.watch))
        for file, watches in enumerate(found.told)
        for told in watches
        if told is not None
    }
    sums: dict[tuple[Watch, str], list[int]] = {}
    for access in wanted(trace, found):
        symbol = symbols[access.file, access.watch]
        kind = accessors.kind(access)
        who = None if access.late else accessors.of(access)
        place, name = (who.place, who.function) if who else (LATE, LATE)
        cpu = "???" if access.cpu is None else f"{access.cpu:03}"
        type = kind.upper() or "?"
        line = f"{tasks[access.thread]} [{cpu}] {symbol:<30} {type:<7} {look.clean(place)}"
        yield f"{line:<84} {_values(access, kind)}\n"
        total = sums.setdefault((access.watch, name), [0, 0, 0])
        total[0] += 1
        total[1] += "r" in kind
        total[2] += "w" in kind
    yield "#\n"
    yield from _totals(trace, found, sums, look.clean)


def wanted(trace: Trace, found: Accesses) -> Iterator[Access]:
    """The accesses to symbols that are meant."""
    meant = _meant(trace, found)
    return (access for access in found if access.watch.symbol in meant)


def _values(access: Access, kind: str) -> str:
    """What a write changed, else what was there, and before it if nobody was seen to change it."""
    if "w" in kind:
        return f"{access.before:#x} -> {access.after:#x}"
    was = f" (was {access.before:#x})" if access.before != access.after else ""
    return f"{access.after:#x}{was}"


def _meant(trace: Trace, found: Accesses) -> set[str]:
    """The symbols that are meant, whether anyone came to them or not."""
    window = trace.window
    names = {told.watch.symbol for told in _all(found)}
    return {name for name in names if not window.globs or window.names_match(name)}


def _refusals(trace: Trace, found: Accesses) -> Iterator[str]:
    """What the kernel did not set, and what was missed, a clause each."""
    several = len(found.told) > 1
    for header, watches in zip(trace.headers, found.told, strict=True):
        for told in watches:
            place = f"{header.pid}: " if several else ""
            if told is not None and told.refusal:
                yield place + refusal_note(told)
            if told is not None and told.missed:
                yield f"{place}{watch_line(told.watch)}: accesses missed: {told.missed}"


def _symbol(trace: Trace, file: int, watch: Watch) -> str:
    """As ``%pS`` prints it, with the symbol's size where the image tells it."""
    image = trace.functions.programs[trace.program[file]].image
    text = f"{watch.symbol}+{watch.offset:#x}"
    if image is None:
        return text
    symbols = image.symbols
    there = symbols.value == watch.address - watch.offset
    size = int(symbols.size[there & (symbols.type == symbols.STT_OBJECT)].max(initial=0))
    return f"{text}/{size:#x}" if size else text


def _totals(
    trace: Trace,
    found: Accesses,
    sums: dict[tuple[Watch, str], list[int]],
    clean: Callable[[str], str],
) -> Iterator[str]:
    """How often each function came to each symbol; what nobody came to."""
    lines = [
        (clean(watch_line(watch)), -total[0], clean(name), total)
        for (watch, name), total in sums.items()
    ]
    seen = {line[0] for line in lines}
    meant = _meant(trace, found)
    every = (told.watch for told in _all(found) if told.watch.symbol in meant)
    idle = {clean(watch_line(watch)) for watch in every} - seen
    wide = max(len(name) for name in ("WATCH", *seen, *idle))
    yield f"# {'WATCH':{wide}}  {'ACCESSES':>8}  {'READS':>8}  {'WRITES':>8}  FUNCTION\n"
    for watch, _, name, (number, reads, writes) in sorted(lines):
        yield f"# {watch:{wide}}  {number:>8}  {reads:>8}  {writes:>8}  {name}\n"
    for watch in sorted(idle):
        yield f"# {watch:{wide}}  {0:>8}  {0:>8}  {0:>8}\n"


def _all(found: Accesses) -> Iterator[Told]:
    return (told for watches in found.told for told in watches if told is not None)
