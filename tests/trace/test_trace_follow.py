# SPDX-License-Identifier: MIT
"""Traces that are followed while they come into being: at the end, the finished report has been
printed, whatever was there at each look, and between two reads of one look."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.command import ftpatch
from tests.support.following import Pace, follow, in_between, reported, without_leaves
from tests.support.trace_growing import GrowingFile, Store, stores_of
from tests.support.trace_writer import (
    ENTRY,
    ENTRY_ARGS,
    ENTRY_FROM,
    EXIT,
    EXIT_VALUE,
    FUNCTION,
    LEFT,
    TIME,
    Thread,
    TraceFile,
)

FUNCS = [5, 37, 69, 101]
LOST_AT, FLAGS_AT, SIZE_AT = 120, 28, 32


@st.composite
def files(draw: st.DrawFn) -> TraceFile:
    """Threads whose events have times of their own, of all kinds and lengths."""
    count = draw(st.integers(1, 4))
    threads = [Thread(tid, per=draw(st.integers(1, 30))) for tid in range(100, 100 + count)]
    stacks: list[list[int]] = [[] for _ in threads]
    kinds = st.sampled_from([ENTRY, ENTRY_ARGS, EXIT, EXIT_VALUE, LEFT])
    drawn = draw(st.lists(st.tuples(st.integers(0, count - 1), kinds), max_size=80))
    for number, (which, kind) in enumerate(drawn):
        thread, stack, time = threads[which], stacks[which], 7 * number
        if kind in (ENTRY, ENTRY_ARGS):
            stack.append(draw(st.sampled_from(FUNCS)))
            words = [0, 1 << 63, number, 0, 0, 0] if kind == ENTRY_ARGS else []
            thread.add(kind, stack[-1], time, *words)
        elif stack and kind == LEFT:
            left = draw(st.integers(1, len(stack)))
            del stack[-left:]
            thread.add(LEFT, left, time)
        else:  # also of what is not open
            func = stack.pop() if stack else draw(st.sampled_from(FUNCS))
            thread.add(kind if kind != LEFT else EXIT, func, time, *[0] * (kind == EXIT_VALUE))
    return TraceFile(threads, chunk_size=draw(st.sampled_from([96, 296, 4096])))


def _in_order(raw: bytes) -> list[Store]:
    return sorted(stores_of(raw), key=lambda store: store.time)


def _begun(path: Path, raw: bytes, stores: Sequence[Store] | None = None) -> GrowingFile:
    return GrowingFile(path, raw, _in_order(raw) if stores is None else stores)


@pytest.mark.parametrize("name", ["json", "function", "function_graph"])
@given(files(), st.lists(st.integers(0, 9), max_size=20), st.randoms())
def test_whatever_is_there_at_each_look(
    tmp_path: Path, name: str, file: TraceFile, steps: list[int], drawn: random.Random
) -> None:
    path, raw = tmp_path / "x.trace", file.build()
    grown = _begun(path, raw)
    with in_between([grown], drawn, 0.3):
        done = follow(path, Pace([grown], steps), name)
    assert path.read_bytes() == raw
    expected = reported(path, "--format", name)
    if name == "function_graph":  # a call that is printed before it returns is no leaf
        assert without_leaves(done.lines) == without_leaves(expected)
    else:
        assert done.lines == expected
    assert not done.error


@given(files(), st.lists(st.integers(0, 9), max_size=20), st.randoms())
def test_threads_that_are_preempted(
    tmp_path: Path, file: TraceFile, steps: list[int], drawn: random.Random
) -> None:
    """One reads the clock, and stores its event when others have stored later ones."""
    path, raw = tmp_path / "x.trace", file.build()
    by_thread: dict[int, list[Store]] = {}
    for store in stores_of(raw):
        by_thread.setdefault(store.thread, []).append(store)
    stores = []
    while any(by_thread.values()):
        stores.append(by_thread[drawn.choice([one for one in by_thread if by_thread[one]])].pop(0))
    grown = _begun(path, raw, _taken_in_order(stores))
    with in_between([grown], drawn, 0.3):
        done = follow(path, Pace([grown], steps), "json")
    expected = reported(path, "--json")
    assert sorted(done.lines) == sorted(expected)
    for tid in range(100, 104):
        mine = f'"tid": {tid},'
        assert [x for x in done.lines if mine in x] == [x for x in expected if mine in x]


def _taken_in_order(stores: list[Store]) -> list[Store]:
    """What the header says is handed out only grows."""
    most, out = 0, []
    for one in stores:
        if one.at == 40:
            most = max(most, *struct.unpack("<Q", one.raw))
            one = Store(one.time, one.thread, one.at, struct.pack("<Q", most))
        out.append(one)
    return out


WINDOWS: list[tuple[list[str], dict[str, Any]]] = [
    (["--tid", "100"], {"tids": frozenset([100])}),
    (["--time", "0.0000001-0.0000003"], {"span": (100, 300)}),
    (["-D", "2"], {"depth": 2}),
    (["-t", "20ns"], {"least": 20}),
    (["-f", "0x401004", "-f", "0x401024"], {"globs": ("0x401004", "0x401024")}),
    (["-F", "0x401024"], {"only": ("0x401024",)}),
]


@pytest.mark.parametrize(("options", "window"), WINDOWS, ids=[one[0][0] for one in WINDOWS])
@given(files(), st.lists(st.integers(0, 9), max_size=20))
def test_filters(
    tmp_path: Path,
    options: list[str],
    window: dict[str, Any],
    file: TraceFile,
    steps: list[int],
) -> None:
    path, raw = tmp_path / "x.trace", file.build()
    path.write_bytes(raw)
    expected = ftpatch("report", path, "--json", *options)
    done = follow(path, Pace([_begun(path, raw)], steps), "json", **window)
    if options[0] == "--tid" and expected.code:
        assert f"ftpatch: {done.error}\n" == expected.err
    elif expected.code == 0:
        assert done.lines == expected.out.splitlines()
    else:  # a filter that matches nothing: whoever prints says so
        assert "matches no function" in expected.err


def test_a_finished_trace_is_printed(tmp_path: Path) -> None:
    """Leaves and all, as the report has them."""
    threads = [Thread(tid, per=9) for tid in (100, 101)]
    for number in range(4000):
        kind = ENTRY if number % 4 < 2 else EXIT
        threads[number % 2].add(kind, FUNCS[0], number * 3)
    path = TraceFile(threads, chunk_size=296).write(tmp_path / "x.trace")
    raw = path.read_bytes()
    grown = _begun(path, raw)
    grown.go_on()
    pace = Pace([grown])
    done = follow(path, pace)
    assert done.lines == reported(path) and len(done.lines) == 2004
    assert pace.looks == 0


def test_an_event_waits_for_others_that_may_precede_it_for_one_look(tmp_path: Path) -> None:
    first, second = Thread(100).add(ENTRY, 5, 10), Thread(101).add(ENTRY, 37, 20)
    first.add(ENTRY, 69, 30)
    path, raw = tmp_path / "x.trace", TraceFile([first, second]).build()
    stores = sorted(stores_of(raw), key=lambda one: (one.thread, one.time))
    begun = [one for one in stores if one.thread == 100]
    grown = _begun(path, raw, [*begun, *(one for one in stores if one.thread == 101)])
    pace = Pace([grown], [len(begun)])
    done = follow(path, pace, "json")
    assert [line.partition('"time": ')[2][:2] for line in done.lines] == ["10", "20", "30"]
    # Of the first thread all is there at the second look, but only its first event may be told.
    assert pace.told == [0, 1]


@pytest.mark.parametrize("words", [1, 2])
def test_half_an_event_is_none(tmp_path: Path, words: int) -> None:
    """Its first word comes last. A chunk that is copied to us in any other order than it was
    stored in has what was there once it is read again."""
    kind = {1: EXIT, 2: EXIT_VALUE}[words]
    thread = Thread(100).add(ENTRY, 5, 10).add(kind, 5, 20, *[77] * (words - 1))
    path, raw = tmp_path / "x.trace", TraceFile([thread]).build()
    stores = _in_order(raw)
    for count in range(len(stores)):
        pace = Pace([_begun(path, raw, stores)], [count, 0, 0, 0], over_after=3)
        whole = [one for one in stores[:count] if len(one.raw) == 8 and one.at > 4096 + 16]
        firsts = [one for one in whole if one.raw != struct.pack("<Q", 77)]
        assert len(follow(path, pace, "json").lines) == len(firsts)


def test_words_that_are_read_too_early_are_read_again(tmp_path: Path) -> None:
    """As if the second word had been copied before the first, and stored in between."""
    thread = Thread(100).add(ENTRY_FROM, 5, 10, 0x401030)
    path = tmp_path / "x.trace"
    raw = TraceFile([thread], header={"tracer": FUNCTION}).build()
    grown = _begun(path, raw)
    grown.go_on()
    place = raw.index(struct.pack("<Q", 0x401030))
    real = os.preadv
    early = [0]

    def read(fd: int, buffers: Sequence[Any], at: int) -> int:
        count = real(fd, buffers, at)
        if at <= place < at + count and count > 8 and not early[0]:
            early[0] += 1
            buffers[0][place - at : place - at + 8] = bytes(8)
        return count

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "preadv", read)
        done = follow(path, Pace([grown]), "json")
    assert early == [1]
    assert '"ip": "0x401030"' in done.lines[0]


def test_a_new_base_of_times(tmp_path: Path) -> None:
    thread = Thread(1).add(ENTRY, "main", 5).add(TIME, 0, 0, 1 << 40).add(EXIT, "main", 0)
    path, raw = tmp_path / "x.trace", TraceFile([thread]).build()
    for count in range(9):
        pace = Pace([_begun(path, raw, stores_of(raw))], [count, 1, 0, 1, 1])
        assert follow(path, pace, "json").lines == reported(path, "--json")


@pytest.mark.parametrize(("one", "other"), [(EXIT, EXIT_VALUE), (EXIT_VALUE, EXIT)])
def test_an_event_that_takes_anothers_place(tmp_path: Path, one: int, other: int) -> None:
    """A handler jumped out of the tracer after the first word was stored: both were there. What
    follows is read from the second one on."""
    words = {EXIT: [], EXIT_VALUE: [1 << 40]}
    before = Thread(100).add(ENTRY, 5, 10).add(one, 5, 20, *words[one])
    after = Thread(100).add(ENTRY, 5, 10).add(other, 5, 25, *words[other]).add(ENTRY, 37, 30)
    path, raw = tmp_path / "x.trace", TraceFile([before]).build()
    changed = TraceFile([after]).build()
    stores = [
        *_in_order(raw),
        *(Store(0, 0, at, changed[at : at + 8]) for at in (4144, 4136, 4152)),
    ]
    pace = Pace([_begun(path, raw, stores)], [len(stores) - 3, 0, 2, 0])
    done = follow(path, pace, "json")
    assert [line.partition('"time": ')[2][:2] for line in done.lines] == ["10", "20", "25", "30"]
    assert done.lines[2:][0].endswith("}") and done.lines[3] == reported(path, "--json")[-1]


@pytest.mark.parametrize("between", [4096, 2 * 4096])
def test_chunks_that_are_marked_between_two_reads(tmp_path: Path, between: int) -> None:
    """That of a thread's second one is seen only if that of the first one is."""
    thread = Thread(100, per=1).add(ENTRY, 5, 10).add(ENTRY, 37, 20)
    path, raw = tmp_path / "x.trace", TraceFile([thread]).build()
    stores = sorted(_in_order(raw), key=lambda store: store.at != 40)  # both handed out first
    grown, real, heads = _begun(path, raw, stores), os.pread, list[int]()
    pace = Pace([grown], [2, 0])

    def read(fd: int, size: int, at: int) -> bytes:
        found = real(fd, size, at)
        if pace.looks == 2 and at in (4096, 2 * 4096):
            heads.append(at)
            if at == between:
                grown.go_on()
        return found

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "pread", read)
        done = follow(path, pace, "json")
    assert {*heads} == {4096, 2 * 4096}
    assert done.lines == reported(path, "--json")


