"""``ftpatch watch``: watched variables, as the ksym tracer watched the kernel's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ftpatch.cli.console import json_line, lines, wait_for
from ftpatch.cli.options import (
    AllowSetuid,
    DryRun,
    Force,
    Format,
    InPlace,
    Json,
    Output,
    Quiet,
    bytes_of,
    wants_json,
)
from ftpatch.cli.update import output_path
from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from ftpatch.watch import Watch

__all__ = ["NAME", "command"]

NAME = "watch"

Program = Annotated[
    Path, typer.Argument(metavar="PROG", readable=False, help="The program to be watched.")
]
Requests = Annotated[
    list[str],
    typer.Argument(
        metavar="WATCH",
        help="SYMBOL[+OFFSET]:rw- or :-w-, as in ftrace's ksym_trace_filter, or "
        "w@SYMBOL[+OFFSET][:LEN] and rw@...; SYMBOL:--- takes one out, *:--- all. None: tell what "
        "is watched.",
    ),
]


def command(
    program: Program,
    requests: Requests = [],  # noqa: B006 - typer copies it
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="SIZE", help="Of the trace file. Default: 64M."),
    ] = None,
    output: Output = None,
    in_place: InPlace = False,
    force: Force = False,
    allow_setuid: AllowSetuid = False,
    dry_run: DryRun = False,
    json: Json = False,
    format_: Format = None,
    quiet: Quiet = False,
) -> None:
    """Watch variables of a program: who reads them, who writes, and what was there before."""
    as_json = wants_json(json, format_)
    if not requests:
        if output is not None or in_place or size is not None:
            raise UsageError(program, "nothing to write", "say what to watch, as in counter:rw-")
        from ftpatch.image import open_image
        from ftpatch.plan.watched import read_watches

        _said(read_watches(open_image(program)), as_json)
        return
    target = output_path(program, output, in_place)
    room = None if size is None else bytes_of(size)
    from ftpatch.watch import parse_watch

    parsed = [parse_watch(text) for text in requests]
    from ftpatch.copy import Copy

    with Copy(
        program,
        None if dry_run else target,
        force=force,
        allow_setuid=allow_setuid,
        in_place=in_place,
    ) as copy:
        from ftpatch.image import open_image
        from ftpatch.plan.watched import plan_watched
        from ftpatch.update import lay_in

        image = open_image(program)
        watched = plan_watched(image, parsed, size=room)
        if not dry_run:
            wait_for(copy)
            lay_in(copy, image, watched.plan)
    lines((f"ftpatch: {note}" for note in watched.notes), error=True)
    if as_json or not quiet:
        _said(watched.watches, as_json)
    if not as_json and not quiet:
        lines(["dry run: nothing was written" if dry_run else f"wrote {target}"])


def _said(watches: tuple[Watch, ...], as_json: bool) -> None:
    from ftpatch.watch import watch_line

    for watch in watches:
        line = watch_line(watch)
        if as_json:
            row: dict[str, Any] = {
                "watch": line,
                "symbol": watch.symbol,
                "offset": watch.offset,
                "address": hex(watch.address),
                "length": watch.length,
                "type": watch.type,
            }
            json_line(row)
        else:
            lines([line])
