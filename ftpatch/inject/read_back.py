# SPDX-License-Identifier: MIT
"""Injected tables, located through the stub's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.image.injected import laid_in_at
from ftpatch.inject.runtime import PROBES, TRACERS, USER, WATCH, Keeping, Tracer
from ftpatch.layout import constants, structure, unpack

__all__ = ["RecordingOf", "file_offset", "injected_table", "recording_of"]

TRACE_TOGETHER, TRACE_WATCHES = constants["TRACE_TOGETHER"], constants["TRACE_WATCHES"]


@dataclass(frozen=True, kw_only=True)
class RecordingOf:
    """The configuration of a stub: the name of a ``tracer``, empty for none; ``depth``: entries
    of a ret_stack, ``size``: bytes of a trace file; the ``span`` of the stub's code (link
    addresses); ``together``: for several kinds of events; what is kept of them (``keeping``);
    ``flags``: enum trace_flags, as they are in the file."""

    tracer: str
    depth: int
    size: int
    span: tuple[int, int]
    together: bool
    keeping: Keeping
    flags: int


def injected_table(image: Image, tracer: Tracer) -> tuple[int, int] | None:
    """Return the configuration's file offset, and the link address of this tracer's table; None if
    nothing was injected, or something else."""
    found = _config(image)
    if found is None:
        return None
    at, held = found
    if held["flags"] & TRACE_TOGETHER:
        if tracer is PROBES:
            return at, held["probes"]
        watches = tracer is WATCH and held["flags"] & TRACE_WATCHES
        return (at, held["watches"]) if watches else None
    return (at, held["probes"]) if held["tracer"] == tracer.number else None


def recording_of(image: Image) -> RecordingOf | None:
    """Read what a program's stub is configured for; None if nothing was injected."""
    found = _config(image)
    if found is None:
        return None
    at, held = found
    names = {one.number: one.name for one in (*TRACERS.values(), USER)}
    size = next(
        one.offset + one.size - at
        for one in image.elf.skeleton.segments
        if one.type == Segment.PT_LOAD and one.offset <= at < one.offset + one.size
    )
    return RecordingOf(
        tracer=names.get(held["tracer"], ""),
        depth=held["depth"],
        size=held["size"],
        span=(held["self"], held["self"] + size),
        together=bool(held["flags"] & TRACE_TOGETHER),
        keeping=Keeping.of(held["flags"], held["signal"]),
        flags=held["flags"],
    )


def _config(image: Image) -> tuple[int, dict[str, Any]] | None:
    """The configuration of a stub, with its file offset."""
    at = laid_in_at(image)
    if at is None:
        return None
    size = structure("stub_config").itemsize
    raw = image.elf.contents(at, size, "configuration of its stub").tobytes()
    return at, unpack("stub_config", image.elf.order, raw)


def file_offset(image: Image, address: int, what: str) -> int:
    """Return the file offset of a table. Raises InputError if it is not in the file."""
    offset = int(image.elf.offset_of(np.array([address], np.uint64))[0])
    if offset < 0:
        raise InputError(image.path, f"its table of {what} is not in the file: {address:#x}")
    return offset
