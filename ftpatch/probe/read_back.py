"""Probes of a program, read back from the inserted tables (``probe/tables.py``)."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.inject.read_back import file_offset, laid_table
from ftpatch.inject.runtime import PROBES
from ftpatch.probe.tables import HEADER, TABLE, TOLD, WAY_SHIFT

__all__ = ["Held", "held_probes"]

LONGEST = 1 << 26
"""Bytes of all that is told of probes, at most."""


@dataclass(frozen=True)
class Held:
    """A probe: its definition as kprobe_events tells it, its link address, and its way (1: pad,
    2: jump, 3: trap)."""

    text: str
    ip: int
    way: int


def held_probes(image: Image) -> list[Held] | None:
    """The probes of a program by address; None where none were inserted. Raises InputError for
    tables that cannot be right."""
    found = laid_table(image, PROBES)
    if found is None:
        return None
    _, table = found
    *_, told, _, count, size, _ = TABLE.unpack(_at(image, table, TABLE.size))
    if not count * TOLD.size <= size <= LONGEST:
        raise InputError(image.path, f"its table of probes is corrupt: {count} entries")
    raw = _at(image, told, size)
    out = []
    for number in range(count):
        _, _, _, ip, _, flags, text, length = TOLD.unpack_from(raw, number * TOLD.size)
        if not HEADER <= text <= text + length <= HEADER + size:
            raise InputError(image.path, f"the definition of probe {number} is not in its table")
        held = raw[text - HEADER : text - HEADER + length].decode("utf-8", "backslashreplace")
        out.append(Held(held, ip, flags >> WAY_SHIFT))
    return out


def _at(image: Image, address: int, size: int) -> bytes:
    offset = file_offset(image, address, "probes")
    return image.elf.contents(offset, size, "table of probes").tobytes()
