# SPDX-License-Identifier: MIT
"""One run of a program under a tracer: patch a copy, run it, collect its recordings."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ftpatch.errors import InputError, NoTable, OutputError, SiteRefused, UsageError
from ftpatch.ftrace.filter import Selection, select_sites
from ftpatch.ftrace.plan import Plan
from ftpatch.ftrace.sites import Sites
from ftpatch.image import open_image
from ftpatch.inject.runtime import tracer_named
from ftpatch.io.activity import ACTIVITIES
from ftpatch.io.cleanup import CLEANUP
from ftpatch.io.output import Copy
from ftpatch.io.temporary import claim, run_folder, sweep
from ftpatch.names.suggest import meant, near
from ftpatch.trace.header import open_trace
from ftpatch.tracer.choice import Choice, require_tracer
from ftpatch.tracer.executed import Executed
from ftpatch.tracer.following import Following, NotFollowed
from ftpatch.tracer.foreseen import Foreseen
from ftpatch.tracer.later import LATER_SITES, UNHOOKED, Later
from ftpatch.tracer.libraries import Libraries
from ftpatch.tracer.plan import Tracing, plan_traced
from ftpatch.tracer.program import (
    Cleared,
    prepare_program,
    require_no_library,
    suggests_calls,
    tell_cleared,
    with_calls,
)
from ftpatch.tracer.recordings import TraceFiles
from ftpatch.update.update import prepare, update

__all__ = ["Request", "Run", "execute", "find_program", "run_traced"]

Ready = Callable[[Foreseen], None]
"""Called before the run with the functions that will be traced."""
IGNORED = (signal.SIGINT, signal.SIGQUIT)
"""Sent by a terminal to the program as well, which decides."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
"""Forwarded to the program while it runs."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A command line to run, its tracer, and the functions to trace, in the program and in the
    shared libraries that match ``libraries``, and whether to trace ``calls`` to libraries; the file
    to keep the recording in, None for none, and whether to ``overwrite`` one that is there;
    ``follow``: the programs that it starts are traced as well."""

    words: Sequence[str]
    tracing: Tracing
    selection: Selection
    libraries: Sequence[str] = ()
    calls: bool = False
    recording: Path | None = None
    overwrite: bool = False
    follow: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """A program that has ended: its exit ``status`` and its trace ``files``; ``foreign``: images of
    programs recorded by another tracer, whose files are gone; ``untraced``: libraries without a
    call in any file, and programs that were not followed, and why; ``lost``: the error by which a
    recording was lost, if any; ``unmatched``: what options matched nothing."""

    status: int
    files: Sequence[Path] = ()
    foreign: Sequence[str] = ()
    untraced: Sequence[tuple[Path, str]] = ()
    lost: OutputError | None = None
    unmatched: Sequence[str] = ()


def _near(word: str) -> list[str]:
    """Names of programs in the search path that are like a word."""
    names = set[str]()
    for folder in os.get_exec_path():
        with contextlib.suppress(OSError):
            names.update(one.name for one in Path(folder).iterdir())
    return near(word, sorted(names))


def find_program(word: str) -> Path:
    """Find the program that a shell would run. Raises UsageError if there is none, or if it is
    setuid or setgid."""
    found = word if "/" in word else shutil.which(word)
    if found is None:
        if Path(word).is_file():
            raise UsageError(None, f"{word!r} is not in $PATH", f"use ./{word}")
        raise UsageError(None, f"no such program {word!r}", meant(_near(word), "use its path"))
    path = Path(found)
    with contextlib.suppress(OSError):
        if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
            raise UsageError(path, "setuid or setgid, which a traced copy would not be")
    return path


