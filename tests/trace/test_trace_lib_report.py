# SPDX-License-Identifier: MIT
"""``ftpatch report``: names of libraries, and what headers may claim of them."""

from __future__ import annotations

import gzip
import hashlib
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftpatch.api.report_sources import kind_of
from ftpatch.core.byte_order import LITTLE
from ftpatch.inject.library_tables import Library, fitting, libraries_table
from ftpatch.trace.choose import reports_of
from ftpatch.trace.header import Tracer
from ftpatch.trace.mapped import AT, read_mapped
from tests.support.command import Result, ftpatch
from tests.support.sampling import scaled
from tests.support.trace_writer import (
    BASE,
    ENTRY,
    ENTRY_FROM,
    EXIT,
    Thread,
    TraceFile,
    library,
    program,
    site,
)

START = 0x8000
OTHERS = ("open_all", "read_all", "close_all")
Numbers = dict[str, int | bytes]


def _threads() -> list[Thread]:
    """main calls read_all of a library, which calls parse, which calls what is in no image."""
    inner = START + 0x20 + 5
    far = START + 0x4000 + 5
    thread = Thread(7).add(ENTRY, "main", 1).add(ENTRY, inner, 2).add(ENTRY, "parse", 3)
    thread.add(ENTRY, far, 4).add(EXIT, far, 5).add(EXIT, "parse", 6).add(EXIT, inner, 7)
    return [thread.add(EXIT, "main", 9)]


def _trace(folder: Path, **more: int | bytes) -> Path:
    """A trace of a program and a library, whose files are there."""
    shared = program(folder / "libother.so", OTHERS)
    header: Numbers = {"path": bytes(program(folder / "prog"))}
    own = hashlib.sha256(shared.read_bytes()).digest()
    fields = {"image_id": own, "bias": 0x7F00_0000_0000} | more
    entry = library(shared, START, 0x2000, **fields)  # type: ignore[arg-type]
    return TraceFile(_threads(), header=header, libraries=entry).write(folder / "trace")


def _names(result: Result) -> list[str]:
    assert result.code == 0, result
    return [row["function"] for row in result.json if row["event"] == "entry"]


def test_names_in_every_format(tmp_path: Path) -> None:
    path = _trace(tmp_path)
    for form in reports_of(kind_of(Tracer.FUNCTION_GRAPH)):
        out = tmp_path / f"out-{form}"
        result = ftpatch("report", "--format", form, "-o", out, path)
        assert result.code == 0 and not result.err
        text = b"".join(one.read_bytes() for one in (sorted(out.glob("*")) or [out]))
        text = gzip.decompress(text) if text.startswith(b"\x1f\x8b") else text
        assert b"read_all" in text and b"main" in text and b"open_all" not in text, form
    rows = ftpatch("report", "--json", path).json
    assert _names(ftpatch("report", "--json", path)) == ["main", "read_all", "parse", "0x40d004"]
    assert rows[1]["library"] == str(tmp_path / "libother.so") and "library" not in rows[0]
    assert rows[1]["address"] == hex(BASE + 0x20)
    profile = ftpatch("report", "--format", "folded", path).out
    assert "main;read_all;parse" in profile


def test_filters_know_their_names(tmp_path: Path) -> None:
    path = _trace(tmp_path)
    assert _names(ftpatch("report", "--json", "-f", "read*", path)) == ["read_all"]
    assert _names(ftpatch("report", "--json", "-f", "!read*", path))[:2] == ["main", "parse"]
    assert "matches no function" in ftpatch("report", "-f", "open_all", path).err


def test_profiles(tmp_path: Path) -> None:
    path = _trace(tmp_path)
    sums = [[(site("main") + 1, 1, 9, 4), (START + 0x20 + 6, 3, 5, 5)]]
    entry = path.read_bytes()[AT : AT + 512]
    header: Numbers = {"path": bytes(tmp_path / "prog")}
    TraceFile(profiles=sums, header=header, libraries=entry).write(path)
    rows = ftpatch("report", "--json", path).json
    assert [(row["function"], row["hits"]) for row in rows] == [("main", 1), ("read_all", 3)]
    assert rows[1]["library"].endswith("libother.so")


def test_callers(tmp_path: Path) -> None:
    """In the program, in the library, behind its range, and in nothing."""
    path = _trace(tmp_path)
    bias = 0x7F00_0000_0000
    places = [BASE + 0x12, bias + BASE + 0x52, bias + BASE + 0x2010, (1 << 64) - 1, 0]
    thread = Thread(7)
    for time, place in enumerate(places):
        thread.add(ENTRY_FROM, "hash", time, place)
    entry = path.read_bytes()[AT : AT + 512]
    header: Numbers = {"path": bytes(tmp_path / "prog"), "tracer": 1}
    TraceFile([thread], header=header, libraries=entry).write(path)
    rows = ftpatch("report", "--json", path).json
    assert [row["parent"] for row in rows] == ["main", "close_all", *map(hex, places[2:])]


def test_another_library_has_no_names(tmp_path: Path) -> None:
    path = _trace(tmp_path, image_id=b"\1" * 32)
    result = ftpatch("report", "--json", path)
    assert _names(result) == ["main", hex(BASE + 0x24), "parse", "0x40d004"]
    assert result.err.count("\n") == 1
    assert "libother.so: not the traced library, or changed since" in result.err
    assert _names(ftpatch("report", "--json", "--force", path))[1] == "read_all"
    (tmp_path / "libother.so").unlink()
    result = ftpatch("report", "--json", path)
    assert _names(result)[1] == hex(BASE + 0x24)
    assert "libother.so: cannot read: No such file" in result.err and result.err.count("\n") == 1
    assert _names(ftpatch("report", "--json", path, "--image", tmp_path / "prog"))[0] == "main"


