"""``ftpatch trace``: run a program, and show what it did."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ftpatch.cli.console import error_line
from ftpatch.cli.options import Args, Depth, Filter, Notrace, Regex, bytes_of
from ftpatch.cli.signals import interrupted
from ftpatch.errors import FtpatchError, InputError, OutputError, SiteRefused, UsageError
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.temporary import FOLDERS, claim, sweep

if TYPE_CHECKING:
    from ftpatch.cli.trace_libraries import Libraries
    from ftpatch.cli.trace_report import Asked

__all__ = ["FAILED", "NAME", "command"]

NAME = "trace"
FAILED = 125
"""Exit code of a failure of our own: all others are the program's."""
IGNORED = (signal.SIGINT, signal.SIGQUIT)
"""From a terminal they go to the program as well, and it decides."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
"""To the program, while it runs."""


def command(
    program: Annotated[
        list[str],
        typer.Argument(metavar="[--] PROG [ARG]...", help="The program and its arguments."),
    ],
    filter_: Filter = [],  # noqa: B006 - typer copies it
    notrace: Notrace = [],  # noqa: B006
    regex: Regex = False,
    lib: Annotated[
        list[str],
        typer.Option(
            "--lib",
            metavar="GLOB",
            help="Shared libraries to trace along with the program, by name (* ? []); -f and -n "
            "apply to their functions, too. Repeatable.",
        ),
    ] = [],  # noqa: B006
    tracer: Annotated[
        str,
        typer.Option(
            "--tracer", metavar="NAME", help="function, function_graph or function_profile."
        ),
    ] = "function_graph",
    args: Args = False,
    depth: Depth = 1024,
    size: Annotated[
        str, typer.Option("--size", metavar="SIZE", help="Size of the trace file.")
    ] = "256M",
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Format of the printed report; see ftpatch report.",
        ),
    ] = None,
    reports: Annotated[
        list[str],
        typer.Option(
            "--report",
            metavar="FORMAT[=FILE]",
            help="Write a report to FILE, and print none unless --format asks. Repeatable.",
        ),
    ] = [],  # noqa: B006
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Keep the recording for ftpatch report."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the files of --report.")
    ] = False,
) -> None:
    """Run a copy of a program with a tracer in it, and report what it did.

    The exit code is the program's own, 128 + N if signal N killed it, and 125 if ftpatch itself
    failed.
    """
    CLEANUP.failure = FAILED
    try:
        from ftpatch.cli.trace_report import Asked

        asked = Asked(format_, reports, output, force)
        code = _run(program, (filter_, notrace, regex), (tracer, depth, size, args), lib, asked)
    except FtpatchError as error:
        error_line(str(error))
        raise typer.Exit(FAILED) from None
    raise typer.Exit(code)


def _run(
    words: Sequence[str],
    choice: tuple[list[str], list[str], bool],
    tracing: tuple[str, int, str, bool],
    globs: Sequence[str],
    asked: Asked,
) -> int:
    """Patch, run, report; the program's exit code."""
    from ftpatch.cli.trace_report import Reports
    from ftpatch.inject.runtime import RECORDING
    from ftpatch.tracer.recordings import TraceFiles

    path = _found(words[0])
    with contextlib.suppress(OSError):
        if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
            raise UsageError(path, "it is setuid or setgid, which a traced copy is not")
    reports = Reports(tracing[0], asked, path)
    try:
        sweep(Path(tempfile.gettempdir()), FOLDERS)
    except FileNotFoundError as error:  # it tried to write into each
        raise OutputError(None, str(error.strerror)) from None
    with tempfile.TemporaryDirectory(prefix="ftpatch.") as folder, _place(path, folder) as patched:
        claim(Path(folder))
        CLEANUP.passing = [Path(folder), patched]
        signal.signal(signal.SIGPIPE, interrupted)
        libraries = _libraries(path, globs, tracing[0], Path(folder))
        _patch(path, patched, choice, tracing, libraries)
        claim(patched)
        CLEANUP.appeared = False  # the copy is not what was asked for
        trace = (asked.recording or Path(folder, "trace")).absolute()
        environment = libraries.environment if libraries else os.environ
        with TraceFiles(trace, patched, path.absolute()) as made:
            code = _execute(patched, words, {**environment, **made.environment})
            files = _alike(made.finish(), tracing[0], asked.recording)
        if made.unkept:
            raise OutputError(trace, f"the recording is lost: {made.unkept}")
        if not files:
            if tracing[0] in RECORDING:
                error_line(f"{path}: it left no trace: it may run with privileges, or had no disk")
            return code
        if libraries:
            libraries.tell_missing(patched, files)
        reports.write(files)
    return code


