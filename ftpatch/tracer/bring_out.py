# SPDX-License-Identifier: MIT
"""The end of a recording in a running process: its files get the names that were asked for, once no
process has any of them mapped."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from ftpatch.errors import OutputError
from ftpatch.io.under_way import place_of
from ftpatch.trace.children import children_of
from ftpatch.trace.extent import read_extent, settle
from ftpatch.tracer.written import is_mapped, is_own

__all__ = [
    "bring_out",
    "leave_place",
    "make_place",
    "note_earlier",
    "recorded",
    "require_free_name",
    "settle_ended",
]


def make_place(trace: Path) -> Path:
    """Make the folder of a recording; return the file's place there. Raises OutputError."""
    place = place_of(trace)
    try:
        place.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise OutputError(trace, f"cannot write: {error.strerror}") from None
    if not _is_private(place.parent):
        raise OutputError(place.parent, "not a directory that only you can write to", "remove it")
    return place


def leave_place(trace: Path) -> None:
    """Remove the folder of a recording, if no file of it is there."""
    note = _note_of(place_of(trace))
    with contextlib.suppress(OSError):
        if set(note.parent.iterdir()) <= {note}:
            note.unlink(missing_ok=True)
        note.parent.rmdir()


def note_earlier(trace: Path, files: Iterable[Path]) -> None:
    """Note in its place the files of an earlier run that a recording takes the place of. They are
    there until it has files of its own, and ftpatch may be killed meanwhile: then whoever brings
    it out removes them. Raises OutputError."""
    note = _note_of(place_of(trace))
    known = {path.name: _identity(path) for path in files}
    try:
        note.write_text(json.dumps({name: held for name, held in known.items() if held}))
    except OSError as error:
        raise OutputError(trace, f"cannot write: {error.strerror}") from None


def require_free_name(trace: Path, *, overwrite: bool) -> None:
    """Raise OutputError for the name of a recording that is under way, and of one that is over
    unless it may ``overwrite`` that."""
    place = recorded(trace)
    if place == trace and (overwrite or not os.path.lexists(trace)):
        return
    if any(map(is_mapped, place.parent.iterdir() if place != trace else [])):
        reason = f"still written by process {read_extent(place)[0]}"
        raise OutputError(trace, reason, "wait for its end, or use another name")
    if not overwrite:
        raise OutputError(trace, "the output exists", "use --force to overwrite it")


def bring_out(trace: Path) -> list[Path]:
    """Cut the files of a recording to their length, and give them their names; none if a process
    still writes to one, or the folder is not ours. Raises OutputError; then they stay where they
    are."""
    place = place_of(trace)
    folder = place.parent
    if not _is_private(folder):
        return []
    try:
        note = _note_of(place)
        files = sorted(filter(is_own, set(folder.iterdir()) - {note}))
        if any(map(is_mapped, files)):
            return []
        if files:
            _remove_earlier(trace, note)
        _require_name(trace, place)
        named = [_named(file, trace) for file in files]
        leave_place(trace)  # unless somebody has put something there
    except OSError as error:
        hint = f"the recording stays in {folder}"
        raise OutputError(trace, f"cannot write: {error.strerror}", hint) from None
    return named


def settle_ended(trace: Path) -> None:
    """Cut the files of a run, whose processes record no more, to their length, if they have had
    their names from the start."""
    if place_of(trace).parent.exists():  # what has these names is of an earlier run
        return
    for path in (trace, *children_of([trace])):
        with contextlib.suppress(OSError):
            pid, used = read_extent(path)
            if pid and is_own(path) and not is_mapped(path):
                path.chmod(0o600)
                settle(path, used, None)


def recorded(trace: Path) -> Path:
    """Find where a trace is now. One whose process has ended gets its name, if it can. Raises
    OutputError."""
    place = place_of(trace)
    if os.path.lexists(place):
        bring_out(trace)
    return place if os.path.lexists(place) else trace


def _note_of(place: Path) -> Path:
    """Where note_earlier() writes: no name of a recording, which has only numbers behind it."""
    return place.with_name(f"{place.name}.earlier")


def _identity(path: Path) -> list[int]:
    """What tells a file from another of its name; empty for none."""
    try:
        held = path.lstat()
    except OSError:
        return []
    return [held.st_dev, held.st_ino, held.st_ctime_ns]


def _remove_earlier(trace: Path, note: Path) -> None:
    """Remove the files that a recording takes the place of. Raises OSError."""
    try:
        known = {trace.with_name(name): held for name, held in json.loads(note.read_text()).items()}
    except (FileNotFoundError, ValueError, AttributeError):  # none, or none that we wrote whole
        return
    for path, held in known.items():
        if held and held == _identity(path):
            path.unlink()


def _require_name(trace: Path, place: Path) -> None:
    """Raise OutputError where somebody has made another file of this name meanwhile; an empty one,
    as `>` makes, may go."""
    if not (os.path.lexists(trace) and place.exists()) or trace.samefile(place):
        return
    held = trace.lstat()
    if not stat.S_ISREG(held.st_mode) or held.st_size:
        hint = f"rename it; the recording stays in {place.parent}"
        raise OutputError(trace, "somebody has made this file meanwhile", hint)
    trace.unlink()


def _named(file: Path, trace: Path) -> Path:
    """Move a file out of the folder, by the rule of stubs/runtime/file_path.c where its name is
    taken. Raises OSError."""
    pid, used = read_extent(file)
    if pid:
        file.chmod(0o600)
        settle(file, used, None)
    first = trace.with_name(file.name)
    more = (first.with_name(f"{first.name}.{i}") for i in itertools.count(2))
    for name in itertools.chain([first], more):
        try:
            os.link(file, name)
        except FileExistsError:
            if not name.samefile(file):
                continue
        except OSError:  # no links on this file system
            if os.path.lexists(name):
                continue
            file.rename(name)
            return name
        file.unlink()
        return name
    raise AssertionError


def _is_private(folder: Path) -> bool:
    try:
        held = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(held.st_mode) and held.st_uid == os.geteuid() and not held.st_mode & 0o077
