"""``ftpatch diff``: what differs between two images, or between an image and what it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.cli.console import json_line, lines, table
from ftpatch.cli.options import Format, Image, Json, Quiet, wants_json
from ftpatch.errors import Exit, UsageError

if TYPE_CHECKING:
    from ftpatch.diff import Diff, Difference
    from ftpatch.sites import Sites

__all__ = ["NAME", "command"]

NAME = "diff"
SHOWN = 40


def command(
    image: Image,
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OTHER]",
            readable=False,
            help="The image to compare with. Default: what IMAGE was before its journal, or else "
            "IMAGE.ftpatch.",
        ),
    ] = None,
    stat: Annotated[bool, typer.Option("--stat", help="Groups of like differences only.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=0, help=f"Sites to show; 0 is all. Default: {SHOWN}, JSON all."
        ),
    ] = None,
    json: Json = False,
    format_: Format = None,
    quiet: Quiet = False,
) -> None:
    """Show each changed site with both sides' instructions, and every other difference."""
    as_json = wants_json(json, format_)
    from ftpatch.diff import compare

    before, after = _sides(image, other)
    found = compare(before, after)
    if as_json and stat:
        for kind, old, new, count in _groups(found):
            json_line({"kind": kind, "old": old, "new": new, "count": count})
    elif as_json:
        for row in [*found.sites(limit or None), *found.others]:
            json_line(_object(row))
    elif not quiet:
        _text(found, stat, SHOWN if limit is None else limit)
    if not found.identical:
        raise typer.Exit(Exit.FOUND)


def _sides(image: Path, other: Path | None) -> tuple[Sites, Sites]:
    from ftpatch.image import open_image
    from ftpatch.sites import read_sites

    if other is not None:
        return read_sites(open_image(image)), read_sites(open_image(other))
    after = read_sites(open_image(image))
    if after.blocks:
        return read_sites(after.original), after
    written = image.with_name(image.name + ".ftpatch")
    if not written.exists():
        raise UsageError(image, "no journal, and there is no " + written.name, "name two images")
    return after, read_sites(open_image(written))


def _groups(found: Diff) -> list[tuple[str, str, str, int]]:
    from collections import Counter

    others = Counter((row.kind, row.old, row.new) for row in found.others)
    return [
        *found.pairs.groups(found.before, found.after),
        *((*key, count) for key, count in others.most_common()),
    ]


def _object(row: Difference) -> dict[str, object]:
    return {
        "kind": row.kind,
        "address": None if row.address is None else hex(row.address),
        "offset": row.offset,
        "symbol": row.symbol,
        "old": row.old,
        "new": row.new,
    }


def _text(found: Diff, stat: bool, limit: int) -> None:
    if found.identical:
        lines(["nothing differs"])
        return
    if found.pairs.moved:
        lines(["addresses moved: functions are compared by name"])
    if not len(found):
        lines(["two builds, of which no site differs"])
        return
    paired = len(found.pairs.before)
    if stat or (limit and paired > limit):
        table(
            ("sites", "kind", "before", "after"),
            ((count, kind, old, new) for kind, old, new, count in _groups(found)[:SHOWN]),
            numbers=[0],
        )
    if stat:
        return
    rows = list(found.sites(limit or None))
    if rows:
        table(("kind", "place", "before", "after"), map(_line, rows))
    if limit and paired > limit:
        lines([f"... and {paired - limit} more sites; --limit 0 shows all"])
    others = found.others[: limit or None]
    if others:
        table(("kind", "place", "before", "after"), map(_line, others))
    if len(others) < len(found.others):
        lines([f"... and {len(found.others) - len(others)} more; --limit 0 shows all"])


def _line(row: Difference) -> tuple[str, str, str, str]:
    place = row.symbol or (f"offset {row.offset:#x}" if row.address is None else hex(row.address))
    return row.kind, place, row.old, row.new