def test_an_event_of_a_handlers_begin_comes_in_the_end(tmp_path: Path) -> None:
    """A handler makes so many calls that it gets a chunk of its own; what it interrupted is stored
    behind it, in the chunk before."""
    thread = Thread(100, per=2).add(ENTRY, 5, 10).add(ENTRY, 37, 20).add(ENTRY, 69, 30)
    path, raw = tmp_path / "x.trace", TraceFile([thread]).build()
    stores = _in_order(raw)
    late = next(store for store in stores if store.at == 4096 + 40)
    stores.remove(late)
    pace = Pace([_begun(path, raw, [*stores, late])], [len(stores), 0, 0, 0, 0, 0])
    done = follow(path, pace, "json")
    assert [line.partition('"time": ')[2][:2] for line in done.lines] == ["10", "30", "20"]


def test_threads_of_one_number(tmp_path: Path) -> None:
    """The number of one that ended is another's later: what is open there is not of that one."""
    old = Thread(100).add(ENTRY, 5, 10).add(ENTRY, 37, 20)
    new = Thread(100).add(ENTRY, 69, 30).add(EXIT, 69, 40)
    path, raw = tmp_path / "x.trace", TraceFile([old, new]).build()
    pace = Pace([_begun(path, raw)], [5, 1, 3, 1])
    done = follow(path, pace, "json")
    assert done.lines == reported(path, "--json")
    assert '"depth": 0' in done.lines[2]


