# SPDX-License-Identifier: MIT
"""``ftpatch probe --plan``: the ways that probes would get."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ftpatch.api.probe_ways import ProbeWay, probe_ways
from ftpatch.cli.console import count, json_line, lines
from ftpatch.cli.probe_told import place_line
from ftpatch.errors import Refused, UsageError

__all__ = ["tell_plan"]

INSTRUCTION = re.compile(r"0x[0-9a-f]+: [^;]*: ")
"""The part of a reason that is a place's own."""
REFUSED = "none"
"""In a sum: no probe is possible."""


def tell_plan(
    program: Path,
    probes: Sequence[str],
    refused: Refused,
    *,
    optimize: bool,
    regex: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Print the ways of probes, or a sum of those of all functions. In that, what is ``refused`` is
    counted, and then no longer an error. Raises what planning raises."""
    found = probe_ways(program, probes, refused, optimize=optimize, regex=regex, limit=limit)
    if as_json:
        for one in found:
            json_line(one._asdict() | {"address": hex(one.address)})
    elif probes:
        width = max((len(one.name) for one in found), default=0)
        lines(place_line(one, width) for one in found)
    else:
        lines(_summed(found, refused.errors))
        refused.errors.clear()


def _summed(found: Sequence[ProbeWay], errors: Sequence[UsageError]) -> Iterator[str]:
    """Each way with its share, and why it was no better one, the most frequent first."""
    ways = Counter(one.way for one in found)
    if errors:
        ways[REFUSED] = len(errors)
    total = ways.total()
    yield count(total, "function")
    for way, number in ways.most_common():
        yield f"  {way:4}  {number:7,}  {number / total:7.2%}"
        reasons = (INSTRUCTION.sub("", one.reason) for one in found if one.way == way)
        yield from _reasons(reasons)


def _reasons(reasons: Iterable[str]) -> Iterator[str]:
    for reason, number in Counter(filter(None, reasons)).most_common():
        yield f"        {number:7,}  {reason}"
