# SPDX-License-Identifier: MIT
"""The locations of a program's watches, found through its stub's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.inject.read_back import file_offset, injected_table, recording_of
from ftpatch.inject.runtime import WATCH
from ftpatch.layout import offset_of
from ftpatch.watch.table import TABLE_SIZE

__all__ = ["InjectedWatches", "injected_watches", "is_watched_alone"]


@dataclass(frozen=True, kw_only=True)
class InjectedWatches:
    """File offsets: of the table of watches, and of the stub's configuration. ``rules``: behind
    the table are their rules, which earlier versions did not have."""

    table: int
    config: int
    rules: bool


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
    raw = image.elf.contents(
        at + offset_of("stub_config", "caller"), 8, "configuration of its stub"
    )
    rules = int.from_bytes(raw.tobytes(), "little")
    if rules and rules != table + TABLE_SIZE:
        raise InputError(image.path, f"its filters are not behind its watches: {rules:#x}")
    table = file_offset(image, table, "watches")
    return InjectedWatches(table=table, config=at, rules=bool(rules))
