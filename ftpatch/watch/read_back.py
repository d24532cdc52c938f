# SPDX-License-Identifier: MIT
"""The locations of a program's watches, found through its stub's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.inject.read_back import file_offset, injected_table, recording_of
from ftpatch.inject.runtime import WATCH
from ftpatch.layout import offset_of
from ftpatch.watch.rules import RULES_SIZE
from ftpatch.watch.table import TABLE_SIZE

__all__ = ["InjectedWatches", "injected_watches", "is_watched_alone"]


@dataclass(frozen=True, kw_only=True)
class InjectedWatches:
    """File offsets: of the table of watches, and of the stub's configuration. ``rules``: behind
    the table are their rules, and ``homes``: behind these their libraries, which earlier versions
    did not have."""

    table: int
    config: int
    rules: bool
    homes: bool


def is_watched_alone(image: Image) -> bool:
    """Test whether a program has watches, and neither a tracer nor probes."""
    told = recording_of(image)
    return injected_watches(image) is not None and told is not None and not told.together


def injected_watches(image: Image) -> InjectedWatches | None:
    """Find a program's watches; None if it has none. Raises InputError for a stub that refers to a
    place outside the file."""
    found = injected_table(image, WATCH)
    if found is None:
        return None
    at, table = found
    rules, homes = _number(image, at, "caller"), _number(image, at, "returned")
    if rules and rules != table + TABLE_SIZE:
        raise InputError(image.path, f"its filters are not behind its watches: {rules:#x}")
    if homes and homes != table + TABLE_SIZE + RULES_SIZE:
        raise InputError(image.path, f"its libraries are not behind its watches: {homes:#x}")
    table = file_offset(image, table, "watches")
    return InjectedWatches(table=table, config=at, rules=bool(rules), homes=bool(homes))


def _number(image: Image, at: int, member: str) -> int:
    """A number of a stub's configuration."""
    place = at + offset_of("stub_config", member)
    raw = image.elf.contents(place, 8, "configuration of its stub")
    return image.elf.order.integer(raw)
