# SPDX-License-Identifier: MIT
"""The probes of a program, read back from its injected tables (``probe/tables.py``)."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.inject.read_back import file_offset, injected_table
from ftpatch.inject.runtime import PROBES
from ftpatch.layout import structure, unpack
from ftpatch.probe.tables import HEADER, WAY_SHIFT

__all__ = ["InjectedProbe", "injected_probes"]

MAX_TABLE_SIZE = 1 << 26
"""Maximum size of all tables (bytes)."""


@dataclass(frozen=True, kw_only=True)
class InjectedProbe:
    """A probe: its definition as in kprobe_events, its link address, and its method's number."""

    text: str
    ip: int
    way: int


def injected_probes(image: Image) -> list[InjectedProbe] | None:
    """Read a program's probes, by address; None if it has none. Raises InputError for corrupt
    tables."""
    found = injected_table(image, PROBES)
    if found is None:
        return None
    _, table = found
    order = image.elf.order
    raw = _at(image, table, structure("probe_table").itemsize)
    tables = unpack("probe_table", order, raw)
    count, size, entry = tables["probe_count"], tables["told_size"], structure("trace_probe")
    if not count * entry.itemsize <= size <= MAX_TABLE_SIZE:
        raise InputError(image.path, f"its table of probes is corrupt: {count} entries")
    if not count:
        return None
    raw = _at(image, tables["told"], size)
    out = []
    for number in range(count):
        told = unpack("trace_probe", order, raw, number * entry.itemsize)
        text, length = told["text"], told["length"]
        if not HEADER <= text <= text + length <= HEADER + size:
            raise InputError(image.path, f"the definition of probe {number} is not in its table")
        held = raw[text - HEADER : text - HEADER + length].decode("utf-8", "backslashreplace")
        out.append(InjectedProbe(text=held, ip=told["ip"], way=told["flags"] >> WAY_SHIFT))
    return out


def _at(image: Image, address: int, size: int) -> bytes:
    offset = file_offset(image, address, "probes")
    return image.elf.contents(offset, size, "table of probes").tobytes()
