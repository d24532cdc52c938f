# SPDX-License-Identifier: MIT
"""The program of tests/programs/watched.c, with and without watches, and what its traces say."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import PATIENCE, ftpatch
from tests.support.tracer_programs import Form, build

__all__ = ["build_watched", "name_of", "refusal", "rows_of", "run_watched", "watched"]

SIZE = "128K"
"""Of trace files."""
ATTRIBUTES = struct.Struct("<2I5Q2I2Q")
"""struct perf_event_attr: type, size | config, sample_period, sample_type, read_format, flags |
wakeup_events, bp_type | bp_addr, bp_len."""


@cache
def refusal() -> str:
    """Why this machine cannot watch anything; empty where it can."""
    if os.uname().machine != "x86_64":
        return "watches are of x86-64"
    variable = ctypes.c_long()
    flags = 1 << 5 | 1 << 6 | 1 << 36 | 1 << 37  # no kernel, no hypervisor, not on exec, a signal
    place = ctypes.addressof(variable)
    fields = (5, 128, 0, 1, 0, 0, flags, 0, 2, place, 8)  # a breakpoint, for each write
    attributes = ATTRIBUTES.pack(*fields).ljust(128, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(298, attributes, 0, -1, -1, 8)
    if fd < 0:
        return f"perf_event_open: {os.strerror(ctypes.get_errno())}"
    os.close(fd)
    return ""


def build_watched(folder: Path, link: str = "pie", level: str = "-O1") -> Path:
    """watched.c; skips where it cannot be built."""
    return build(Form(link=link, level=level, site="none"), "watched.c", folder)


def run_watched(
    program: Path, *args: str, before: Sequence[str] = (), trace: str = "t"
) -> tuple[subprocess.CompletedProcess[bytes], Path]:
    """The program's end, and its trace."""
    place = program.with_name(trace)
    done = subprocess.run(
        [*before, str(program), *args],
        env={**os.environ, "FTPATCH_TRACE": str(place), "FTPATCH_TRACE_SIZE": SIZE},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return done, place


def watched(folder: Path, *requests: str, link: str = "pie", level: str = "-O1") -> Path:
    """The same with watches; skips where the kernel refuses them."""
    if refusal():
        pytest.skip(refusal())
    program = build_watched(folder, link, level)
    target = program.with_name("patched")
    assert ftpatch("watch", program, *requests, "-o", target, "--force").code == 0
    return target


def rows_of(*traces: Path) -> list[dict[str, Any]]:
    """What the report has as JSON."""
    result = ftpatch("report", "--json", *traces)
    assert result.code == 0 and not result.err.count("internal"), result.err
    return result.json


def name_of(row: dict[str, Any]) -> str:
    """The function of a row."""
    return str(row["function"]).partition("+")[0]
