# SPDX-License-Identifier: MIT
"""``ftpatch probe --pid`` and ``-c``: probe a process for a while, or until it is undone."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.api.attaching import (
    Bring,
    kept,
    probe_in,
    probe_targets,
    require_free,
    require_place_for,
)
from ftpatch.api.call_filters import CallFilters
from ftpatch.cli.attended import Attending, attended, require_time
from ftpatch.cli.console import count, json_line, lines, note_lines
from ftpatch.cli.outcome import skipped_lines
from ftpatch.cli.process_update import readable_images
from ftpatch.cli.trace_reports import Asked, Reports
from ftpatch.errors import Refused, UsageError
from ftpatch.inject.runtime import PROBES
from ftpatch.process.process import find_process
from ftpatch.process.process_journal import recall

if TYPE_CHECKING:
    from ftpatch.process.attached import Live
    from ftpatch.process.process import Process

__all__ = ["Wanted", "list_probes", "probe_command", "probe_process"]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Options of a command: the ``probes``, by jumps where they can be if they ``optimize``; the
    limits of their recording, and whether it is a ``ring`` and begins switched ``off``; the
    ``trace`` to keep, if any, which may ``overwrite``; the
    ``seconds`` until they are taken out, None to wait for a signal; ``format`` and ``reports`` of
    what was recorded until then; ``keeps``: they stay until they are undone, which is told
    ``as_json``; ``keep_going``: as many as can be. Wildcards are a ``regex`` or globs, and match at
    most ``limit`` functions; what they skip is named if ``verbose``."""

    probes: Sequence[str]
    optimize: bool
    depth: int
    size: int
    ring: bool
    off: bool
    trace: Path | None
    overwrite: bool
    seconds: float | None
    keeps: bool
    keep_going: bool
    as_json: bool
    format: str | None
    reports: Sequence[str]
    quiet: bool
    regex: bool
    limit: int
    verbose: bool


def list_probes(pid: int, *, as_json: bool) -> None:
    """Print the probes that a process has. Raises UsageError if there are none."""
    process = find_process(pid)
    entry = recall(process)
    if entry is None or not entry.probes:
        raise UsageError(
            None, f"{process}: no probes in this process", "specify a probe, such as 'p main'"
        )
    for address, text in entry.probes:
        if as_json:
            json_line({"definition": text, "address": hex(address)})
        else:
            lines([text])


def probe_process(pid: int, wanted: Wanted, refused: Refused) -> bool:
    """Lay probes into a process; whether all could be. Raises what planning raises, InputError and
    OutputError; ``refused`` has what was refused before."""
    _require_limits(wanted)
    process = find_process(pid)
    require_free(process)
    if wanted.keeps and wanted.trace is not None:
        require_place_for(wanted.trace, overwrite=wanted.overwrite)
    reports = None if wanted.keeps else _reports(process.place / "exe", wanted)
    image, bring = _planned(process, wanted, refused, reports)
    if reports is None:
        live = kept(process, image, wanted.trace, bring, overwrite=wanted.overwrite)
        _tell(live, process, wanted)
    else:
        _watch(process, image, bring, wanted, reports)
    return not refused.errors


def probe_command(text: str, wanted: Wanted, refused: Refused) -> int:
    """Run a command line with probes in its program and its libraries, laid in before any of their
    code runs; its exit code. A signal that ends the probing ends the program, too. Raises what
    probe_process raises; then nothing of the program has run."""
    from ftpatch.api.starting import started
    from ftpatch.tracer.run import find_program

    _require_limits(wanted)
    words = _words(text)
    reports = _reports(find_program(words[0]), wanted)
    with started(words) as program:
        image, bring = _planned(program.process, wanted, refused, reports)

        def bring_first(environment: dict[str, str], trace: str, asked: Callable[[], bool]) -> Live:
            live = bring(environment, trace, asked)
            program.go_on()
            return live

        if _watch(program.process, image, bring_first, wanted, reports):
            program.send(signal.SIGTERM)
        return program.wait()


def _words(text: str) -> list[str]:
    """Split a command line as a shell does. Raises UsageError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        reason = f"-c {text!r}: {str(error).lower()}"
        raise UsageError(None, reason, "quote it as for a shell") from None
    if not words:
        raise UsageError(None, "-c: no program", "as in -c './shop --verbose'")
    return words


def _require_limits(wanted: Wanted) -> None:
    from ftpatch.api.recording_limits import require_limits

    require_limits(max_stack=wanted.depth, size=wanted.size, limit=wanted.limit)
    require_time(wanted.seconds)


def _planned(
    process: Process, wanted: Wanted, refused: Refused, reports: Reports | None
) -> tuple[Path, Bring]:
    """Find the places of the probes; return the program's file, and what lays them in."""
    loaded = readable_images(process)
    targets = probe_targets(
        loaded,
        wanted.probes,
        refused,
        optimize=wanted.optimize,
        keep_going=wanted.keep_going,
        regex=wanted.regex,
        limit=wanted.limit,
    )
    if not wanted.quiet:
        note_lines(skipped_lines([*refused.skipped.values()], verbose=wanted.verbose))
    if reports is not None:
        reports.require_returns(
            recorded=any(target.returns for target in targets),
            stacks=any(target.stacks for target in targets),
        )
    bring = probe_in(
        process,
        loaded,
        targets,
        depth=wanted.depth,
        size=wanted.size,
        ring=wanted.ring,
        off=wanted.off,
    )
    return loaded[0].path, bring


def _reports(program: Path, wanted: Wanted) -> Reports:
    asked = Asked(
        format=wanted.format,
        reports=wanted.reports,
        filters=CallFilters(),
        recording=wanted.trace,
        open=False,
        force=wanted.overwrite,
        verbose=False,
    )
    return Reports(PROBES, asked, program)


def _watch(process: Process, image: Path, bring: Bring, wanted: Wanted, reports: Reports) -> bool:
    """Probe until the end, and report; return whether a signal ended it."""
    one = Attending(
        process=process,
        image=image,
        doing="probing",
        done=("place", "probed"),
        recording=wanted.trace,
        overwrite=wanted.overwrite,
        seconds=wanted.seconds,
    )
    told = wanted.format or wanted.reports or not wanted.quiet
    return attended(one, bring, reports.write if told else _tell_lost)


def _tell_lost(files: Sequence[Path]) -> None:
    from ftpatch.cli.report_task import headers_of, tell_lost

    tell_lost(headers_of(files))


def _tell(live: Live, process: Process, wanted: Wanted) -> None:
    if wanted.as_json:
        told = {"pid": process.pid, "trace": live.entry.trace, "changed": live.sites}
        json_line(told | {"pause_ns": live.pause.pause, "threads": live.pause.threads})
    elif not wanted.quiet:
        pause, threads = live.pause.pause / 1e6, count(live.pause.threads, "thread")
        number = count(live.sites, "place")
        lines([f"{process}: {number} probed; {threads} paused for {pause:.1f} ms"])
        lines([f"  recording to {live.entry.trace}; `ftpatch undo --pid {process.pid}` ends it"])
