# SPDX-License-Identifier: MIT
"""A running process with a runtime in it, until it is to be taken out."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ftpatch.api.attaching import attached_files
from ftpatch.cli.console import count, error_line
from ftpatch.cli.process_update import tell_left
from ftpatch.cli.signals import asked_to_end
from ftpatch.errors import InputError, UsageError
from ftpatch.io.activity import doing
from ftpatch.io.temporary import run_folder
from ftpatch.process.attached import Live, detach
from ftpatch.process.process import Process, ending
from ftpatch.process.process_journal import forget, holding, recall
from ftpatch.process.take_out import TakenOut
from ftpatch.tracer.recordings import TraceFiles

__all__ = ["Attending", "attended", "looks", "require_time"]

LOOK = 0.1
"""Seconds between two looks at the process."""


@dataclass(frozen=True, kw_only=True)
class Attending:
    """A ``process`` that runs ``image``, and the words for what is done to it: ``doing`` (tracing)
    and ``done`` (site, traced); the ``recording`` to keep, if any, which may ``overwrite``; the
    ``seconds`` until it is taken out, None to wait for a signal."""

    process: Process
    image: Path
    doing: str
    done: tuple[str, str]
    recording: Path | None
    overwrite: bool
    seconds: float | None


def require_time(seconds: float | None) -> None:
    """Raise UsageError for what is not a time."""
    if seconds is not None and not seconds > 0:  # nan
        raise UsageError(None, f"--seconds {seconds:g}: not a time", "use more than 0")


def attended(
    one: Attending,
    attach: Callable[[dict[str, str], str, Callable[[], bool]], Live],
    report: Callable[[Sequence[Path]], None],
) -> bool:
    """Attach, wait until the time is over, the process ends or a signal asks for it, take out, and
    report; return whether a signal did. ``attach`` takes an environment, the trace's name, and
    whether to end before it begins. Raises what attaching raises, and InputError where something
    could not be taken out."""
    process = one.process
    with run_folder() as folder:
        trace = (one.recording or folder / "trace").absolute()
        with (
            attached_files(process, trace, one.image, overwrite=one.overwrite) as made,
            asked_to_end() as asked,
        ):
            live = attach(made.environment, str(trace), asked.is_set)
            _watch(one, made, asked)
            ended = _taken_out(process, live)
            files = made.finish()
        _tell(one, live, ended)
        if made.unkept:
            raise InputError(trace, f"the recording is lost: {made.unkept}")
        if files:
            report(files)
        return asked.is_set()


def looks(
    process: Process, asked: threading.Event, seconds: float | None, pause: float
) -> Generator[None, None, None]:
    """Yield after each ``pause`` (seconds), until the time is over, the process ends or a signal
    asks for it."""
    begun = time.monotonic()
    gone = contextlib.suppress(ProcessLookupError)  # it has ended, and been waited for
    with gone, ending(process.pid) as has_ended:
        while not asked.is_set():
            spent = time.monotonic() - begun
            if seconds is not None and spent >= seconds:
                return
            rest = pause if seconds is None else min(pause, seconds - spent)
            if has_ended(rest):
                return
            yield


def _watch(one: Attending, made: TraceFiles, asked: threading.Event) -> None:
    """Wait for the end, and show how much has been recorded."""
    what = f"{one.doing} {one.process}"
    with doing(what) as now:
        for _ in looks(one.process, asked, one.seconds, LOOK):
            now.what = f"{what}, {made.recorded / 1e6:.1f} MB; Ctrl-C ends"


def _taken_out(process: Process, live: Live) -> Sequence[tuple[Process, TakenOut]]:
    """Take the runtime out; nothing where the process has ended."""
    try:
        return detach(process)
    except (InputError, UsageError):
        if process.is_alive:
            if recall(process) is None:  # somebody else did that
                return ()
            raise
    out = list[tuple[Process, TakenOut]]()
    for child in holding(live.entry):
        with contextlib.suppress(InputError):
            out += detach(child)
    forget(process)
    return out


def _tell(one: Attending, live: Live, ended: Sequence[tuple[Process, TakenOut]]) -> None:
    """Say what was done, and what could not be taken out."""
    pauses = [live.pause.pause, *(each.pause for _, out in ended for each in out.pauses)]
    longest = max(pauses) / 1e6
    number, what = count(live.sites, one.done[0]), one.done[1]
    error_line(f"{one.process}: {number} {what}, longest pause {longest:.1f} ms")
    for process, out in ended:
        tell_left(process, out)