@pytest.mark.parametrize("name", ["function", "function_graph", "json"])
def test_more_files(tmp_path: Path, name: str) -> None:
    """A child's file comes: lines say from then on whose they are."""
    parent = TraceFile([Thread(100).add(ENTRY, 5, 10).add(ENTRY, 37, 500)], header={"pid": 100})
    child = TraceFile([Thread(101).add(ENTRY, 69, 300)], header={"pid": 101})
    paths = [tmp_path / "x", tmp_path / "x.101"]
    pairs = zip(paths, (parent, child), strict=True)
    first, second = (_begun(path, file.build()) for path, file in pairs)

    def then(look: int) -> None:
        if look == 3:
            pace.coming, pace.files = [paths[1]], [first, second]

    pace = Pace([first], [4, 0, 0], then=then)
    lines, expected = follow(paths[0], pace, name).lines, reported(*paths, "--format", name)
    if name == "json":
        assert lines == expected
        return
    told = [line for line in lines if not line.startswith("#")]
    assert len(told) == 3 and told[1:] == expected[-2:]
    column = {"function": "TGID", "function_graph": "PID/TID"}[name]
    assert [column in line for line in lines if "T" in line and line.startswith("# ")] == [
        False,
        True,
    ]


def test_what_is_lost_is_told_as_it_is_in_the_end(tmp_path: Path) -> None:
    path, raw = tmp_path / "x.trace", bytearray(TraceFile([Thread(1).add(ENTRY, 5, 10)]).build())
    raw[FLAGS_AT : FLAGS_AT + 4] = bytes(4)
    stores = [
        *_in_order(bytes(raw)),
        Store(99, 1, LOST_AT, struct.pack("<Q", 3)),
        Store(99, 1, FLAGS_AT, struct.pack("<I", 2)),
    ]
    done = follow(path, Pace([_begun(path, bytes(raw), stores)], [2, 2]))
    assert done.notes == ["3 events lost when the trace file was full (--size)"]


