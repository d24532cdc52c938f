# SPDX-License-Identifier: MIT
"""``ftpatch watch``: watchpoints on variables, as the ksym tracer set them in the kernel."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ftpatch.api.watching import Watch, told_watches, write_watches
from ftpatch.api.writing import Writing
from ftpatch.cli.completion import images, pids
from ftpatch.cli.console import json_line, lines, note_lines, tell_links, wait_for
from ftpatch.cli.options import (
    AllowSetuid,
    DryRun,
    Force,
    InPlace,
    Json,
    LiveFormat,
    LiveReports,
    Off,
    Output,
    Quiet,
    Rotate,
    Signal,
    bytes_of,
    live_format,
    require_first,
    require_pid,
    wants_json,
)
from ftpatch.errors import UsageError

__all__ = ["command"]


Program = Annotated[
    Path | None,
    typer.Argument(metavar="PROG", readable=False, autocompletion=images, help="Program to watch."),
]
WatchedPid = Annotated[
    int | None,
    typer.Option(
        "-p",
        "--pid",
        metavar="PID",
        autocompletion=pids,
        help="Running process to watch, instead of PROG; it is neither stopped nor changed.",
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        metavar="N",
        help="With --pid: time to watch for, such as 10 or 500ms [default: until "
        "Ctrl-C, or its end].",
    ),
]
Requests = Annotated[
    list[str],
    typer.Argument(
        metavar="WATCH",
        help="Watches in the forms above [default: list those inserted].",
    ),
]


def command(
    program: Program = None,
    requests: Requests = [],  # noqa: B006 - typer copies it
    pid: WatchedPid = None,
    seconds: Seconds = None,
    reports: LiveReports = [],  # noqa: B006
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="SIZE", help="Trace file size [default: 64M]."),
    ] = None,
    rotate: Rotate = 0,
    off: Off = False,
    signal: Signal = "",
    output: Output = None,
    in_place: InPlace = False,
    force: Force = False,
    allow_setuid: AllowSetuid = False,
    dry_run: DryRun = False,
    json: Json = False,
    format_: LiveFormat = None,
    quiet: Quiet = False,
) -> None:
    """Record who reads and writes a program's variables.

    \b
    SYMBOL:rw-           reads and writes, as in ftrace's ksym_trace_filter
    SYMBOL:-w-           writes
    SYMBOL+OFFSET:rw-    OFFSET bytes into SYMBOL
    cart.items[2].n:rw-  a member or an element, with debug information
    LIB:SYMBOL:rw-       a variable of a library, by its path or name
    w@SYMBOL[+OFFSET][:LEN], rw@..., r@...
                         LEN is 1, 2, 4 or 8 bytes; default: the whole symbol
                         if it has such a size, else at most its first 4 bytes
    SYMBOL:---           remove the watch; *:--- remove all watches
    SYMBOL:rw- [stack[(N)]] [if FILTER]
                         with the N calls that led there; only some accesses,
                         as in if new < 10 && func != sell: old, new, tid, func

    SYMBOL is a symbol, a C++, Rust or D source name, or a link address. Each access is recorded
    with the value before it. The processor has four breakpoints and cannot watch reads alone.
    If any request fails, nothing is written. Strip a program before: strip(1) drops watches.

    With --pid, accesses of all threads of a running process are recorded and reported, including
    threads and children that start later; -o keeps the trace file.

    \b
    Examples:
    ftpatch watch ./shop stock:rw- prices+16:-w- -o ./shop.w
    ftpatch watch ./shop 'shop::Cart::total:rw-' w@0x4030:8
    ftpatch watch ./shop 'stock:rw- stack if old != new'
    ftpatch watch ./shop.w                   lists its watches
    ftpatch watch ./shop.w stock:--- --in-place
    FTPATCH_TRACE=shop.trace ./shop.w; ftpatch report shop.trace
    ftpatch watch --pid 1234 stock:rw- --seconds 10
    """
    if pid is not None:
        from ftpatch.cli.process_update import require_unused
        from ftpatch.cli.watch_process import Wanted, watch_process
        from ftpatch.watch.plan import SIZE

        unused = {"--in-place": in_place, "--allow-setuid": allow_setuid, "--dry-run": dry_run}
        unused |= {"--rotate": rotate > 0, "--off": off, "--signal": bool(signal)}
        require_unused(unused)
        wanted = Wanted(
            requests=[*([str(program)] if program else []), *requests],
            seconds=seconds,
            reports=reports,
            output=output,
            size=SIZE if size is None else bytes_of(size),
            force=force,
            format=live_format(json, format_),
            quiet=quiet,
        )
        watch_process(pid, wanted)
        return
    as_json = wants_json(json, format_)
    require_pid({"--report": reports, "--seconds": seconds is not None})
    if program is None:
        raise UsageError(None, "no PROG and no --pid", "name a program, or a running process")
    if not requests:
        named = rotate or off or signal
        if output is not None or in_place or size is not None or named:
            raise UsageError(program, "nothing to write", "specify a watch, such as counter:rw-")
        from ftpatch.image import open_image
        from ftpatch.watch.library_variables import LibraryVariables
        from ftpatch.watch.plan import part_notes, read_watches

        image = open_image(program)
        read = read_watches(image)
        if not (as_json or quiet):
            note_lines(part_notes(LibraryVariables(image), read))
        _said(told_watches(image, read), as_json, quiet)
        return
    require_first(program, requests, "watches")
    writing = Writing(
        image=program,
        output=output,
        in_place=in_place,
        force=force,
        allow_setuid=allow_setuid,
        dry_run=dry_run,
    )
    room = None if size is None else bytes_of(size)
    from ftpatch.inject.runtime import Keeping
    from ftpatch.inject.switch_signal import switch_signal

    keeping = Keeping(off=off, rotate=rotate, signal=switch_signal(signal or 0))
    watched = write_watches(writing, requests, size=room, keeping=keeping, wait=wait_for)
    tell_links(watched)
    note_lines(watched.notes)
    if not (as_json or quiet):
        note_lines(watched.partial)
    _said(watched.watches, as_json, quiet)
    if not as_json and not quiet:
        lines([f"wrote {watched.target}" if watched.written else "dry run: nothing was written"])


def _said(watches: Iterable[Watch], as_json: bool, quiet: bool) -> None:
    """Print the watches, a line each."""
    if as_json:
        for one in watches:
            row: dict[str, Any] = one._asdict()
            json_line(row | {"address": hex(one.address), "size": one.size or None})
    elif not quiet:
        lines(one.watch for one in watches)
