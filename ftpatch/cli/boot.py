# SPDX-License-Identifier: MIT
"""``ftpatch boot``: trace a kernel's boot under QEMU from its first function on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.api.boot_probing import any_returns
from ftpatch.api.booting import BootWords, boot_kernel
from ftpatch.cli.completion import report_formats
from ftpatch.cli.console import clean, count, note_lines
from ftpatch.cli.options import (
    Filter,
    Json,
    MaxEvents,
    Notrace,
    Regex,
    Until,
    WithTime,
    format_of,
)
from ftpatch.cli.progress import PROGRESS
from ftpatch.cli.report_output import open_output
from ftpatch.cli.signals import interrupted
from ftpatch.errors import UsageError
from ftpatch.io.activity import Activity, doing
from ftpatch.io.cleanup import ending_handled
from ftpatch.io.temporary import run_folder

if TYPE_CHECKING:
    from ftpatch.boot.machine import Machine, Progress
    from ftpatch.image import Image

__all__ = ["command"]


def command(
    image: Annotated[Path, typer.Argument(metavar="VMLINUX", help="{kernels} kernel.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- QEMU ARG", help="Additional arguments for QEMU."),
    ] = None,
    filter_: Filter = [],  # noqa: B006 - typer copies it
    notrace: Notrace = [],  # noqa: B006
    regex: Regex = False,
    sink: Annotated[
        str,
        typer.Option(
            "--sink",
            metavar="SINK",
            help="Where events go: memory where there is room for a ring, else {sinks}.",
        ),
    ] = "",
    until: Until = "",
    most: MaxEvents = None,
    time: WithTime = False,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="N", min=1, help="Keep only the last N events."),
    ] = None,
    stop_on: Annotated[
        str,
        typer.Option(
            "--stop-on",
            metavar="warn",
            help="Stop recording at a WARN too, not only at an oops, a BUG or a panic.",
        ),
    ] = "",
    watches: Annotated[
        list[str],
        typer.Option(
            "--watch",
            metavar="SYMBOL:rw-",
            help="Report who reads and writes a variable, instead of calls; as in `ftpatch watch`. "
            "Repeatable.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    probes: Annotated[
        list[str],
        typer.Option(
            "--probe",
            metavar="PROBE",
            help="Record a probe's hits, instead of calls; as in `ftpatch probe`. Repeatable.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    append: Annotated[
        list[str],
        typer.Option(
            "--append",
            metavar="WORDS",
            help="Text to append to the kernel command line. Repeatable.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    limit: Annotated[
        float,
        typer.Option("--limit", metavar="SECONDS", help="Maximum run time.", min=1),
    ] = 600,
    idle: Annotated[
        float,
        typer.Option(
            "--idle",
            metavar="SECONDS",
            min=1,
            help="Maximum time without an event or console output.",
        ),
    ] = 60,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            help="New directory to keep vmlinux.boot, stream and console in.",
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            autocompletion=report_formats,
            help="Report format; see `ftpatch report --help`.",
        ),
    ] = None,
    json: Json = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Report file [default: standard output]."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an existing report file.")
    ] = False,
) -> None:
    """Trace a kernel's boot under QEMU and report its calls.

    The tracer is inserted into a copy. The run ends when the tracer stops (--until, --max), or when
    the kernel exits or hangs, or on Ctrl-C; where an oops, a BUG, a panic or a hang was, and the
    calls that led there, are printed. The exit code is 1 for one of these, else QEMU's, 0 if the
    tracer stopped, 124 if ftpatch ended the run otherwise, and 125 if ftpatch itself failed.

    \b
    Examples:
    ftpatch boot vmlinux --until rest_init
    ftpatch boot vmlinux --watch pid_max:rw-
    ftpatch boot vmlinux --probe 'r:mk do_mkdirat ret=$retval:s32'
    """
    from ftpatch.boot.access_events import ACCESSES
    from ftpatch.boot.events import HITS, STREAM
    from ftpatch.cli import report
    from ftpatch.trace.choose import report_named, require_fit
    from ftpatch.trace.formats import reports

    if watches and probes:
        raise UsageError(None, "--watch and --probe are two reports", "use one of them")
    if words and not words[0].startswith("-") and not os.path.lexists(words[0]):
        reason = f"{words[0]!r} is neither an option of QEMU's nor a file"
        raise UsageError(None, reason, "use -f for a function, --append for a word to the kernel")
    kind = ACCESSES if watches else HITS if probes else STREAM
    form = report_named(kind, format_of(json, format_, reports()))
    if probes and form.returns:
        require_fit(form, kind, returns=any_returns(image, probes))
    with open_output(output, force=force, form=form):
        pass  # there will be one
    from ftpatch.boot.plan import BootTracing
    from ftpatch.ftrace.filter import Selection

    if stop_on not in ("", "warn"):
        raise UsageError(None, f"--stop-on {stop_on}: unknown event", "use --stop-on warn")
    tracing = BootTracing(sink=sink, until=until, most=most, time=time)
    selection = Selection(filter_, notrace, regex)
    asked = BootWords(
        selection=selection,
        tracing=tracing,
        append=append,
        words=words or [],
        limit=limit,
        idle=idle,
        last=last or 0,
        stop_on_warn=bool(stop_on),
        watches=watches,
        probes=probes,
    )
    with _folder(keep) as folder:
        booted = boot_kernel(image, folder, asked, partial(_watch, most or 0))
        ended = booted.ended
        missing = f" and {ended.lost} lost" * bool(ended.lost)
        note_lines([f"{count(ended.events, 'event')}{missing}; {ended.ended}"])
        note_lines(booted.ending.lines)
        if booted.accesses is not None:
            from ftpatch.cli.report_task import report_accesses

            report_accesses(booted.accesses, form, output, force=force)
        elif ended.events:
            kernel = booted.kernel.path
            report.command([booted.stream], format_, json, kernel, output=output, force=force)
    raise typer.Exit(booted.ending.code)


def _folder(keep: Path | None) -> AbstractContextManager[Path]:
    """The folder of the run."""
    if keep is None:
        return run_folder()
    try:
        keep.mkdir()
    except OSError as error:
        raise UsageError(keep, f"cannot create: {error.strerror}", "name a new directory") from None
    return nullcontext(keep)


def _watch(most: int, machine: Machine, kernel: Image, steps: Iterator[Progress]) -> Progress:
    """Show how it goes. ``most`` events stop the tracer (0: none do). On Ctrl-C or SIGTERM end the
    machine and report what it did; on any other signal that ends us, end it too."""

    def end(number: int, frame: FrameType | None, _: object) -> None:
        if number in (signal.SIGINT, signal.SIGTERM):
            machine.ask("interrupted")
            return
        machine.kill()
        interrupted(number, frame)

    with ending_handled(end), doing("booting", most) as now:
        for ended in steps:
            _show(kernel, ended, now)
    return ended


def _show(kernel: Image, progress: Progress, now: Activity) -> None:
    """Show the count and the last function, on a terminal."""
    if PROGRESS.is_on and progress.last:
        from ftpatch.boot.ending import names_at

        (name,) = names_at(kernel, [progress.last[-1]])
        now.done = progress.events
        now.what = clean(f"{progress.events} events, {name}")
