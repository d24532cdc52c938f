# SPDX-License-Identifier: MIT
"""The file of a recording, before there is one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.errors import OutputError, UsageError
from ftpatch.io.output import require_new
from ftpatch.io.temporary import require_place

if TYPE_CHECKING:
    from ftpatch.trace.header import Tracer

__all__ = ["require_recording"]


def require_recording(
    path: Path, tracer: Tracer, program: Path, format_: str | None, *, force: bool
) -> None:
    """Raise UsageError or OutputError for a name where no new recording can be, and for one that is
    meant to be a report's; ``format_`` is the format asked for."""
    from ftpatch.api.report_sources import reports_ending

    require_new(path, force=force)
    if os.path.realpath(path) == os.path.realpath(program):
        raise UsageError(path, "would overwrite another file of this run", "name another file")
    like = reports_ending(tracer, path.suffix) if path.suffix else []
    if like:
        hint = f"to write a report, use --report {format_ or like[0]}={path}"
        raise UsageError(path, "-o names the recording, but this is the name of a report", hint)
    if not path.parent.is_dir():
        raise OutputError(path, "cannot write: no such directory")
    require_place(path)
    longest = os.pathconf(path.parent, "PC_NAME_MAX") - len(f".{_last_pid()}")
    if len(os.fsencode(path.name)) > longest:
        reason = "the name is too long: the traces of children are FILE.PID"
        raise UsageError(path, reason, f"use at most {longest} bytes")


def _last_pid() -> int:
    """The largest process id that there can be, plus one (proc(5))."""
    try:
        return int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        return 1 << 22  # PID_MAX_LIMIT of include/linux/threads.h
