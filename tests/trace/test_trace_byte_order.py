# SPDX-License-Identifier: MIT
"""Traces of big-endian machines: whatever is shown of one, in the other byte order it is the
same."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.trace_events import read_trace
from tests.support.trace_writer import (
    ENTRY_ARGS,
    ENTRY_FROM,
    EXIT_VALUE,
    FUNCTIONS,
    LEFT,
    Call,
    Thread,
    TraceFile,
    library,
    program,
    site,
)

ORDERS = ("<", ">")
FAR = 0x100000
REPORTS = ("function_graph", "function", "profile", "json", "perfetto", "trace-dat")


def _calls(rng: random.Random) -> Call:
    """A tree of calls whose chunks have further words, other bases, and frames that are left."""
    call = Call(site("main"), 1000, 900_000)
    for number in range(200):
        begin = 2000 + 4000 * number
        inner = [
            Call(site(rng.choice(FUNCTIONS)), begin + 10 * n, begin + 10 * n + 7) for n in (1, 2)
        ]
        call.calls.append(Call(site(rng.choice(FUNCTIONS)), begin, begin + 100, inner))
    return call


def _recorded(order: str, folder: Path) -> Path:
    folder.mkdir()
    rng = random.Random(5)
    first = Thread(7, [*_calls(rng).events()], per=60)
    second = Thread(8, per=9)
    for number in range(50):
        at = 5000 + 90 * number
        second.add(ENTRY_ARGS, "walk", at, *(rng.getrandbits(64) for _ in range(6)))
        second.add(ENTRY_FROM, "hash", at + 20, 0x401000 + rng.randrange(200))
        second.add(LEFT, 1, at + 30)
        second.add(EXIT_VALUE, "walk", at + 60, rng.getrandbits(64))
    second.add(ENTRY_FROM, FAR + site("hash"), 10_000, 0x401005)
    other = program(folder / "liber.so")
    file = TraceFile([first, second], order=order)
    file.libraries = library(other, FAR, 0x1000, order=order)
    accounts = 4096 + 4096 * 64
    file.header = {"machine": 22, "flags": 3, "path": bytes(program(folder / "prog")), "lost0": 9}
    file.header |= {"accounts": accounts, "accounted": 2}
    raw = file.build().ljust(accounts, b"\0")
    for tid, lost in ((7, 4), (8, 5)):
        raw += struct.pack(f"{order}2I7Q", tid, 0, lost, 0, 0, 0, 0, 0, 0)
    path = folder / "some.trace"
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("format", REPORTS)
def test_reports_are_the_same(format: str, tmp_path: Path) -> None:
    said = []
    for name, order in zip(("little", "big"), ORDERS, strict=True):
        path, out = _recorded(order, tmp_path / name), tmp_path / f"{name}.out"
        done = ftpatch("report", path, "--format", format, "-o", out, "--force")
        assert done.code == 0, done.err
        said.append((out.read_bytes().replace(bytes(path.parent), b""), done.err.replace(name, "")))
    assert said[0] == said[1]
    assert len(said[0][0]) > 500
    assert b"thread 8 lost 5, thread 7 4" in said[0][0] + said[0][1].encode()
    little, big = ((tmp_path / name / "some.trace").read_bytes() for name in ("little", "big"))
    assert little != big and (little[8], big[11]) == (1, 1)


def test_following_is_the_same(tmp_path: Path) -> None:
    """By looks at chunks that may still be written; this one's process is gone."""
    said = []
    for name, order in zip(("little", "big"), ORDERS, strict=True):
        done = ftpatch("report", _recorded(order, tmp_path / name), "--follow", "--force")
        assert done.code == 0, done.err
        said.append(done.out)
    assert said[0] == said[1] and said[0].count("walk(0x") == 50


def test_sums_are_the_same(tmp_path: Path) -> None:
    """function_profile's, which are no events."""
    said = []
    rng = random.Random(6)
    rows = [(site(name) + 1, rng.randrange(9), rng.getrandbits(40), 5) for name in FUNCTIONS]
    for name, order in zip(("little", "big"), ORDERS, strict=True):
        path = tmp_path / f"{name}.trace"
        TraceFile(profiles=[rows], order=order).write(path)
        assert read_trace(path).profile[site("walk")] == list(rows[3][1:])
        done = ftpatch("report", path, "--image", program(tmp_path / "prog"), "--force")
        assert done.code == 0, done.err
        said.append(done.out)
    assert said[0] == said[1] and "walk" in said[0]


def test_unknown_versions_are_told(tmp_path: Path) -> None:
    """As the number that they are on most machines."""
    path = tmp_path / "later.trace"
    TraceFile([Thread(7)], header={"version": 9}).write(path)
    assert "unsupported trace format 9" in ftpatch("report", path).err
