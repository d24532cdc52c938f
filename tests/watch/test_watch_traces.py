# SPDX-License-Identifier: MIT
"""Traces of watches that no program wrote: what the header says, and damage without end."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftpatch.arch.accesses import READ, WRITE, memory_accesses
from ftpatch.core.byte_order import LITTLE
from ftpatch.errors import InputError, UsageError
from ftpatch.trace.header import Tracer, open_trace
from ftpatch.watch import Watch
from ftpatch.watch.table import SLOTS, TABLE_SIZE, Told, pack_watches, unpack_watches
from ftpatch.watch.trace_watches import read_watched, refusal_note
from tests.support.command import ftpatch
from tests.support.sampling import scaled
from tests.support.trace_writer import BASE, Thread, TraceFile, program

ACCESS = 1
COUNTER = Watch(symbol="counter", offset=0, address=0x404010, length=4, type="rw-")
TABLE = Watch(symbol="table", offset=16, address=0x404040, length=2, type="-w-", usual=False)
PROBES_AT, TABLE_AT = 232, 4096


def _raw(*, watches: tuple[Watch, ...] = (COUNTER, TABLE), path: Path | None = None) -> bytearray:
    """Three accesses of two threads, in functions of program()."""
    one = Thread(7).add(ACCESS, 0, 1000, BASE + 4, 0, 1, 2)
    one.add(ACCESS, 1, 3000, BASE + 0x24, 1, 5, 0xFFFF_FFFF)
    two = Thread(8).add(ACCESS, 0, 2000, BASE + 4, 1, 1, 1 << 32 | 3)
    header: dict[str, int | bytes] = {"tracer": 6, "path": str(path or "").encode()}
    raw = bytearray(TraceFile([one, two], chunk_size=256, begin=8192, header=header).build())
    raw[PROBES_AT : PROBES_AT + 4] = struct.pack("<I", SLOTS)
    table = bytearray(pack_watches(watches, LITTLE))
    table[0:16] = struct.pack("<2Q", 2, 1)
    raw[TABLE_AT : TABLE_AT + TABLE_SIZE] = table
    return raw


def _write(path: Path, raw: bytes | bytearray) -> Path:
    path.write_bytes(raw)
    return path


def _told(path: Path) -> list[Told | None]:
    fd, header = open_trace(path)
    assert header.tracer == Tracer.WATCH and header.probes == SLOTS
    return read_watched(fd, header)


def test_the_header(tmp_path: Path) -> None:
    assert _told(_write(tmp_path / "t", _raw())) == [
        Told(COUNTER, 2, 1, 0),
        Told(TABLE, 0, 0, 0),
        None,
        None,
    ]


def test_the_report(tmp_path: Path) -> None:
    image = program(tmp_path / "image")
    out = ftpatch("report", _write(tmp_path / "t", _raw(path=image))).out
    assert out == (
        "# tracer: ksym_tracer\n"
        "#\n"
        "# counter:rw-: accesses missed: 1\n"
        "#\n"
        "#       TASK-TID   CPU#      Symbol                    Type    Function\n"
        "#          |        |          |                        |         |\n"
        "       prog-7     [002] counter+0x0                    W       main+0x4/0x20"
        "         0x0 -> 0x1\n"
        "       prog-8     [003] counter+0x0                    ?       SIGTRAP was blocked"
        "   0x1\n"
        "       prog-7     [???] table+0x10                     W       parse+0x4/0x20"
        "        0x1 -> 0x5\n"
        "#\n"
        "# WATCH         ACCESSES     READS    WRITES  FUNCTION\n"
        "# counter:rw-          1         0         0  SIGTRAP was blocked\n"
        "# counter:rw-          1         0         1  main\n"
        "# w@table+16:2         1         0         1  parse\n"
    )
    rows = ftpatch("report", "--json", tmp_path / "t").json
    assert [row["access"] for row in rows[:3]] == ["w", None, "w"]
    assert [row["cpu"] for row in rows[:3]] == [2, 3, None]
    assert rows[3:] == [
        {"pid": 100, "watch": "counter:rw-", "hits": 2, "missed": 1, "errno": 0},
        {"pid": 100, "watch": "w@table+16:2", "hits": 0, "missed": 0, "errno": 0},
    ]


def test_several_traces_and_others(tmp_path: Path) -> None:
    watch = _write(tmp_path / "t", _raw())
    again = _write(tmp_path / "t.2", _raw(watches=(TABLE,)))
    result = ftpatch("report", watch, again)
    assert result.code == 0 and "chunks without a valid last event: 1" in result.err
    graph = TraceFile([Thread(1).add(1, "main", 1)]).write(tmp_path / "graph")
    result = ftpatch("report", watch, graph)
    assert result.code == 2 and "variable accesses cannot be reported together" in result.err
    result = ftpatch("report", "--format", "ksym", graph)
    assert result.code == 2 and "calls cannot be reported as ksym" in result.err


@pytest.mark.parametrize(
    ("at", "value", "clause"),
    [
        (PROBES_AT, b"\5", "its header has no room for its watches"),
        (PROBES_AT, b"\0", "its header has no room for its watches"),
        (12, struct.pack("<I", 4096), "its header has no room for its watches"),
        (TABLE_AT + 24, b"\3", "watch 0 does not match its text"),
        (TABLE_AT + 28, b"\2", "watch 0 does not match its text"),
        (TABLE_AT + 16, b"\1", "watch 0 does not match its text"),
        (TABLE_AT + 36, b"\xff\xff", "watch 0 does not match its text"),
        (TABLE_AT + 40, b"!", "its watches are corrupt: invalid symbol"),
    ],
)
def test_headers_that_cannot_be_right(tmp_path: Path, at: int, value: bytes, clause: str) -> None:
    raw = _raw()
    raw[at : at + len(value)] = value
    path = _write(tmp_path / "t", raw)
    with pytest.raises(InputError, match=clause):
        _told(path) if at != PROBES_AT else read_watched(*open_trace(path))
    result = ftpatch("report", path)
    assert result.code == 2 and clause in result.err and result.err.count("\n") == 1


def _is_told(path: Path) -> None:
    for words in ([], ["--json"]):
        result = ftpatch("report", *words, path)
        assert result.code in (0, 2) and "internal" not in result.err
        assert "Traceback" not in result.err and "Warning" not in result.err


def test_cut_anywhere(tmp_path: Path) -> None:
    raw = bytes(_raw())
    for length in (*range(0, 8192, 911), *range(8190, len(raw), 29)):
        _is_told(_write(tmp_path / "t", raw[:length]))


@settings(max_examples=scaled(30, 7), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1023), st.integers(0, 7)), min_size=1, max_size=8))
def test_flipped_bits(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    raw = _raw()
    places = [*range(240), *range(TABLE_AT, TABLE_AT + 60), *range(8192, len(raw))]
    for place, bit in flips:
        raw[places[place % len(places)]] ^= 1 << bit
    _is_told(_write(tmp_path / "t", raw))


@pytest.mark.parametrize(
    ("number", "clause"),
    [(1, "denied"), (13, "denied"), (28, "a debugger"), (38, "emulator"), (5, "Input/output")],
)
def test_reasons(number: int, clause: str) -> None:
    note = refusal_note(Told(COUNTER, 0, 0, number))
    assert note.startswith(f"counter:rw-: not watched: errno {number}, ") and clause in note
    assert refusal_note(Told(COUNTER, 0, 0, 0)) == ""
    assert "unknown" in refusal_note(Told(COUNTER, 0, 0, (1 << 32) - 1))


def test_a_table_and_back() -> None:
    watches = (
        COUNTER,
        TABLE,
        Watch(symbol="w@V1", offset=0, address=0x10, length=4, type="rw-"),
        Watch(symbol="x", offset=0, address=8, length=8, type="r--"),
    )
    told = unpack_watches(pack_watches(watches, LITTLE), LITTLE)
    assert [one and one.watch for one in told] == list(watches)
    assert unpack_watches(pack_watches((), LITTLE), LITTLE) == [None] * SLOTS
    with pytest.raises(UsageError, match="too long; at most 984 bytes"):
        pack_watches([Watch(symbol="a" * 990, offset=0, address=8, length=4, type="rw-")], LITTLE)
    with pytest.raises(UsageError, match="truncated"):
        unpack_watches(bytes(TABLE_SIZE - 1), LITTLE)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("8907", WRITE),  # mov %eax,(%rdi)
        ("8b07", READ),  # mov (%rdi),%eax
        ("3907", READ),  # cmp %eax,(%rdi)
        ("8507", READ),  # test %eax,(%rdi)
        ("ff07", READ | WRITE),  # incl (%rdi)
        ("0307", READ),  # add (%rdi),%eax
        ("f00fc107", READ | WRITE),  # lock xadd %eax,(%rdi)
        ("8707", READ | WRITE),  # xchg %eax,(%rdi)
        ("f00fb10f", READ | WRITE),  # lock cmpxchg %ecx,(%rdi)
        ("0f1107", WRITE),  # movups %xmm0,(%rdi)
        ("0f1007", READ),  # movups (%rdi),%xmm0
        ("660fd607", WRITE),  # movq %xmm0,(%rdi)
        ("f20f1107", WRITE),  # movsd %xmm0,(%rdi)
        ("660f2e07", READ),  # ucomisd (%rdi),%xmm0
        ("c5fe7f07", WRITE),  # vmovdqu %ymm0,(%rdi)
        ("aa", WRITE),  # stosb
        ("a4", -1),  # movsb
        ("0f9407", WRITE),  # sete (%rdi)
        ("0fab07", READ | WRITE),  # bts %eax,(%rdi)
        ("0fa307", READ),  # bt %eax,(%rdi)
        ("ff17", READ),  # call *(%rdi)
        ("dd1f", WRITE),  # fstpl (%rdi)
        ("dd07", READ),  # fldl (%rdi)
        ("0fc307", WRITE),  # movnti %eax,(%rdi)
        ("488d07", 0),  # lea (%rdi),%rax
        ("0f1f00", 0),  # nopl (%rax)
        ("89c8", 0),  # mov %ecx,%eax
    ],
)
def test_what_instructions_do(code: str, kind: int) -> None:
    raw = bytes.fromhex(code)
    (one,) = memory_accesses("x86_64", raw, 0x1000)
    assert (one.kind, one.start, one.end) == (kind, 0x1000, 0x1000 + len(raw))
    assert list(memory_accesses("arm64", raw, 0x1000)) == []


def test_what_repeats_stands_where_it_is() -> None:
    (one,) = memory_accesses("x86_64", bytes.fromhex("f3aa"), 0x1000)
    assert one.repeats and one.kind == WRITE
    (one,) = memory_accesses("x86_64", bytes.fromhex("f30f1007"), 0x1000)  # movss (%rdi),%xmm0
    assert not one.repeats and one.kind == READ
