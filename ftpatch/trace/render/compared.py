# SPDX-License-Identifier: MIT
"""The comparison of two runs, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ftpatch.trace.compare import Compared, Measure
from ftpatch.trace.render.style import time_text

__all__ = ["json_comparison", "text_comparison"]

RATIO = 10000
"""One that has no room, and tells no more than that it is large."""
TIMES = """\
#      Hit                 {}
#   before     after  before      after       difference    ratio  Function
#   ------     -----  ------      -----       ----------    -----  --------
"""
HITS = """\
#              Hit
#   before     after  difference    ratio  Function
#   ------     -----  ----------    -----  --------
"""


def text_comparison(compared: Compared, *, timed: bool, clock: bool) -> Iterator[str]:
    """Give a table by self time and one by total time, or, of runs that were not ``timed``, one by
    hits; in ticks where there is no ``clock``."""
    if not timed:
        yield HITS
        for name, old, new in _rows(compared, Measure.HITS):
            change, ratio = new[Measure.HITS] - old[Measure.HITS], _ratio_text(old, new, 0)
            yield f"{_hits(old)}{_hits(new)}  {change:<+12}{ratio:>7}  {name}\n"
        return
    for measure, what in ((Measure.OWN, "Self time"), (Measure.TIME, "Total time")):
        yield "" if measure == Measure.OWN else "#\n"
        yield TIMES.format(what)
        for name, old, new in _rows(compared, measure):
            times = [time_text(one[measure], clock) if any(one) else "-" for one in (old, new)]
            times.append(_signed(new[measure] - old[measure], clock))
            spent = "".join(f"{cell.rstrip():<11} " for cell in times)
            ratio = _ratio_text(old, new, measure)
            yield f"{_hits(old)}{_hits(new)}  {spent}{ratio:>7}  {name}\n"


def json_comparison(compared: Compared, *, timed: bool) -> Iterator[str]:
    """Give one object for each function, by difference of self time (of hits, if not ``timed``);
    null for a run that did not call it."""
    for name, old, new in _rows(compared, Measure.OWN if timed else Measure.HITS):
        row: dict[str, object] = {"function": name, "before": _object(old, timed)}
        row["after"] = _object(new, timed)
        row["difference"] = _sums([b - a for a, b in zip(old, new, strict=True)], timed)
        ratios = [_ratio(a, b) for a, b in zip(old, new, strict=True)]
        row["ratio"] = _sums([None if r is None else round(r, 6) for r in ratios], timed)
        yield json.dumps(row) + "\n"


def _rows(compared: Compared, measure: int) -> Iterator[tuple[str, list[int], list[int]]]:
    order = compared.order(measure)
    names = [compared.names[i] for i in order.tolist()]
    return zip(names, compared.before[order].tolist(), compared.after[order].tolist(), strict=True)


def _hits(sums: list[int]) -> str:
    return f" {sums[Measure.HITS] if any(sums) else '-':>9}"


def _ratio(old: int, new: int) -> float | None:
    return new / old if old > 0 else None


def _ratio_text(old: list[int], new: list[int], measure: int) -> str:
    if not any(old):
        return "new"
    if not any(new):
        return "gone"
    ratio = _ratio(old[measure], new[measure])
    if ratio is None:
        return "-"
    if ratio >= RATIO:
        return f">{RATIO - 1}"
    return f"{ratio:.2f}" if ratio < 1000 else f"{ratio:.0f}"


def _signed(ns: int, clock: bool) -> str:
    return f"{'-' if ns < 0 else '+'}{time_text(abs(ns), clock).rstrip()}" if ns else "0"


def _object(sums: list[int], timed: bool) -> dict[str, object] | None:
    return _sums(sums, timed) if any(sums) else None


def _sums(values: list[int] | list[float | None], timed: bool) -> dict[str, object]:
    hits, time, own = values
    return {"hits": hits, "total": time, "self": own} if timed else {"hits": hits}
