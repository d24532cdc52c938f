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
from ftpatch.errors import FtpatchError, InputError, SiteRefused, UsageError
from ftpatch.unfinished import UNFINISHED

if TYPE_CHECKING:
    from ftpatch.cli.trace_libraries import Libraries

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
        list[str], typer.Argument(metavar="[--] PROG [ARG]...", help="The program and its words.")
    ],
    filter_: Filter = [],  # noqa: B006 - typer copies it
    notrace: Notrace = [],  # noqa: B006
    regex: Regex = False,
    lib: Annotated[
        list[str],
        typer.Option(
            "--lib",
            metavar="GLOB",
            help="Shared libraries of the program to trace with it, by name (* ? []); -f and -n "
            "choose among their functions and the program's. Repeatable.",
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
        str, typer.Option("--size", metavar="SIZE", help="Of the trace file. Default: 256M.")
    ] = "256M",
    format_: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="As of ftpatch report.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Keep the trace, for ftpatch report."),
    ] = None,
) -> None:
    """Run a program with a tracer laid into a copy of it, and report what it did.

    The program's own exit code is that of this command; 125 is a failure of ftpatch itself, and
    128 + n a program that signal n ended.
    """
    try:
        code = _run(
            program, (filter_, notrace, regex), (tracer, depth, size, args), lib, format_, output
        )
    except FtpatchError as error:
        error_line(str(error))
        raise typer.Exit(FAILED) from None
    raise typer.Exit(code)


def _run(
    words: Sequence[str],
    choice: tuple[list[str], list[str], bool],
    tracing: tuple[str, int, str, bool],
    globs: Sequence[str],
    format_: str | None,
    output: Path | None,
) -> int:
    """Patch, run, report; the program's exit code."""
    from ftpatch.cli import report
    from ftpatch.inject.tracers import RECORDING

    path = _found(words[0])
    with contextlib.suppress(OSError):
        if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
            raise UsageError(path, "it is setuid or setgid, which a traced copy is not")
    if output is not None and os.path.lexists(output):
        raise UsageError(output, "the output exists", "name another file")
    with tempfile.TemporaryDirectory(prefix="ftpatch.") as folder, _place(path, folder) as patched:
        UNFINISHED.passing = [Path(folder), patched]
        signal.signal(signal.SIGPIPE, interrupted)
        libraries = _libraries(path, globs, tracing[0], Path(folder))
        _patch(path, patched, choice, tracing, libraries)
        trace = (output or Path(folder, "trace")).absolute()
        environment = libraries.environment if libraries else os.environ
        others = set(_traces(trace))
        code = _execute(patched, words, {**environment, "FTPATCH_TRACE": str(trace)})
        files = [file for file in _traces(trace) if file not in others]
        if not files:
            if tracing[0] in RECORDING:
                error_line(f"{path}: it left no trace: it may run with privileges, or had no disk")
            return code
        for file in files:
            _settle(file, path.absolute())
        if libraries:
            libraries.tell_missing(patched, files)
        report.command(files, format_=format_)
    return code


def _traces(trace: Path) -> list[Path]:
    """The traces of a program and its children, by their names."""
    name = re.compile(re.escape(trace.name) + r"(\.\d+)*")
    with os.scandir(trace.parent) as entries:
        found = [Path(e.path) for e in entries if name.fullmatch(e.name) and e.is_file()]
    return sorted(found)


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
    from ftpatch.copy import Copy
    from ftpatch.plan.traced import Tracing, plan_traced
    from ftpatch.select import Selection, select_sites
    from ftpatch.update import prepare, update

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
            update(copy, prepared)
        else:
            libraries.patch(copy, patched, selection, wanted)
    if not os.access(patched, os.X_OK):
        raise InputError(path, "it cannot be executed")


def _libraries(path: Path, globs: Sequence[str], tracer: str, folder: Path) -> Libraries | None:
    """Those that are to be traced too."""
    if not globs:
        return None
    from ftpatch.cli.trace_choice import require_tracer
    from ftpatch.cli.trace_libraries import Libraries

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


def _settle(file: Path, image: Path) -> None:
    """What can be done when nothing is written to a trace any more."""
    from ftpatch.trace.extent import read_extent, settle

    with contextlib.suppress(OSError):
        pid, used = read_extent(file)
        if pid and not _runs(pid):
            settle(file, used, image)


def _runs(pid: int) -> bool:
    """Whether a process is there, and not only waited for."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[:1] != ["Z"]
