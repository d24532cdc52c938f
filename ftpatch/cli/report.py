"""``ftpatch report``: a report of recorded events."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.cli.console import clean, error_line, lines, watched
from ftpatch.cli.options import Json
from ftpatch.cli.report_output import open_output
from ftpatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftpatch.trace import EventSource, Recording
    from ftpatch.trace.rows import Rows
    from ftpatch.trace.window import Window

__all__ = ["command", "require_format"]

OTHERS = 64
"""Approximate number of open descriptors that are not traces."""
SHOWN = 3
"""Maximum number of newer traces to name."""

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE", readable=False, help="Trace files of a program and its children."
    ),
]
ReportFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Report format: function_graph, function, profile, probes, ksym, folded, "
        "flamegraph, chrome, perfetto, pprof, uftrace, trace-dat or json "
        "[default: the tracer's own].",
    ),
]
Of = Annotated[
    Path | None,
    typer.Option("--image", metavar="IMAGE", help="Path of the patched program, if it has moved."),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="FROM-TO",
        help="Time range in seconds since the start; either end is optional.",
    ),
]
Tid = Annotated[
    list[int], typer.Option("--tid", metavar="TID", help="Threads to show. Repeatable.")
]
Depth = Annotated[
    int | None, typer.Option("--depth", metavar="N", min=1, help="Maximum call depth to show.")
]
Functions = Annotated[
    list[str],
    typer.Option(
        "-f",
        "--filter",
        metavar="GLOB",
        help="Functions to show: * ? [] match, !GLOB removes. Repeatable.",
    ),
]
NoDemangle = Annotated[
    bool, typer.Option("--no-demangle", help="Print C++, Rust and D names as in the symbol table.")
]
WithSource = Annotated[
    bool,
    typer.Option("--source", help="Print file and line of each function, from debug information."),
]
To = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Output file, or folder of a uftrace report [default: standard output].",
    ),
]
Anyway = Annotated[
    bool,
    typer.Option(
        "--force", help="Overwrite an existing output file; accept a trace of another image."
    ),
]


def command(
    files: Files,
    format_: ReportFormat = None,
    json: Json = False,
    image: Of = None,
    time: Time = None,
    tid: Tid = [],  # noqa: B006 - typer copies it
    depth: Depth = None,
    filter_: Functions = [],  # noqa: B006
    no_demangle: NoDemangle = False,
    source: WithSource = False,
    output: To = None,
    force: Anyway = False,
) -> None:
    """Report recorded events in ftrace's formats or for other tools.

    Example: ftpatch report shop.trace --format profile
    """
    require_format(format_, json)
    if output is not None and any(_same(output, file) for file in files):
        raise UsageError(output, "the output is one of the input traces", "name another file")
    from ftpatch.cli.report_programs import Programs
    from ftpatch.trace import Style
    from ftpatch.trace.choose import report_for
    from ftpatch.trace.window import ALWAYS, Window, parse_span

    span = ALWAYS if time is None else parse_span(time)
    window = Window(span=span, tids=frozenset(tid), depth=depth, globs=tuple(filter_))
    events = _open(files, image, window, force)
    try:
        form = report_for(events, "json" if json else format_)
        with open_output(output, force=force, form=form) as out:
            events.recording.name_by(Programs(image, force, no_demangle, source).of)
            missing = _notes(events.recording)
            style = Style(clean, missing)
            if form.sums or not out.is_terminal:  # a bar would stand among the lines
                style.progress = _progress
            for part in form.render(events, style):
                out.write(part)
            if window.globs:
                window.require_match(events.recording.functions)
            out.appear()
        if not form.text:
            lines((f"ftpatch: {note}" for note in missing), error=True)
        lines((f"ftpatch: {note}" for note in events.notes()), error=True)
    finally:
        events.close()
        _tell_newer(files)


def require_format(format_: str | None, json: bool) -> None:
    """Raise UsageError for a format that there is not, and for two."""
    from ftpatch.trace.choose import require_known

    if format_ is not None:
        require_known(format_)
    if json and format_ not in (None, "json"):
        raise UsageError(None, f"--json and --format {format_} conflict", "choose one")


def _open(files: list[Path], image: Path | None, window: Window, force: bool) -> EventSource:
    """Traces of programs, or the stream of a boot tracer, which does not say whose it is."""
    from ftpatch.cli.report_sources import source_kinds
    from ftpatch.trace.events import open_source

    _allow_descriptors(len(files))
    if image is None or len(files) != 1 or not files[0].is_file():
        return open_source(files, window, source_kinds())
    from ftpatch.boot import BootTrace, is_stream
    from ftpatch.image import open_image

    if not is_stream(files[0]):
        return open_source(files, window, source_kinds())
    return BootTrace(files[0], open_image(image), window, force=force)


def _allow_descriptors(files: int) -> None:
    """For a program with many children, where the limit that we began with can be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < files + OTHERS:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _same(output: Path, file: Path) -> bool:
    try:
        return output.samefile(file)
    except OSError:
        return False


def _tell_newer(files: list[Path]) -> None:
    """Of a name that exists the runtime makes NAME.PID, and so do children."""
    from ftpatch.trace.newer import newer

    found = newer(files)
    if found:
        names = ", ".join(str(one) for one in found[:SHOWN])
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        error_line(f"newer files, not part of this report: {names}{more}")


def _progress(rows: Iterator[Rows], steps: int) -> Iterator[Rows]:
    return watched(rows, steps, "batches")


def _notes(recording: Recording) -> list[str]:
    """What is missing; of which file, if there are several."""
    several = len(recording.headers) > 1
    return [
        (f"{clean(str(header.path))}: " if several else "") + note
        for header in recording.headers
        for note in header.notes
    ]
