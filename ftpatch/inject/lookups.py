# SPDX-License-Identifier: MIT
"""Answers of a runtime in a process to unwinders: struct lookups of stubs/runtime/lookups.h."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ftpatch.errors import InputError, UsageError
from ftpatch.inject.stub import Stub
from ftpatch.layout import constants, offset_of, pack, structure
from ftpatch.process.areas import Area
from ftpatch.process.planned import Exported
from ftpatch.process.unwinders import EXPORTED, Unwinders

__all__ = [
    "LOOKUPS_NAME",
    "answers",
    "asked_place",
    "exported",
    "led_slots",
    "looked_up",
    "lookups",
    "lookups_entries",
]

LOOKUPS_NAME: Final = "ftpatch_lookups"
ENTRIES: Final = {
    "_dl_find_object": "ftpatch_find_object",
    "dl_iterate_phdr": "ftpatch_iterate_phdr",
}
"""The stub's functions, by those in place of which they are called."""
MAX_AREAS: Final = constants["LOOKED_UP"]
"""Maximum number of areas."""


def answers(stub: Stub) -> bool:
    """Test whether a stub has answers for unwinders."""
    return stub.address(LOOKUPS_NAME) is not None


def lookups(
    stub: Stub, functions: Mapping[str, int], areas: Sequence[tuple[int, int, int]]
) -> dict[int, bytes]:
    """Build the table, by address in the stub. ``functions``: addresses of the process's own, by
    name; ``areas``: start and end of the code of each, and its .eh_frame_hdr. Raises InputError for
    a stub without a table, UsageError for too many areas."""
    if len(areas) > MAX_AREAS:
        raise UsageError(None, "too many libraries for one trace", "trace fewer")
    held = pack(
        "lookups",
        stub.order,
        find_object=functions.get("_dl_find_object", 0),
        iterate_phdr=functions.get("dl_iterate_phdr", 0),
        count=len(areas),
    )
    names = ("low", "high", "table")
    rows = (dict(zip(names, area, strict=True)) for area in areas)
    parts = [pack("looked_up", stub.order, **row) for row in rows]
    data = held[: offset_of("lookups", "area")] + b"".join(parts)
    return {_address(stub, LOOKUPS_NAME): data.ljust(structure("lookups").itemsize, b"\0")}


def lookups_entries(stub: Stub) -> dict[str, int]:
    """The linked addresses of what is called in place of the process's own functions, by their
    names. Raises InputError."""
    return {name: _address(stub, entry) for name, entry in ENTRIES.items()}


def looked_up(stub: Stub, area: Area) -> tuple[int, int, int]:
    """Bounds of the code of a stub in its area, and the .eh_frame_hdr there."""
    return *area.text, stub.unwind + area.shift


def led_slots(unwinders: Unwinders, stub: Stub, main: Area) -> tuple[tuple[int, int, int], ...]:
    """The slots of unwinders, by address, and what they hold and are to hold; none where unwinders
    ask nothing by a slot. Raises InputError."""
    if not unwinders.slots:
        return ()
    entries = lookups_entries(stub)
    return tuple((one.address, one.old, entries[one.name] + main.shift) for one in unwinders.slots)


def exported(unwinders: Unwinders, stub: Stub, main: Area) -> tuple[Exported, ...]:
    """The export by which unwinders come that are loaded later. Raises InputError."""
    one = unwinders.export
    if one is None:
        return ()
    entry = lookups_entries(stub)[EXPORTED] + main.shift
    new = (entry - one.bias) % (1 << 64)
    return (Exported(one.address, one.old, new, unwinders.functions[EXPORTED], entry),)


def asked_place(stub: Stub, arch: str) -> int:
    """The linked address of the word that tells that an unwinder has asked. Raises InputError."""
    return _address(stub, LOOKUPS_NAME) + offset_of("lookups", "asked", arch)


def _address(stub: Stub, name: str) -> int:
    found = stub.address(name)
    if found is None:
        raise InputError(stub.path, f"the stub has no {name}")
    return found
