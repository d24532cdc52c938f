# SPDX-License-Identifier: MIT
"""``ftpatch watch``: watchpoints on variables, as the ksym tracer set them in the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ftpatch.api.writing import output_path
from ftpatch.cli.completion import images
from ftpatch.cli.console import json_line, lines, note_lines, tell_links, wait_for
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
from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from ftpatch.image import Image
    from ftpatch.watch import Watch

__all__ = ["command"]


Program = Annotated[
    Path,
    typer.Argument(metavar="PROG", readable=False, autocompletion=images, help="Program to watch."),
]
Requests = Annotated[
    list[str],
    typer.Argument(
        metavar="WATCH",
        help="Watches in the forms above [default: list those inserted].",
    ),
]


def command(
    program: Program,
    requests: Requests = [],  # noqa: B006 - typer copies it
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="SIZE", help="Trace file size [default: 64M]."),
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
    """Record who reads and writes a program's variables.

    \b
    SYMBOL:rw-           reads and writes, as in ftrace's ksym_trace_filter
    SYMBOL:-w-           writes
    SYMBOL+OFFSET:rw-    OFFSET bytes into SYMBOL
    w@SYMBOL[+OFFSET][:LEN], rw@..., r@...
                         LEN is 1, 2, 4 or 8 bytes; default: the whole symbol
                         if it has such a size, else at most its first 4 bytes
    SYMBOL:---           remove the watch; *:--- remove all watches

    SYMBOL is a symbol, a C++, Rust or D source name, or a link address. Each access is recorded
    with the value before it. The processor has four breakpoints and cannot watch reads alone.
    If any request fails, nothing is written.

    \b
    Examples:
    ftpatch watch ./shop stock:rw- prices+16:-w- -o ./shop.w
    ftpatch watch ./shop 'shop::Cart::total:rw-' w@0x4030:8
    ftpatch watch ./shop.w                   lists its watches
    ftpatch watch ./shop.w stock:--- --in-place
    FTPATCH_TRACE=shop.trace ./shop.w; ftpatch report shop.trace
    """
    as_json = wants_json(json, format_)
    if not requests:
        if output is not None or in_place or size is not None:
            raise UsageError(program, "nothing to write", "specify a watch, such as counter:rw-")
        from ftpatch.image import open_image
        from ftpatch.watch.plan import read_watches

        image = open_image(program)
        _said(image, read_watches(image), as_json, quiet)
        return
    from ftpatch.watch import parse_watch

    parsed = [parse_watch(text) for text in requests]
    target = output_path(program, output, in_place)
    room = None if size is None else bytes_of(size)
    from ftpatch.io.output import Copy

    with Copy(
        program,
        None if dry_run else target,
        force=force,
        allow_setuid=allow_setuid,
        in_place=in_place,
    ) as copy:
        from ftpatch.image import open_image
        from ftpatch.update.update import lay_in
        from ftpatch.watch.plan import plan_watched

        image = open_image(program)
        watched = plan_watched(image, parsed, size=room)
        if not dry_run:
            wait_for(copy)
            lay_in(copy, image, watched.plan)
    tell_links(copy)
    note_lines(watched.notes)
    _said(image, watched.watches, as_json, quiet)
    if not as_json and not quiet:
        lines(["dry run: nothing was written" if dry_run else f"wrote {target}"])


def _said(image: Image, watches: tuple[Watch, ...], as_json: bool, quiet: bool) -> None:
    """Print the watches, a line each; on standard error where one is not all of a variable."""
    from ftpatch.watch import readable, watch_line
    from ftpatch.watch.plan import part_notes
    from ftpatch.watch.variables import Variables

    if as_json:
        variables = Variables(image)
        for watch in watches:
            row: dict[str, Any] = {
                "watch": watch_line(readable(watch)),
                "symbol": readable(watch).symbol,
                "offset": watch.offset,
                "address": hex(watch.address),
                "length": watch.length,
                "size": variables.size(watch) or None,
                "type": watch.type,
            }
            json_line(row)
    elif not quiet:
        note_lines(part_notes(image, watches))
        lines(watch_line(readable(watch)) for watch in watches)