@contextlib.contextmanager
def run_traced(path: Path, request: Request, on_cleared: Cleared, on_ready: Ready) -> Iterator[Run]:
    """Run a copy of the program at ``path``. Files not to be kept are removed at the end.

    Raises what planning and ``on_ready`` raise, InputError for a program that cannot be run,
    OutputError where nothing can be written.
    """
    with (
        run_folder() as folder,
        _place(path, folder) as patched,
        contextlib.ExitStack() as stack,
    ):
        libraries = _libraries(path, request, folder, on_cleared)
        executed = Executed(tracing=request.tracing, selection=request.selection)
        in_memory = bool(request.libraries) and request.follow
        if in_memory or (libraries is not None and (libraries.may_open or libraries.constructs)):
            later = Later(request.libraries, request.selection, request.tracing, folder)
            executed.later = stack.enter_context(contextlib.closing(later))
        try:
            on_ready(_patch(path, patched, request, libraries, on_cleared, executed))
            claim(patched)
        except NoTable:
            if not request.follow:
                raise
            patched = path.absolute()  # a bare name would be searched for
            on_ready(Foreseen(more=True))
        CLEANUP.appeared = False  # the copy is not what was asked for
        yield _recorded(path, patched, request, libraries, folder, executed)


def _libraries(path: Path, request: Request, folder: Path, on_cleared: Cleared) -> Libraries | None:
    """The libraries to trace along with the program, by copies. None where there are none, and
    where those of all programs are patched in memory."""
    if not request.libraries:
        return None
    require_tracer(request.tracing.tracer, "--lib")
    if request.follow:
        return None
    return Libraries(path, request.libraries, folder, on_cleared)


@contextlib.contextmanager
def _place(path: Path, folder: Path) -> Iterator[Path]:
    """A temporary path for the copy: beside the program, so that $ORIGIN stays the same, or in a
    folder of its own if that one is not writable."""
    real = Path(os.path.realpath(path))
    beside = real.with_name(f".{real.name}.ftpatch.{os.getpid()}")
    place = beside if os.access(real.parent, os.W_OK) else folder / real.name
    sweep(real.parent, re.compile(re.escape(f".{real.name}.ftpatch.") + r"[0-9]+"))
    CLEANUP.passing.append(place)
    try:
        yield place
    finally:
        place.unlink(missing_ok=True)
        CLEANUP.passing.remove(place)


def _patch(
    path: Path,
    patched: Path,
    request: Request,
    libraries: Libraries | None,
    on_cleared: Cleared,
    executed: Executed,
) -> Foreseen:
    """Insert the tracer into a copy; return what it will trace. Raises NoTable where nothing of it
    is, also by its filters if others are followed."""
    selection, tracing = request.selection, request.tracing
    chosen = Foreseen(more=request.follow)
    if executed.later is not None:
        tracing = replace(tracing, more=LATER_SITES)
    missing: set[str] | None = set() if request.follow else None

    def plan(sites: Sites) -> Plan:
        require_no_library(sites.image)
        mask = select_sites(sites, selection, missing)
        if missing is not None and not mask.any():
            raise NoTable(path, "the filters select no site")
        chosen.add(sites.image, sites.ip[mask])
        return plan_traced(sites, mask, tracing)

    with Copy(path, patched, force=False, allow_setuid=False, in_place=False) as copy:
        if libraries is not None or request.calls:
            image, choice = open_image(path), Choice(selection)
            chosen = choice.chosen
            chosen.more = request.follow
            if libraries is not None and libraries.may_open:
                chosen.more = True
            if request.calls:
                tracing = with_calls(image, choice, tracing)
            if libraries is not None:
                tracing = libraries.patch(choice, tracing, patched)
                if executed.later is not None:
                    executed.later.copies = libraries.copies
            prepared = prepare_program(image, choice, tracing)
            missing = choice.missing
        else:
            try:
                prepared = prepare(path, plan, strip_signature=False)
            except NoTable as error:
                raise suggests_calls(error, open_image(path), tracing) from None
        if prepared.refused:
            raise SiteRefused(path, prepared.refused[0][1])
        tell_cleared(prepared.image, prepared.plan.changes, on_cleared)
        update(copy, prepared)
    if not os.access(patched, os.X_OK):
        raise InputError(path, "cannot be executed")
    executed.missing = missing
    return chosen