def _alike(files: Sequence[Path], tracer: str, recording: Path | None) -> list[Path]:
    """Those that can be reported together: other patched programs that the program starts may have
    another tracer, and probes."""
    from ftpatch.inject.runtime import tracer_named
    from ftpatch.trace.header import open_trace

    alike = []
    for file in files:
        fd, header = open_trace(file)
        os.close(fd)
        if header.tracer == tracer_named(tracer).number:
            alike.append(file)
        elif not recording:  # else it is named as one that is not in the report
            file.unlink()
            error_line(f"{header.image}: another tracer recorded it; to keep that use -o FILE")
    return alike


def _found(word: str) -> Path:
    """The program that a shell would run."""
    found = word if "/" in word else shutil.which(word)
    if found is None:
        raise UsageError(None, f"there is no program {word!r}", "name it with its folder")
    return Path(found)


@contextlib.contextmanager
def _place(path: Path, folder: str) -> Iterator[Path]:
    """Where the copy goes, and goes away: beside the program, whose $ORIGIN that is; where nothing
    can be written there, into a folder of its own."""
    real = Path(os.path.realpath(path))
    beside = real.with_name(f".{real.name}.ftpatch.{os.getpid()}")
    place = beside if os.access(real.parent, os.W_OK) else Path(folder, real.name)
    sweep(real.parent, re.compile(re.escape(f".{real.name}.ftpatch.") + r"[0-9]+"))
    try:
        yield place
    finally:
        place.unlink(missing_ok=True)


def _patch(
    path: Path,
    patched: Path,
    choice: tuple[list[str], list[str], bool],
    tracing: tuple[str, int, str, bool],
    libraries: Libraries | None,
) -> None:
    """Lay the tracer into a copy."""
    from ftpatch.cli.outcome import tell_cleared
    from ftpatch.ftrace.filter import Selection, select_sites
    from ftpatch.io.output import Copy
    from ftpatch.tracer.plan import Tracing, plan_traced
    from ftpatch.update.update import prepare, update

    tracer, depth, size, args = tracing
    wanted = Tracing(tracer, depth, bytes_of(size), args)
    selection = Selection(*choice)
    with Copy(path, patched, force=False, allow_setuid=False, in_place=False) as copy:
        if libraries is None:
            prepared = prepare(
                path,
                lambda sites: plan_traced(sites, select_sites(sites, selection, None), wanted),
                strip_signature=False,
            )
            if prepared.refused:
                raise SiteRefused(path, prepared.refused[0][1])
            tell_cleared(path, prepared.image, prepared.plan.changes)
            update(copy, prepared)
        else:
            libraries.patch(copy, patched, selection, wanted)
    if not os.access(patched, os.X_OK):
        raise InputError(path, "it cannot be executed")


def _libraries(path: Path, globs: Sequence[str], tracer: str, folder: Path) -> Libraries | None:
    """Those that are to be traced too."""
    if not globs:
        return None
    from ftpatch.cli.trace_libraries import Libraries
    from ftpatch.tracer.choice import require_tracer

    require_tracer(tracer)
    return Libraries(path, globs, folder)


def _execute(patched: Path, words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the copy under the program's own name."""
    before = None
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # so there would be no exit status
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        before = partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN)
    try:
        child = subprocess.Popen(  # with all that a shell would have left to the program
            list(words), executable=patched, env=environment, close_fds=False, preexec_fn=before
        )
    except OSError as error:
        raise InputError(words[0], f"cannot run: {error.strerror}") from None
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in IGNORED}
    for number in PASSED_ON:
        handlers[number] = signal.getsignal(number)
        if handlers[number] is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: child.send_signal(number))
    code = child.wait()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return code if code >= 0 else 128 - code
