"""Profile of probes: hits and durations of each, who called, and which values there were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ftpatch.probe import format_value
from ftpatch.probe.address_names import Places
from ftpatch.probe.fetched import MOST, Fetched, Seen, seen
from ftpatch.probe.hit_calls import limit_depth
from ftpatch.probe.hits import Hits, read_hits
from ftpatch.trace.formats.graph import time_text
from ftpatch.trace.formats.probe_cells import MARK, whole
from ftpatch.trace.formats.style import Look
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows

__all__ = ["probes_profile"]

STEP = 1 << 18
"""Events that are counted at once."""
TOP = 10
"""Values and callers to report for each probe."""
DIFFERENT = 1 << 16
"""Values of which each is counted; a fetch with more of them is not told by value."""
HEADER = """\
      Hit  Missed Way  Time        Avg         Min         Max         Probe
      ---  ------ ---  ----        ---         ---         ---         -----
"""
BY = """\
       Hit    Time            Avg             Caller
       ---    ----            ---             ------
"""
VALUES = """\
       Hit    Value
       ---    -----
"""


@dataclass
class _Sums:
    """Of one probe: hits and nanoseconds by caller; of each fetch its texts, None for too many."""

    callers: dict[str, list[int]] = field(default_factory=dict)
    values: list[Counter[tuple[int, int | bytes | None]] | None] = field(default_factory=list)


def probes_profile(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    """The report, in parts."""
    del batches
    hits, places = read_hits(trace), Places(trace, look.clean)
    limit_depth(hits)
    sums = [_count(hits, number, places) for number in range(len(hits.probes))]
    yield "# tracer: probes\n#\n"
    yield from (f"# {note}\n" for note in look.notes)
    yield "#\n" if look.notes else ""
    yield HEADER
    names = []
    for number, (probe, file) in enumerate(zip(hits.probes, hits.files, strict=True)):
        source = places.source(file, probe)
        function, _ = places.function(file, probe)
        name = f"{look.clean(probe.definition.name)}: {function}"
        names.append(name)
        took = (hits.time - hits.begin)[hits.probe == number]
        cells = ["-"] * 4
        if probe.returns and len(took):
            spent = (took.sum(), took.sum() // len(took), took.min(), took.max())
            cells = [time_text(int(ns), trace.has_clock).rstrip() for ns in spent]
        line = "".join(f"{cell:<12}" for cell in cells)
        at = f" ({source})" if source else ""
        yield f"{len(took):>9} {probe.missed:>7} {probe.way:<4} {line}{name}{at}\n"
    for probe, name, sum_ in zip(hits.probes, names, sums, strict=True):
        yield from _callers(name, sum_, trace.has_clock)
        for fetch, counts in zip(probe.definition.fetches, sum_.values, strict=True):
            yield from _values(f"{name} {fetch.name}", fetch.type, counts, places, look)


def _count(hits: Hits, number: int, places: Places) -> _Sums:
    every = np.flatnonzero(hits.probe == number)
    out = _Sums(values=[Counter() for _ in hits.probes[number].definition.fetches])
    for first in range(0, len(every), STEP):
        event = seen(hits, number, every[first : first + STEP])
        file = hits.trace.chunks.owner[event.thread]
        for one in np.unique(file).tolist():
            mine = np.flatnonzero(file == one)
            if event.probe.returns:
                _add_callers(out.callers, one, event, mine, places)
            for index, fetched in enumerate(event.values):
                counts = out.values[index]
                if counts is not None:
                    counts.update(_counted(one, fetched, mine))
                    out.values[index] = counts if len(counts) <= DIFFERENT else None
    return out


def _add_callers(
    sums: dict[str, list[int]], file: int, event: Seen, mine: np.ndarray, places: Places
) -> None:
    addresses, index = np.unique(event.caller[mine], return_inverse=True)
    hits = np.bincount(index, minlength=len(addresses)).tolist()
    time = np.bincount(index, event.duration[mine], minlength=len(addresses)).tolist()
    for name, number, ns in zip(places.calling(file, addresses), hits, time, strict=True):
        sum_ = sums.setdefault(name, [0, 0])
        sum_[0] += number
        sum_[1] += int(ns)


def _counted(file: int, one: Fetched, mine: np.ndarray) -> Counter[tuple[int, int | bytes | None]]:
    """How often each value is there; symbols by file, since programs are where they are."""
    kind = file if one.fetch.type == "symbol" else 0
    lost = one.lost[mine]
    out: Counter[tuple[int, int | bytes | None]] = Counter()
    if lost.any():
        out[0, None] = int(lost.sum())
    mine = mine[~lost]
    if one.text.shape[1]:
        held = np.ascontiguousarray(one.text[mine]).view(f"S{MOST + 1}").ravel().tolist()
        out.update({(0, text): number for text, number in Counter(held).items()})
        return out
    values, counts = np.unique(one.number[mine], return_counts=True)
    pairs = zip(values.tolist(), counts.tolist(), strict=True)
    out.update({(kind, value): number for value, number in pairs})
    return out


def _callers(name: str, sums: _Sums, known: bool) -> Iterator[str]:
    if not sums.callers:
        return
    yield f"#\n# {name}, by caller\n{BY}"
    rows = sorted(sums.callers.items(), key=lambda row: (-row[1][1], -row[1][0], row[0]))
    for caller, (hits, ns) in rows[:TOP]:
        cells = [time_text(ns, known), time_text(ns // hits, known)]
        yield f"{hits:>10}    {''.join(f'{cell:<16}' for cell in cells)}{caller}\n"
    if len(rows) > TOP:
        rest = sum(hits for _, (hits, _) in rows[TOP:])
        yield f"{rest:>10}    ({len(rows) - TOP} others)\n"


def _values(
    name: str,
    type: str,
    counts: Counter[tuple[int, int | bytes | None]] | None,
    places: Places,
    look: Look,
) -> Iterator[str]:
    if counts is not None and not counts:
        return
    yield f"#\n# {name}, by value\n"
    if counts is None:
        yield f"#   more than {DIFFERENT} different ones\n"
        return
    yield VALUES
    texts: Counter[str] = Counter()
    for (file, value), number in counts.most_common(TOP if len(counts) > TOP else None):
        texts[look.clean(_text(type, file, value, places))] += number
    rest = counts.total() - texts.total()
    for text, number in texts.most_common():
        yield f"{number:>10}    {text}\n"
    if rest:
        yield f"{rest:>10}    ({len(counts) - TOP} others)\n"


def _text(type: str, file: int, value: int | bytes | None, places: Places) -> str:
    if isinstance(value, bytes):
        mark = MARK.decode() if len(value) >= MOST else ""
        return format_value("string", 0, string=whole(value)) + mark

    def symbol(at: int) -> str:
        (name,) = places.symbols(file, np.array([at], np.uint64))
        return name

    return format_value(type, value, symbol=symbol)
