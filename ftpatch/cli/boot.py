"""``ftpatch boot``: boot a kernel under QEMU, and show what it did from its first function on."""

from __future__ import annotations

import signal
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.cli.boot_options import Most, Sink, Time, Until
from ftpatch.cli.console import error_line
from ftpatch.cli.options import Filter, Json, Notrace, Regex
from ftpatch.cli.report_output import Output
from ftpatch.cli.signals import interrupted
from ftpatch.errors import FtpatchError, SiteRefused, UsageError
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.temporary import FOLDERS, claim, sweep

if TYPE_CHECKING:
    from ftpatch.boot.plan import BootTracing
    from ftpatch.ftrace.filter import Selection
    from ftpatch.ftrace.plan import Plan
    from ftpatch.ftrace.sites import Sites
    from ftpatch.image import Image

__all__ = ["NAME", "command"]

NAME = "boot"
FAILED = 125
"""Exit code of a failure of our own."""


def command(
    image: Annotated[Path, typer.Argument(metavar="VMLINUX", help="An x86 or arm64 kernel.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- QEMU ARG...]", help="Further arguments for QEMU."),
    ] = None,
    filter_: Filter = [],  # noqa: B006 - typer copies it
    notrace: Notrace = [],  # noqa: B006
    regex: Regex = False,
    sink: Sink = "",
    until: Until = "",
    most: Most = None,
    time: Time = False,
    append: Annotated[
        list[str],
        typer.Option(
            "--append", metavar="WORDS", help="Add to the kernel's command line. Repeatable."
        ),
    ] = [],  # noqa: B006 - typer copies it
    limit: Annotated[
        float,
        typer.Option("--limit", metavar="SECONDS", help="End the run after this long.", min=1),
    ] = 600,
    idle: Annotated[
        float,
        typer.Option(
            "--idle",
            metavar="SECONDS",
            min=1,
            help="End it after this long without an event or console output.",
        ),
    ] = 60,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="DIR", help="Keep vmlinux.boot, stream and console in a new folder."
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="Format of the report; see ftpatch report."
        ),
    ] = None,
    json: Json = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the report to FILE."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
) -> None:
    """Boot a copy of a kernel with a tracer in it, and report what it did.

    The run ends when the kernel does, when the tracer stops (--until, --max), when the guest hangs,
    or on Ctrl-C, and then shows the last functions called. The exit code is QEMU's, 0 if the tracer
    stopped, 124 if the run was ended otherwise, and 125 if ftpatch itself failed.
    """
    try:
        from ftpatch.cli import report
        from ftpatch.trace.formats import FORMATS

        report.require_format(format_, json)
        chosen = "json" if json else format_ or "function_graph"
        if chosen not in FORMATS:
            reason = f"a boot cannot be reported as {chosen}"
            raise UsageError(None, reason, f"use {', '.join(FORMATS)}")
        with Output(output, force=force, form=FORMATS[chosen]):
            pass  # there will be one
        from ftpatch.boot.plan import BootTracing
        from ftpatch.ftrace.filter import Selection

        tracing, selection = (
            BootTracing(sink, until, most, time),
            Selection(filter_, notrace, regex),
        )
        CLEANUP.failure = FAILED
        with _folder(keep) as name:
            folder = Path(name)
            kernel = _patch(image, folder / "vmlinux.boot", selection, tracing)
            from ftpatch.cli.boot_run import run_boot

            code, events = run_boot(
                kernel,
                folder,
                most or 0,
                append=" ".join(append),
                words=words or [],
                limits=(limit, idle),
            )
            if events:
                report.command(
                    [folder / "stream"], format_, json, kernel.path, output=output, force=force
                )
    except FtpatchError as error:
        error_line(str(error))
        raise typer.Exit(FAILED) from None
    raise typer.Exit(code)


def _folder(keep: Path | None) -> tempfile.TemporaryDirectory[str] | nullcontext[str]:
    """Where all goes; if it is not kept, a signal takes it away as well."""
    if keep is None:
        sweep(Path(tempfile.gettempdir()), FOLDERS)
        place = tempfile.TemporaryDirectory(prefix="ftpatch.")
        claim(Path(place.name))
        CLEANUP.passing = [Path(place.name)]
        signal.signal(signal.SIGPIPE, interrupted)
        return place
    try:
        keep.mkdir()
    except OSError as error:
        raise UsageError(keep, f"cannot make it: {error.strerror}", "name a new one") from None
    return nullcontext(str(keep))


def _patch(path: Path, patched: Path, selection: Selection, tracing: BootTracing) -> Image:
    """Lay the tracer into a copy; that, opened."""
    from ftpatch.arch.boots import boot_tracer_of
    from ftpatch.boot.machine import require_emulator
    from ftpatch.boot.plan import plan_boot
    from ftpatch.ftrace.filter import select_sites
    from ftpatch.image import open_image
    from ftpatch.io.output import Copy
    from ftpatch.update.update import prepare, update

    def plan(sites: Sites) -> Plan:
        tracer = boot_tracer_of(sites.arch.name)
        if tracer is not None:
            require_emulator(tracer.emulator)
        return plan_boot(sites, select_sites(sites, selection), tracing)

    with Copy(path, patched, force=False, allow_setuid=True, in_place=False, sync=False) as copy:
        prepared = prepare(path, plan, strip_signature=False)
        if prepared.refused:
            bug, reason = prepared.refused[0]
            more = f" (and {len(prepared.refused) - 1} more sites)" * (len(prepared.refused) > 1)
            raise SiteRefused(path, f"{bug.place}: {reason}{more}")
        update(copy, prepared)
    CLEANUP.appeared = False  # the copy is not what was asked for
    return open_image(patched)
