# SPDX-License-Identifier: MIT
"""Filters of probes, beside the same conditions as a compiler sees them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.command import ftpatch

__all__ = ["assert_as_compiled", "hits_of"]

COMPILERS = {"x86_64": "gcc", "arm64": "aarch64-linux-gnu-gcc"}


def hits_of(trace: Path, names: Sequence[str]) -> list[int]:
    """How often each probe was hit, by the report's table."""
    report = ftpatch("report", trace)
    assert report.code == 0, report.err
    rows = (line.split() for line in report.out.splitlines() if line.startswith("# "))
    held = {row[1]: int(row[3]) for row in rows if len(row) == 5 and row[3].isdigit()}
    return [held[name] for name in names]


def assert_as_compiled(
    arch: str, folder: Path, source: str, fields: str, pairs: Sequence[tuple[str, str]]
) -> None:
    """Assert that filters on the function check() pass as often as it counts itself. ``source`` has
    room for their number (``many``) and ``tests``; ``pairs`` are ours, and as C has it."""
    runs = [] if arch == os.uname().machine else ["qemu-aarch64-static"]
    if shutil.which(COMPILERS[arch]) is None or (runs and shutil.which(runs[0]) is None):
        pytest.skip(f"no {COMPILERS[arch]}, or nothing to run its programs with")
    many = len(pairs)
    tests = "\n\t".join(f"wanted[{row}] += {theirs};" for row, (_, theirs) in enumerate(pairs))
    (folder / "check.c").write_text(source % {"many": many, "tests": tests})
    program, trace = folder / "check", folder / "trace"
    words = [COMPILERS[arch], "-O1", "-static", str(folder / "check.c"), "-o", str(program)]
    subprocess.run(words, check=True)
    probes = [f"p:c{row} check {fields} if {ours}" for row, (ours, _) in enumerate(pairs)]
    done = ftpatch("probe", program, *probes, "-o", folder / "check.p")
    assert done.code == 0, done.err
    said = subprocess.run(
        [*runs, str(folder / "check.p")],
        env={**os.environ, "FTPATCH_TRACE": str(trace)},
        check=True,
        capture_output=True,
        text=True,
    )
    wanted = list(map(int, said.stdout.split()))
    assert len(wanted) == many and len({*wanted}) > many / 8  # not all or nothing
    found = hits_of(trace, [f"c{row}" for row in range(many)])
    differing = [row for row in range(many) if found[row] != wanted[row]]
    assert not differing, [(pairs[row], found[row], wanted[row]) for row in differing[:3]]