def test_without_a_table_it_reads_as_before(tmp_path: Path) -> None:
    header: Numbers = {"path": bytes(program(tmp_path / "prog"))}
    for begin in (1280, 4096):
        path = TraceFile(_threads(), begin=begin, header=header).write(tmp_path / "trace")
        result = ftpatch("report", "--json", path)
        assert not result.err and _names(result)[:1] == ["main"]


HUGE = (1 << 64) - 1


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        (library(b"/x\0", HUGE, HUGE), 1),
        (library(b"/x\0", 0, 1 << 28), 0),
        (library(b"/x\0", 0, (1 << 28) + 1), 1),
        (library(b"/x\0", 1 << 28, 1), 1),
        (library(b"/x\0", START, 0), 1),
        (library(b"/x\0", START, 0x1000, base=HUGE, bias=HUGE), 0),
        (library(b"/x\0", START, 16) + library(b"/y\0", START + 15, 16), 1),
        (library(b"/x\0", START, 16) + library(b"/y\0", START - 15, 4096), 1),
        (library(b"/x\0", START, 16) + library(b"/y\0", START + 16, 16), 0),
        (library(b"/x" * 20, START, 0x1000), 0),
        (library(b"", START, 0x1000, length=72), 1),
        (library(b"\0", START, 0x1000), 0),
        (library(b"/x\0", START, 0x1000, length=8), 1),
        (library(b"/x\0", START, 0x1000, length=81), 1),
        (library(b"/x\0", START, 0x1000, length=2824), 1),
        (library(b"/x\0", START, 0x1000, length=2816), 0),
        (library(b"/x\0", START, 0x1000, length=0xFFFF_FFF8), 1),
        (library(b"\x1b[31m\n/\xff\0", START, 0x1000), 0),
        (library(b"/dev/zero\0", START, 0x1000), 0),
        (library(b"/dev/stdin\0", START, 0x1000), 0),
        (b"\xff" * 2816, 1),
        (b"".join(library(b"\0", START + n, 1) for n in range(35)), 0),
    ],
)
def test_tables_that_lie(table: bytes, wrong: int, tmp_path: Path) -> None:
    header: Numbers = {"path": bytes(program(tmp_path / "prog"))}
    path = TraceFile(_threads(), header=header, libraries=table).write(tmp_path / "trace")
    for form in reports_of(kind_of(Tracer.FUNCTION_GRAPH)):
        result = ftpatch("report", "--format", form, "-o", tmp_path / form, path)
        assert result.code == 0 and "Traceback" not in result.err and "\x1b" not in result.err
    result = ftpatch("report", "--json", path)
    assert (f"corrupt library entries: {wrong}" in result.err) == bool(wrong)


@settings(max_examples=scaled(60, 15))
@given(st.lists(st.tuples(st.integers(0, 255), st.integers(1, 255)), min_size=1, max_size=8))
def test_random_damage(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    raw = bytearray(_trace(tmp_path).read_bytes())
    for place, change in changes:
        raw[AT + place] ^= change
    path = tmp_path / "trace"
    path.write_bytes(raw)
    for form in ("function_graph", "function", "json", "profile"):
        result = ftpatch("report", "--format", form, path)
        assert result.code == 0 and "internal error" not in result.err, result
        assert "Warning" not in result.err


def test_what_the_program_is_told_is_what_is_read() -> None:
    """ftpatch/inject writes what the runtime copies, and ftpatch/trace reads."""
    paths = [f"/usr/lib/lib{number}.so".encode() * (number + 1) for number in range(8)]
    wanted = [
        Library(path, bytes([n] * 32), n << 12, 4096, 0x1000, 0x3000, 0x5000, 9)
        for n, path in enumerate(paths, 1)
    ]
    raw = libraries_table(wanted, LITTLE)
    header, at = b"", 0
    for one in wanted:
        assert struct.unpack_from("<2Q", raw, at) == (one.dynamic, one.place)
        (length,) = struct.unpack_from("<I", raw, at + 16)
        header += raw[at + 16 : at + 16 + length]
        at += 16 + length
    assert not any(raw[at:]) and len(raw) - at >= 20
    found, wrong = read_mapped(bytes(AT) + header, LITTLE)
    assert not wrong
    assert [(one.path.encode(), one.image_id, one.start, one.size) for one in found] == [
        (one.path, one.image_id, one.start, one.size) for one in wanted
    ]


def test_what_fits() -> None:
    assert fitting([b"x" * 7] * 40) == [True] * 35 + [False] * 5
    assert fitting([b"x" * 2743]) == [True] and fitting([b"x" * 2744]) == [False]
    assert fitting([b"x" * 2700, b"y" * 90, b"z"]) == [True, False, False]
    assert fitting([b"x" * 2600, b"y" * 90, b"z"]) == [True, False, True]


def test_the_layout_is_the_stubs() -> None:
    text = Path(__file__).parent.parent.parent.joinpath("stubs/runtime/trace.h").read_text()
    offsets = [
        int(n) for n in re.findall(r"/\* +(\d+): ", text.partition("struct trace_library {")[2])
    ]
    assert offsets[0] == 0 and 72 in offsets
    assert f"char libraries[];   /* {AT}:" in text
