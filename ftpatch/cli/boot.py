"""``ftpatch boot``: boot a kernel under QEMU, and show what it did from its first function on."""

from __future__ import annotations

import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.cli.boot_options import Most, Sink, Time, Until
from ftpatch.cli.console import count, lines
from ftpatch.cli.options import Filter, Notrace, Regex
from ftpatch.errors import SiteRefused, UsageError

if TYPE_CHECKING:
    from ftpatch.boot import Source
    from ftpatch.boot.machine import Progress
    from ftpatch.image import Image
    from ftpatch.plan.boot import BootTracing
    from ftpatch.select import Selection

__all__ = ["NAME", "command"]

NAME = "boot"
SHOWN = 10
"""Functions that are told of where a boot ended by itself."""


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
        str, typer.Option("--append", metavar="WORDS", help="For the kernel's command line.")
    ] = "",
    limit: Annotated[
        float, typer.Option("--limit", metavar="SECONDS", help="How long it may run.")
    ] = 600,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Keep vmlinux.boot, the stream, the console."),
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="As of ftpatch report.")
    ] = None,
) -> None:
    """Boot a copy of a kernel with a tracer inside, and report what it did.

    It ends when the kernel does, with --until and --max when the tracer stops, or after --limit
    seconds; then the functions that were called last are told.
    """
    from ftpatch.cli import report
    from ftpatch.plan.boot import BootTracing
    from ftpatch.select import Selection

    if keep is not None:
        try:
            keep.mkdir()
        except OSError as error:
            raise UsageError(keep, f"cannot make it: {error.strerror}", "name a new one") from None
    tracing = BootTracing(sink, until, most, time)
    place = tempfile.TemporaryDirectory(prefix="ftpatch.") if keep is None else nullcontext(keep)
    with place as folder:
        patched, stream = Path(folder, "vmlinux.boot"), Path(folder, "stream")
        kernel = _patch(image, patched, Selection(filter_, notrace, regex), tracing)
        _run(kernel, stream, tracing, (append, words or [], limit))
        report.command([stream], image=patched, format_=format_)


def _patch(path: Path, patched: Path, selection: Selection, tracing: BootTracing) -> Image:
    """Lay the tracer into a copy; that, opened."""
    from ftpatch.copy import Copy
    from ftpatch.image import open_image
    from ftpatch.plan.boot import plan_boot
    from ftpatch.select import select_sites
    from ftpatch.update import prepare, update

    with Copy(path, patched, force=False, allow_setuid=False, in_place=False) as copy:
        prepared = prepare(
            path,
            lambda sites: plan_boot(sites, select_sites(sites, selection), tracing),
            strip_signature=False,
        )
        if prepared.refused:
            raise SiteRefused(path, prepared.refused[0][1])
        update(copy, prepared)
    return open_image(patched)


def _run(
    kernel: Image, stream: Path, tracing: BootTracing, machine: tuple[str, list[str], float]
) -> None:
    """Boot, and say how it goes."""
    from ftpatch.boot import find_source
    from ftpatch.boot.machine import flat, require_emulator, run_machine

    append, words, limit = machine
    source = find_source(kernel)
    emulator = source.tracer.emulator
    program = require_emulator(emulator)
    file, console = kernel.path, stream.with_name("console")
    if emulator.flat:
        file = stream.with_name("Image")
        file.write_bytes(flat(kernel))
    sends = emulator.sink(source.tracer.sinks[source.mark.sink], str(stream), str(console))
    said = f"{emulator.append} {append}".strip()
    started = [program, *emulator.words, *sends, "-kernel", str(file), "-append", said, *words]
    until = _site(kernel, source, tracing.until)
    ended: Progress | None = None
    for ended in run_machine(started, stream, source, (until, tracing.most or 0), limit):
        _show(kernel, ended)
    if ended is None:
        return
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    how = f"QEMU ended with {ended.status}"
    if ended.status is None:
        how = "the tracer stopped" if ended.stopped else f"ended after {limit:g} seconds"
    lines([f"ftpatch: {count(ended.events, 'event')}; {how}"], error=True)
    if not ended.stopped:
        names = [place[0] for place in _names(kernel, list(ended.last)[-SHOWN:])]
        shown = ", ".join(names) or "none was called"
        lines([f"ftpatch: the last functions: {shown}"], error=True)
        if console.exists():
            said = console.read_text(errors="replace").rstrip().rpartition("\n")[2]
            lines([f"ftpatch: the console's last line: {said.strip()}"], error=True)


def _site(kernel: Image, source: Source, name: str) -> int:
    """The site of the function that stops the tracer, 0 for none."""
    if not name:
        return 0
    places = _names(kernel, source.ip.tolist())
    return next(
        int(at) for at, place in zip(source.ip.tolist(), places, strict=True) if place[0] == name
    )


def _names(kernel: Image, at: list[int]) -> list[tuple[str, int, int]]:
    from ftpatch.columns import addresses

    return kernel.kallsyms.lookup(addresses(*at)) if at else []


def _show(kernel: Image, progress: Progress) -> None:
    """The count and the last function, on a terminal."""
    if sys.stderr.isatty() and progress.last:
        ((name, _, _),) = _names(kernel, [progress.last[-1]])
        sys.stderr.write(f"\r\x1b[K{progress.events} events, {name}")
        sys.stderr.flush()
