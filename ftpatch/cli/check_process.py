# SPDX-License-Identifier: MIT
"""check of running processes: of each image that they have loaded, its sites and its code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ftpatch.cli.console import watched
from ftpatch.errors import FtpatchError
from ftpatch.ftrace.check.findings import Check
from ftpatch.process.code_as_file import check_loaded
from ftpatch.process.loaded import Loaded, loaded_images
from ftpatch.process.process import find_process

__all__ = ["process_checks"]


def process_checks(
    pids: Sequence[int], *, functions: bool
) -> Iterator[tuple[Path, str, Check | FtpatchError]]:
    """Each image's path, twice, since a baseline knows it by that, and its check or why there is
    none; with ``functions`` those that have a record as well. Raises InputError for a process that
    cannot be read, unless there are others."""
    for pid in dict.fromkeys(pids):
        try:
            found, errors = loaded_images(find_process(pid))
        except FtpatchError as error:
            if len(pids) == 1:
                raise
            yield Path(f"/proc/{pid}"), str(pid), error
            continue
        for unread in errors:
            yield Path(unread.path or f"/proc/{pid}"), str(pid), unread
        yield from watched(_each(found, functions=functions), len(found), "images")


def _each(
    found: list[Loaded], *, functions: bool
) -> Iterator[tuple[Path, str, Check | FtpatchError]]:
    """Each image's check, until the process ends; what was read for one is gone when the next one's
    turn comes."""
    while found:
        path, process = found[0].path, found[0].process
        result = _checked(found.pop(0), functions=functions)
        yield path, str(path), result
        if isinstance(result, FtpatchError) and not process.is_alive:
            return


def _checked(loaded: Loaded, *, functions: bool) -> Check | FtpatchError:
    try:
        return check_loaded(loaded, functions=functions)
    except FtpatchError as error:
        return error
