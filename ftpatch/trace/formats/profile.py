# SPDX-License-Identifier: MIT
"""Totals: of functions, in the words of ftrace's trace_stat/function; of hits, with who called and
the most frequent values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ftpatch.trace.address_names import Places
from ftpatch.trace.by_process import process_name, totals_of
from ftpatch.trace.hits import FLOATS, Column, Field, Group, Hits, Show, floats
from ftpatch.trace.render.style import Style, time_text
from ftpatch.trace.render.values import FAULT, MARK, escaped, whole
from ftpatch.trace.report import Report
from ftpatch.trace.source import Data, EventSource, Recording
from ftpatch.trace.totals import Totals

__all__ = ["REPORT"]

HEADER = """\
       Hit    Time            Avg             Self            Function
       ---    ----            ---             ----            --------
"""
NESTED = """\
# Time counts outermost calls only, Avg all calls
"""
STEP = 1 << 18
"""Hits that are counted at once."""
TOP = 10
"""Values and callers that are shown of each point."""
Counted = tuple[int, int | bytes | None]
"""File, for symbols, and value."""
DIFFERENT = 1 << 16
"""Values of which each is counted; of more of them only that is said."""
HIT_HEADER = """\
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


def _profile(source: EventSource, style: Style) -> Iterator[str]:
    recording, hits = source.recording, source.hits()
    if hits is not None:
        return _hits(recording, hits, style)
    totals, each = totals_of(source, style.rows(source))
    return _functions(source, totals, each, style)


def _functions(
    source: EventSource, totals: Totals, each: dict[int, Totals], style: Style
) -> Iterator[str]:
    """All of them and, where there are several, those of each process."""
    yield from style.header(tracer="function_profile") if style.notes else ()
    if source.has_returns and totals.has_nested:
        yield NESTED
    yield HEADER
    yield from _lines(source, totals, style)
    for number, one in each.items():
        yield f"#\n# {style.clean(process_name(source.recording.headers[number]))}\n{HEADER}"
        yield from _lines(source, one, style)


def _lines(source: EventSource, totals: Totals, style: Style) -> Iterator[str]:
    """Names stand last, since those of C++ have any length."""
    recording = source.recording
    names, sources = style.names(recording.functions), recording.functions.source
    timed, known = source.has_returns, recording.has_clock
    for (function, hits, time, own), average in zip(
        totals.rows(), totals.average.tolist(), strict=True
    ):
        place = f" ({style.clean(sources[function])})" if sources[function] else ""
        spent = (time, average, own)
        cells = [time_text(max(ns, 0), known) if timed else "-" for ns in spent]
        line = "".join(f"{cell:<16}" for cell in cells)
        yield f"{hits:>10}    {line}{names[function]}{place}\n"


@dataclass
class _Sums:
    """Of one point: hits and nanoseconds by caller; of each value its counts, None for too many."""

    callers: dict[str, list[int]] = field(default_factory=dict)
    values: list[Counter[Counted] | None] = field(default_factory=list)


def _hits(recording: Recording, hits: Hits, style: Style) -> Iterator[str]:
    places, known = Places(recording, style.clean, style.shown), recording.has_clock
    sums = [_count(hits, number, places) for number in range(len(hits.points))]
    yield from style.header(tracer="probes")
    yield HIT_HEADER
    names = []
    for number, (point, header) in enumerate(zip(hits.points, hits.header, strict=True)):
        place = places.source(header, point)
        function, _ = places.function(header, point)
        name = f"{style.clean(point.name)}: {function}"
        names.append(name)
        took = (hits.time - hits.begin)[hits.point == number]
        cells = ["-"] * 4
        if point.returns and len(took):
            spent = (took.sum(), took.sum() // len(took), took.min(), took.max())
            cells = [time_text(int(ns), known).rstrip() for ns in spent]
        line = "".join(f"{cell:<12}" for cell in cells)
        at = f" ({place})" if place else ""
        yield f"{len(took):>9} {point.missed:>7} {point.way:<4} {line}{name}{at}\n"
    for point, name, sum_ in zip(hits.points, names, sums, strict=True):
        yield from _callers(name, sum_, known)
        for one, counts in zip(point.fields, sum_.values, strict=True):
            yield from _values(f"{name} {one.name}", one, counts, places, style)


def _count(hits: Hits, number: int, places: Places) -> _Sums:
    every = np.flatnonzero(hits.point == number)
    out = _Sums(values=[Counter() for _ in hits.points[number].fields])
    for first in range(0, len(every), STEP):
        event = hits.group(number, every[first : first + STEP])
        for one in np.unique(event.owner).tolist():
            mine = np.flatnonzero(event.owner == one)
            if event.point.returns:
                _add_callers(out.callers, one, event, mine, places)
            for index, column in enumerate(event.values):
                counts = out.values[index]
                if counts is not None:
                    counts.update(_counted(one, column, mine))
                    out.values[index] = counts if len(counts) <= DIFFERENT else None
    return out


def _add_callers(
    sums: dict[str, list[int]], file: int, event: Group, mine: np.ndarray, places: Places
) -> None:
    addresses, index = np.unique(event.caller[mine], return_inverse=True)
    hits = np.bincount(index, minlength=len(addresses)).tolist()
    time = np.bincount(index, event.duration[mine], minlength=len(addresses)).tolist()
    for name, number, ns in zip(places.calling(file, addresses), hits, time, strict=True):
        sum_ = sums.setdefault(name, [0, 0])
        sum_[0] += number
        sum_[1] += int(ns)


def _counted(file: int, one: Column, mine: np.ndarray) -> Counter[Counted]:
    """How often each value is there; symbols by file, since programs are where they are."""
    kind = file if one.field.show is Show.SYMBOL else 0
    lost = one.lost[mine]
    out: Counter[Counted] = Counter()
    if lost.any():
        out[0, None] = int(lost.sum())
    mine = mine[~lost]
    if one.text.shape[1]:
        held = np.ascontiguousarray(one.text[mine]).view(f"S{one.field.room + 1}").ravel().tolist()
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
    field_: Field,
    counts: Counter[Counted] | None,
    places: Places,
    style: Style,
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
        texts[style.clean(_text(field_, file, value, places))] += number
    rest = counts.total() - texts.total()
    for text, number in texts.most_common():
        yield f"{number:>10}    {text}\n"
    if rest:
        yield f"{rest:>10}    ({len(counts) - TOP} others)\n"


def _text(field_: Field, file: int, value: int | bytes | None, places: Places) -> str:
    if value is None:
        return FAULT.decode()
    if isinstance(value, bytes):
        mark = MARK.decode() if len(value) >= field_.room else ""
        return f'"{escaped(whole(value, field_.room))}"{mark}'
    if field_.show is Show.SYMBOL:
        (name,) = places.symbols(file, np.array([value], np.uint64))
        return name
    if field_.names and (name := dict(field_.names).get(value, field_.other)):
        return name
    if field_.show in FLOATS:
        return str(floats(np.array([value], np.uint64), field_.show)[0])
    return hex(value) if field_.show is Show.HEX else str(value)


class Profile(Report):
    """ftrace's function_profile."""

    name = "profile"
    shows = Data.CALLS | Data.SUMS | Data.HITS
    text = True
    sums = True

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        return _profile(source, style)


REPORT: Report = Profile()
