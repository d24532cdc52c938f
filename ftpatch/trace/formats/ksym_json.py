"""Accesses to variables for other tools: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ftpatch.trace.formats.ksym import wanted
from ftpatch.trace.formats.style import Look
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows
from ftpatch.watch import watch_line
from ftpatch.watch.accesses import read_accesses
from ftpatch.watch.accessors import Accessors

__all__ = ["ksym_json"]


def ksym_json(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    """The report, in parts: accesses by time, and in the end what each watch comes to. Times are
    nanoseconds, addresses strings. ``access`` is ``r``, ``w``, ``rw``, or null where unknown;
    so is ``cpu``; ``function`` and ``ip`` are null where SIGTRAP was blocked. ``new`` is what was
    there behind the access, ``old`` what the one before it had left there."""
    del batches, look
    found, accessors = read_accesses(trace), Accessors(trace)
    for access in wanted(trace, found):
        who = None if access.late else accessors.of(access)
        row: dict[str, Any] = {
            "comm": trace.comms[access.thread],
            "pid": trace.pids[access.thread],
            "tid": trace.tids[access.thread],
            "cpu": access.cpu,
            "time": access.time,
            "watch": watch_line(access.watch),
            "symbol": access.watch.symbol,
            "offset": access.watch.offset,
            "length": access.watch.length,
            "type": access.watch.type,
            "access": accessors.kind(access) or None,
            "ip": who and hex(access.ip),
            "function": who and who.place,
            "old": hex(access.before),
            "new": hex(access.after),
        }
        yield json.dumps(row) + "\n"
    for header, watches in zip(trace.headers, found.told, strict=True):
        for told in watches:
            if told is not None:
                row = {"pid": header.pid, "watch": watch_line(told.watch), "hits": told.hits}
                row |= {"missed": told.missed, "errno": told.refusal}
                yield json.dumps(row) + "\n"