def _damage_chunk(raw: bytearray) -> None:
    raw[4096 + 296 : 4096 + 300] = b"JUNK"


def _damage_event(raw: bytearray) -> None:
    raw[4096 + 40] &= 0xF8


def _damage_count(raw: bytearray) -> None:
    raw[40:48] = bytes(8)


@pytest.mark.parametrize("damage", [_damage_chunk, _damage_event, _damage_count])
def test_damage(tmp_path: Path, damage: Callable[[bytearray], None]) -> None:
    """Is what the finished report says it is."""
    thread = Thread(100, per=3)
    for number in range(12):
        thread.add(ENTRY if number % 2 == 0 else EXIT, 5, 10 * number)
    raw = bytearray(TraceFile([thread], chunk_size=296).build())
    damage(raw)
    path = tmp_path / "x.trace"
    path.write_bytes(raw)
    stores = [
        Store(0, 100, 4096 + at, bytes(raw[4096 + at : 4104 + at])) for at in range(0, 1184, 8)
    ]
    taken = Store(0, 100, 40, bytes(raw[40:48]))
    done = follow(path, Pace([_begun(path, bytes(raw), [taken, *stores])], [1, 20, 20]), "json")
    report = ftpatch("report", path, "--json")
    assert done.lines == report.out.splitlines()
    assert [f"ftpatch: {note}" for note in done.notes] == report.err.splitlines()