def _recorded(
    path: Path,
    patched: Path,
    request: Request,
    libraries: Libraries | None,
    folder: Path,
    executed: Executed,
) -> Run:
    """Run the copy and collect its recordings."""
    trace = (request.recording or folder / "trace").absolute()
    environment = libraries.environment if libraries else os.environ
    image = path.absolute() if patched != path.absolute() else None
    rotates = request.tracing.keeping.rotate > 0
    with TraceFiles(trace, patched, image, overwrite=request.overwrite, named=rotates) as made:
        executed.environment = made.environment
        if executed.later is not None:
            executed.later.environment = made.environment
        everything = {**environment, **made.environment}
        followings = list[Following]()
        if request.follow or executed.later is not None:
            followings.append(Following(executed.start, once=not request.follow))
        with ACTIVITIES.away():
            try:
                status = execute(patched, request.words, everything, *followings)
            except NotFollowed as unhooked:
                if request.follow or executed.later is None:
                    raise
                executed.later.untraced[UNHOOKED] = f"{unhooked.reason}; {unhooked.hint}"
                status = execute(patched, request.words, everything)
        files, foreign = _of_tracer(made.finish(), request)
    if made.unkept:
        error = OutputError(trace, f"the recording is lost: {made.unkept}")
        return Run(status=status, foreign=foreign, lost=error)
    untraced = libraries.untraced(patched, files) if libraries and files else []
    left = executed.later.untraced if executed.later else {}
    return Run(
        status=status,
        files=files,
        foreign=foreign,
        untraced=[*untraced, *executed.untraced.items(), *left.items()],
        unmatched=_unmatched(executed, libraries, request),
    )


def _unmatched(executed: Executed, libraries: Libraries | None, request: Request) -> list[str]:
    """The filters and globs that have matched nothing until the end."""
    later, globs = executed.later, list[str]()
    known = [executed.missing] if executed.missing is not None else []
    if later is not None:
        known += [later.missing] if later.missing is not None else []
        globs = list(libraries.unmatched if libraries is not None else request.libraries)
        globs = [glob for glob in globs if glob not in later.matched]
    missing = sorted(set.intersection(*known)) if known else []
    library, function = "library that the program has loaded", "function of what was loaded"
    if request.follow:
        library, function = "library of any program", "function of any program"
    return [
        *(f"--lib {glob!r} matches no {library}" for glob in globs),
        *(f"filter {text!r} matches no {function}" for text in missing),
    ]


def _of_tracer(files: Sequence[Path], request: Request) -> tuple[list[Path], list[str]]:
    """The files that can be reported together, and the images of the others, which are removed:
    patched programs started by the program may have another tracer, or probes."""
    number = tracer_named(request.tracing.tracer).number
    alike, foreign = [], []
    for file in files:
        try:
            fd, header = open_trace(file)
        except InputError:  # changed in the meantime
            continue
        os.close(fd)
        if header.tracer == number:
            alike.append(file)
        elif not request.recording:  # else it is named as one that is not in the report
            file.unlink()
            foreign.append(header.image)
    return alike, foreign


def execute(
    patched: Path,
    words: Sequence[str],
    environment: Mapping[str, str],
    following: Following | None = None,
) -> int:
    """Run the copy under the program's own name; return 128 + N if signal N killed it. Raises
    InputError for what cannot be run, or not be followed."""
    ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    if ignored:  # or there would be no exit status
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def before() -> None:
        if ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if following is not None:
            following.before()

    try:
        child = subprocess.Popen(  # everything that a shell would pass on
            list(words),
            executable=patched,
            env=environment,
            close_fds=False,
            preexec_fn=before if ignored or following else None,
        )
    except OSError as error:
        foreign = "`ftpatch enable --tracer` makes a copy to run on the machine that it is for"
        hint = foreign if error.errno == errno.ENOEXEC else ""
        raise InputError(words[0], f"cannot run: {error.strerror}", hint) from None
    send = child.send_signal if following is None else following.send
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in IGNORED}
    for number in PASSED_ON:
        handlers[number] = signal.getsignal(number)
        if handlers[number] is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: send(number))
    code = child.wait() if following is None else following.wait()
    child.returncode = code
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return code if code >= 0 else 128 - code
