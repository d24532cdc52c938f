# SPDX-License-Identifier: MIT
"""enable, disable and undo of a running process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ftpatch.api.attaching import disable_in, enable_in, undo_in
from ftpatch.cli.console import count, error_line, json_line, lines
from ftpatch.errors import InputError, UsageError
from ftpatch.ftrace.filter import Selection
from ftpatch.process.attached import Live
from ftpatch.process.loaded import Loaded, loaded_images
from ftpatch.process.process import Process, find_process
from ftpatch.process.recording import record
from ftpatch.process.take_out import TakenOut
from ftpatch.tracer.plan import Tracing

__all__ = [
    "disable_process",
    "enable_process",
    "readable_images",
    "require_unused",
    "require_unused_beside",
    "switch_recording",
    "tell_left",
    "undo_process",
]


def readable_images(process: Process) -> list[Loaded]:
    """The images of a process, the program first; says which cannot be read. Raises InputError if
    the program is one of them."""
    loaded, errors = loaded_images(process)
    for error in errors:
        error_line(str(error))
    if not loaded:
        raise InputError(None, f"{process}: no image of it can be read")
    return loaded


def require_unused(options: Mapping[str, object], beside: str = "--pid") -> None:
    """Raise UsageError for an option, by its name, that means nothing to a process, which is named
    by the option ``beside`` it."""
    for name, value in options.items():
        if value:
            raise UsageError(None, f"{name} does not work with {beside}", "remove it")


def require_unused_beside(option: str, others: Mapping[str, object]) -> None:
    """Raise UsageError for another option beside one that stands alone."""
    for name, value in others.items():
        if value:
            raise UsageError(None, f"{option} and {name} are mutually exclusive", "choose one")


def enable_process(
    pid: int,
    selection: Selection,
    libraries: Sequence[str],
    tracing: Tracing | None,
    output: Path | None,
    *,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Bring a tracer into a process, or let more sites call the one that is there."""
    process = find_process(pid)
    live = enable_in(
        process,
        readable_images(process),
        selection,
        libraries,
        tracing or Tracing(tracer="function_graph", depth=1024, size=64 << 20, arguments=False),
        output,
        named=tracing is not None or output is not None,
        overwrite=force,
    )
    _tell(process, live, "enabled", "call the tracer already", as_json=as_json, quiet=quiet)


def disable_process(
    pid: int, selection: Selection, libraries: Sequence[str], *, as_json: bool, quiet: bool
) -> None:
    """Let sites of a process call its tracer no more."""
    process = find_process(pid)
    live = disable_in(process, readable_images(process), selection, libraries)
    _tell(process, live, "disabled", "do not call the tracer", as_json=as_json, quiet=quiet)


def switch_recording(pid: int, *, on: bool, as_json: bool, quiet: bool) -> None:
    """Switch the recording of a process on or off."""
    process = find_process(pid)
    found = record(process, on=on)
    state = "on" if on else "off"
    if as_json:
        json_line({"pid": pid, "trace": found.trace or None, "recording": on})
    elif not quiet:
        lines([f"{process}: recording {state}; its sites stay as they are"])


def undo_process(pid: int, *, as_json: bool, quiet: bool) -> bool:
    """Take out of a process what ftpatch put into it; whether nothing is left."""
    process = find_process(pid)

    def tell(done: Sequence[tuple[Process, TakenOut]]) -> None:
        for one, out in done:
            _tell_taken_out(one, out, as_json=as_json, quiet=quiet)

    done = undo_in(process, tell)
    return not any(out.left for _, out in done)


def _tell(
    process: Process, live: Live, what: str, unchanged: str, *, as_json: bool, quiet: bool
) -> None:
    """Say how many sites were changed; ``unchanged``: what is so of them if none had to be."""
    if as_json:
        told = {"pid": process.pid, "trace": live.entry.trace, "changed": live.sites}
        json_line(told | {"pause_ns": live.pause.pause, "threads": live.pause.threads})
    elif not quiet:
        pause = live.pause.pause / 1e6
        threads = count(live.pause.threads, "thread")
        done = f"{count(live.sites, 'site')} {what}; {threads} paused for {pause:.1f} ms"
        if not live.sites:
            done = f"nothing to change: the selected sites {unchanged}"
        lines([f"{process}: {done}"])
        if what == "enabled":
            lines(
                [f"  recording to {live.entry.trace}; `ftpatch undo --pid {process.pid}` ends it"]
            )


def _tell_taken_out(process: Process, out: TakenOut, *, as_json: bool, quiet: bool) -> None:
    pause = max((one.pause for one in out.pauses), default=0)
    if as_json:
        told = {"pid": process.pid, "changed": out.sites, "returns": out.returns}
        left = {"left": out.left, "foreign": [hex(one) for one in out.foreign]}
        json_line(told | left | {"pause_ns": pause})
        return
    if out.gone:
        error_line(f"{process}: nothing to take out: what ftpatch put into it is gone (exec?)")
    elif not quiet:
        done = f"{count(out.sites, 'site')} restored"
        if out.probes:
            done = f"{count(out.probes, 'probe')} taken out"
        lines([f"{process}: {done}; paused for {pause / 1e6:.1f} ms"])
    tell_left(process, out)


def tell_left(process: Process, out: TakenOut) -> None:
    """Say what could not be taken out."""
    if out.left:
        later = f"run `ftpatch undo --pid {process.pid}` later"
        error_line(f"{process}: the tracer stays mapped: {out.left}; {later}")
    for address in out.foreign:
        error_line(f"{process}: {address:#x} was changed by somebody else, and left alone")
