# SPDX-License-Identifier: MIT
"""status of running processes: a line for each image that has sites, as its memory has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ftpatch.cli.console import count, error_line, json_line, lines, table
from ftpatch.cli.paint import Line, joined, some, warn
from ftpatch.cli.status_notes import abi_lines, remarks
from ftpatch.cli.status_row import inserted, inserted_words, status_row
from ftpatch.errors import FtpatchError
from ftpatch.names.demangle import demangled
from ftpatch.process.loaded import Loaded, loaded_images
from ftpatch.process.own_code import OwnCode
from ftpatch.process.process import find_process
from ftpatch.process.recording import is_recording

if TYPE_CHECKING:
    from ftpatch.process.process import Process

__all__ = ["process_status"]

STATES = ("call", "nop", "unexpected")


def process_status(pids: Sequence[int], *, as_json: bool, quiet: bool, verbose: bool) -> bool:
    """Show the status of these processes; whether all of their images could be read."""
    fine = True
    for pid in dict.fromkeys(pids):
        try:
            process = find_process(pid)
            found, errors = loaded_images(process)
        except FtpatchError as error:
            error_line(str(error))
            fine = False
            continue
        rows, recording = list[tuple[Loaded, dict[str, Any]]](), is_recording(process)
        for one in found:
            try:
                rows.append((one, _row(one) | {"recording": recording}))
            except FtpatchError as error:
                errors.append(error)
                if not process.is_alive:
                    break
        for unread in errors:
            error_line(str(unread))
        fine &= not errors
        if as_json:
            for _, row in rows:
                json_line(row)
        elif not quiet:
            _show(process, rows, len(errors), recording=recording, verbose=verbose)
    return fine


def _row(loaded: Loaded) -> dict[str, Any]:
    """The status of an image, with the same keys as a file's."""
    sites = loaded.sites
    row = status_row(loaded.path, sites)
    row |= {} if sites.table_name else {"table": None}
    row |= {
        "pid": loaded.process.pid,
        "address": hex(loaded.address),
        "deleted": loaded.deleted,
        "differing": int(loaded.differing.sum()),
    }
    return row | inserted(loaded.file)


def _show(
    process: Process,
    rows: Sequence[tuple[Loaded, dict[str, Any]]],
    unreadable: int,
    *,
    recording: bool | None,
    verbose: bool,
) -> None:
    having = [(loaded, row) for loaded, row in rows if row["table"] is not None]
    if having:
        table(
            ("image", "sites", *STATES, "differing", "calls"),
            (
                (
                    _named(loaded),
                    row["sites"],
                    *(some(row["states"][state], state) for state in STATES),
                    some(row["differing"], "dropped"),
                    ", ".join(map(demangled, row["targets"])),
                )
                for loaded, row in having
            ),
            numbers=range(1, 6),
            spare=("calls", "unexpected"),
        )
    for loaded, row in rows:
        if told := inserted_words(row):
            lines([f"{_named(loaded)}{told}"])
    for loaded, row in having:
        if verbose:
            _details(loaded, row)
        lines((f"{loaded.path}: ", *_parts(line)) for line in remarks(loaded.sites, row["lost"]))
    bare = len(rows) - len(having)
    number = count(len(rows) + unreadable, "image")
    parts = [f"{process}: {number}, {bare} without call sites"]
    parts += [warn(f"{unreadable} unreadable")] if unreadable else []
    lines([joined(parts, ", ")])
    total = {state: sum(row["states"][state] for _, row in having) for state in STATES}
    sites, differing = sum(total.values()), sum(row["differing"] for _, row in having)
    if having:
        states = [some(total[state], state, f"{total[state]} {state}") for state in STATES]
        told = some(differing, "dropped", f"{differing} differing from the file")
        lines([(f"{process}: {count(sites, 'site')}: ", *joined([*states, told], ", "))])
    own = rows[0][0].own if rows else OwnCode(process)
    if own.jumps:
        names = ", ".join(dict.fromkeys(own.jumps.values()))
        listed = f"`ftpatch probe --pid {process.pid}`"
        lines([f"{process}: ftpatch's own probes, which {listed} lists: {names}"])
    if own.tracer is not None:
        undo = f"`ftpatch undo --pid {process.pid}`"
        lines([f"{process}: ftpatch's own tracer, {own.tracer.name}, which {undo} takes out"])
    if recording is not None:
        verb, now, other = ("disable", "on", "off") if recording else ("enable", "off", "on")
        switch = f"`ftpatch {verb} --pid {process.pid} --recording` switches it {other}"
        lines([f"{process}: recording {now}; {switch}"])
    if verbose:
        lines(f"  {_named(loaded)}" for loaded, row in rows if row["table"] is None)


def _named(loaded: Loaded) -> str:
    return f"{loaded.path} (deleted)" if loaded.deleted else str(loaded.path)


def _parts(line: Line) -> tuple[str, ...]:
    return (line,) if isinstance(line, str) else line


def _details(loaded: Loaded, row: dict[str, Any]) -> None:
    """Where an image is, and what it says of its sites."""
    lines(
        [
            f"{loaded.path}: {row['arch']} {row['container']} at {row['address']}, "
            f"table {row['table']}",
            f"  {row['records']} records: {row['null']} null, {row['dropped']} dropped",
        ]
    )
    lines(f"  {text}" for text in abi_lines(loaded.sites))