def _at(look: int, act: Callable[[], object]) -> Callable[[int], None]:
    def then(now: int) -> None:
        if now == look:
            act()

    return then


def test_a_truncated_file(tmp_path: Path) -> None:
    thread = Thread(100).add(ENTRY, 5, 10).add(ENTRY, 37, 20)
    path, raw = tmp_path / "x.trace", TraceFile([thread]).build()
    grown = _begun(path, raw)
    pace = Pace([grown], [4, 0], then=_at(2, lambda: os.truncate(path, 100)))
    done = follow(path, pace, "json")
    assert done.error == (
        f"{path}: truncated while it was followed: 100 of 8192 bytes; nothing that follows is read"
    )
    assert len(done.lines) == 1


def test_a_file_that_is_truncated_above_what_it_has(tmp_path: Path) -> None:
    """The program goes on, and has nowhere to store to."""
    thread = Thread(100, per=1).add(ENTRY, 5, 10).add(ENTRY, 37, 20)
    path, raw = tmp_path / "x.trace", TraceFile([thread]).build()
    pace = Pace([_begun(path, raw)], [4, 0, 1, 0], then=_at(2, lambda: os.truncate(path, 8192)))
    done = follow(path, pace, "json")
    said = "truncated while it was followed: 8192 of 12288 bytes; nothing that follows is read"
    assert done.error == f"{path}: {said}" and len(done.lines) == 1


def test_a_file_that_is_overwritten(tmp_path: Path) -> None:
    path, raw = tmp_path / "x.trace", TraceFile([Thread(100).add(ENTRY, 5, 10)]).build()
    other = TraceFile([Thread(9).add(ENTRY, 5, 10)], header={"pid": 9}).build()
    pace = Pace([_begun(path, raw)], [4, 0], then=_at(2, lambda: path.write_bytes(other)))
    done = follow(path, pace, "json")
    assert done.error == f"{path}: overwritten while it was followed; follow it again"


def test_a_file_that_is_removed_or_renamed_is_followed(tmp_path: Path) -> None:
    thread = Thread(100).add(ENTRY, 5, 10).add(ENTRY, 37, 20).add(ENTRY, 69, 30)
    raw, path = TraceFile([thread]).build(), tmp_path / "x.trace"
    kept = TraceFile([thread]).write(tmp_path / "kept")
    pace = Pace([_begun(path, raw)], [4, 1, 0, 0], then=_at(2, path.unlink))
    assert follow(path, pace, "json").lines == reported(kept, "--json")
    assert pace.lost == ["x.trace"]
    moved = Pace([_begun(path, raw)], [4, 1, 0], then=_at(2, lambda: path.rename(tmp_path / "y")))
    assert follow(path, moved, "json").lines == reported(kept, "--json")
    assert moved.lost == []


def test_a_trace_is_not_read_twice(tmp_path: Path) -> None:
    """Each look reads what is new, and what tells that nothing is."""
    thread = Thread(100, per=1000)
    for number in range(50_000):
        thread.add(ENTRY if number % 2 == 0 else EXIT, 5, 10 * number)
    path, raw = tmp_path / "x.trace", TraceFile([thread], chunk_size=16384).build()
    sizes: list[int] = []
    preadv, pread = os.preadv, os.pread

    def vector(fd: int, buffers: Sequence[Any], at: int) -> int:
        sizes.append(sum(map(len, buffers)))
        return preadv(fd, buffers, at)

    def plain(fd: int, size: int, at: int) -> bytes:
        found = pread(fd, size, at)
        sizes.append(len(found))
        return found

    looks = 60
    pace = Pace([_begun(path, raw)], [1000] * looks)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "preadv", vector)
        patched.setattr(os, "pread", plain)
        assert len(follow(path, pace, "json").lines) == 50_000
    # Twice for the events, twice for the marks of chunks; the header, and a chunk's rest.
    assert sum(sizes) < 4 * len(raw) + pace.looks * (3 * 4096 + 16384)
