# SPDX-License-Identifier: MIT
"""The threads that may still write to a trace: nothing comes from those that have ended."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ftpatch.trace.reader import OpenFile

__all__ = ["living_threads"]

MAPPING = re.compile(rb"^\S+ .{4} \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)", re.MULTILINE)
"""Device and inode of a mapped file, in /proc/PID/maps (proc_pid_maps(5))."""


def living_threads(source: OpenFile) -> set[int] | None:
    """Return the threads of the process that a trace is of; None where others may write to it as
    well, or its number is not that of a process here that has it mapped."""
    header, held = source.header, os.fstat(source.fd)
    if header.children:
        return None
    process = Path(f"/proc/{header.pid}")
    wanted = os.major(held.st_dev), os.minor(held.st_dev), held.st_ino
    try:
        threads = {int(name) for name in os.listdir(process / "task")}  # noqa: PTH208 - names alone
        maps = (process / "maps").read_bytes()
    except OSError:
        return None
    for major, minor, inode in MAPPING.findall(maps):
        if (int(major, 16), int(minor, 16), int(inode)) == wanted:
            return threads
    return None
