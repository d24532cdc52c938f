# SPDX-License-Identifier: MIT
"""Watches laid into a program, and those that it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ftpatch.api.recording_limits import require_limits
from ftpatch.api.writing import Wait, Writing, copy_of, output_path

if TYPE_CHECKING:
    from ftpatch.image import Image
    from ftpatch.inject.runtime import Keeping
    from ftpatch.watch import Request
    from ftpatch.watch import Watch as Read
    from ftpatch.watch.plan import Watched as Plans

__all__ = ["Watch", "Watched", "told_watches", "watches_of", "write_watches"]


class Watch(NamedTuple):
    """A watch; the fields are those of ``ftpatch watch --json``. ``watch`` is the request that
    makes it, ``size`` that of the variable in bytes, 0 if it is unknown."""

    watch: str
    symbol: str
    offset: int
    address: int
    length: int
    size: int
    type: str


@dataclass(frozen=True, kw_only=True)
class Watched:
    """All watches that the output has, ``notes`` on the requests, and ``partial``, on watches that
    are not just a variable; the output is ``target``, and ``written``, None for a dry run.
    ``names``: how many the file had whose place it took."""

    watches: tuple[Watch, ...]
    notes: tuple[str, ...]
    partial: tuple[str, ...]
    target: Path
    written: Path | None
    names: int


def write_watches(
    writing: Writing,
    requests: Sequence[str],
    *,
    size: int | None = None,
    keeping: Keeping | None = None,
    wait: Wait = lambda _: None,
) -> Watched:
    """Carry out all requests, or none. ``size``: bytes of a trace file, None: unchanged, or the
    default; ``keeping`` is added to what is kept of events. Raises UsageError for one that cannot
    be, what planning raises, and OutputError."""
    from ftpatch.watch import parse_watch

    if size is not None:
        require_limits(size=size)
    parsed = [parse_watch(text) for text in requests]
    target = output_path(writing.image, writing.output, writing.in_place)
    with copy_of(writing, target, in_place=writing.in_place) as copy:
        from ftpatch.image import open_image
        from ftpatch.inject.runtime import Keeping
        from ftpatch.update.update import lay_in
        from ftpatch.watch.library_variables import LibraryVariables
        from ftpatch.watch.plan import part_notes

        image = open_image(writing.image)
        watched = _planned(image, parsed, size, keeping or Keeping())
        if not writing.dry_run:
            wait(copy)
            lay_in(copy, image, watched.plan)
    return Watched(
        watches=tuple(told_watches(image, watched.watches)),
        notes=watched.notes,
        partial=tuple(part_notes(LibraryVariables(image), watched.watches)),
        target=target,
        written=None if writing.dry_run else target,
        names=copy.names,
    )


def _planned(
    image: Image, requests: Sequence[Request], size: int | None, keeping: Keeping
) -> Plans:
    """Plan watches, beside what else the program has."""
    from ftpatch.errors import Refused
    from ftpatch.image.injected import laid_in_id
    from ftpatch.watch.plan import Watched as Plans
    from ftpatch.watch.plan import plan_watched, requested, require_watchable
    from ftpatch.watch.read_back import is_watched_alone

    require_watchable(image)
    if laid_in_id(image) is None or is_watched_alone(image):
        return plan_watched(image, requests, size=size, keeping=keeping)
    from ftpatch.api.laid_in import laid_in

    has = laid_in(image)
    assert has is not None
    watches, notes = requested(has.base, has.contents.watches, requests)
    contents = replace(
        has.contents,
        watches=watches,
        size=size or has.contents.size,
        keeping=has.contents.keeping | keeping,
    )
    refused = Refused()
    probed = has.planned(contents, refused)
    if refused.errors:
        raise refused.errors[0]
    return Plans(plan=probed.plan, watches=watches, notes=notes)


def watches_of(image: Image) -> tuple[Watch, ...]:
    """The watches of a program; none for a file without them. Raises InputError for a corrupt
    table."""
    from ftpatch.watch.plan import read_watches
    from ftpatch.watch.read_back import injected_watches

    if not image.is_program or injected_watches(image) is None:
        return ()
    return tuple(told_watches(image, read_watches(image)))


def told_watches(image: Image, watches: Sequence[Read]) -> Iterator[Watch]:
    """The watches, each with the variable's own size."""
    from ftpatch.watch import readable, watch_line
    from ftpatch.watch.homes import LINK
    from ftpatch.watch.library_variables import LibraryVariables

    variables = LibraryVariables(image)
    for watch in watches:
        named = readable(watch)
        yield Watch(
            watch=watch_line(named),
            symbol=named.symbol,
            offset=watch.offset,
            address=watch.address & LINK,
            length=watch.length,
            size=variables.size(watch),
            type=watch.type,
        )
