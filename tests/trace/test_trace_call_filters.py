# SPDX-License-Identifier: MIT
"""Calls that filters select, against uftrace's own filters and a naive reading."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftpatch.trace import batches as batching
from tests.support.command import ftpatch
from tests.support.sampling import scaled
from tests.support.trace_naive import Row, read
from tests.support.trace_writer import BASE, ENTRY, EXIT, Thread, TraceFile, program, site
from tests.trace.test_trace_reading import ANY, FUNCS, well_formed

NAMES = ("main", "parse", "read_line", "walk")
assert [site(name) for name in NAMES] == FUNCS
BATCHES = [64, 128, 1 << 18]
Kept = dict[int, list[Row]]


def _ended(events: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same with an end for each call."""
    stack: list[int] = []
    for kind, func in events:
        stack = [*stack, func] if kind == ENTRY else stack[:-1]
    return events + [(EXIT, func) for func in reversed(stack)]


@st.composite
def traces(draw: st.DrawFn, *, damaged: bool = True) -> TraceFile:
    """Threads of which no two events have one time."""
    number = draw(st.integers(1, 3))
    threads = []
    for index in range(number):
        kinds = [well_formed(), st.lists(ANY, max_size=40)] if damaged else [well_formed()]
        time, thread = index, Thread(100 + index, per=draw(st.integers(1, 30)))
        events = draw(draw(st.sampled_from(kinds)))
        for kind, func in events if damaged else _ended(events):
            time += number * draw(st.integers(1, 9))
            thread.add(kind, func, time)
        threads.append(thread)
    return TraceFile(threads, chunk_size=draw(st.sampled_from([64, 296, 4096])))


@dataclass(frozen=True)
class Asked:
    """The options, and what they say."""

    only: frozenset[int] = frozenset()
    on: frozenset[int] = frozenset()
    off: frozenset[int] = frozenset()
    least: int = 0
    depth: int = 1 << 30
    calls: int = 1 << 30

    @property
    def words(self) -> list[str]:
        name = dict(zip(FUNCS, NAMES, strict=True))
        out = [word for func in self.only for word in ("-F", name[func])]
        out += [word for func in self.on for word in ("--trigger", f"{name[func]}@on")]
        out += [word for func in self.off for word in ("--trigger", f"{name[func]}@off")]
        out += ["--time-filter", f"{self.least}ns"] if self.least else []
        out += ["-D", str(self.depth)] if self.depth < 1 << 30 else []
        return out + (["--max-calls", str(self.calls)] if self.calls < 1 << 30 else [])


SOME = st.frozensets(st.sampled_from(FUNCS), max_size=2)


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    """Any of them together; nothing is switched on and off at once."""
    on = draw(SOME)
    return Asked(
        only=draw(SOME),
        on=on,
        off=draw(SOME) - on,
        least=draw(st.sampled_from([0, 0, 5, 20, 80])),
        depth=draw(st.sampled_from([1 << 30, 1, 2, 3])),
        calls=draw(st.sampled_from([1 << 30, 1, 4, 12])),
    )


@dataclass
class _Frame:
    func: int
    begin: int
    end: int | None = None
    around: _Frame | None = None
    shown: bool = True
    """A row without a frame of its own has one here that nothing is inside of."""
    real: bool = True


Told = list[tuple[Row, _Frame]]


def _framed(rows: Sequence[Row]) -> Told:
    """Each row with its frame."""
    out: Told = []
    stack: list[_Frame] = []
    for row in rows:
        around = stack[-1] if stack else None
        if row.event == "entry":
            stack.append(_Frame(row.func, row.time, around=around))
            out.append((row, stack[-1]))
        elif row.depth < len(stack):
            stack[-1].end = row.time
            out.append((row, stack.pop()))
        else:  # what is not open
            begin = row.time - (row.duration or 0)
            known = row.duration is not None
            frame = _Frame(row.func, begin, row.time if known else begin, around, real=False)
            out.append((row, frame))
    return out


def _nearest(frame: _Frame | None, funcs: frozenset[int]) -> int | None:
    """How many shown frames outwards the first of these functions is."""
    steps = 0
    while frame is not None:
        if frame.func in funcs:
            return steps
        steps += frame.shown
        frame = frame.around
    return None


def _naive(file: TraceFile, want: Asked) -> Kept:
    """Frame by frame."""
    told = {thread.tid: _framed(read(thread.events)) for thread in file.threads}
    frames = {id(frame): frame for rows in told.values() for _, frame in rows}.values()
    changes = sorted(
        (frame.begin, frame.func in want.on)
        for frame in frames
        if frame.real and frame.func in want.on | want.off
    )
    for frame in frames:
        at = frame.begin if frame.real else _time_of(told, frame)
        before = [on for time, on in changes if time <= at]
        is_on = before[-1] if before else not want.on
        spent = 1 << 30 if frame.end is None else frame.end - frame.begin
        inside = not want.only or _nearest(frame, want.only) is not None
        frame.shown = inside and is_on and (spent >= want.least)
    deep = {id(frame) for frame in frames if not _is_shallow(frame, want)}
    for frame in frames:
        frame.shown = frame.shown and id(frame) not in deep
    first = sorted(frame.begin for frame in frames if frame.shown and frame.real)[: want.calls]
    last = first[-1] if len(first) == want.calls else 1 << 60
    for frame in frames:
        at = frame.begin if frame.real else _time_of(told, frame)
        frame.shown = frame.shown and at <= last
    return {tid: kept for tid, rows in told.items() if (kept := _kept(rows))}


def _time_of(told: dict[int, Told], wanted: _Frame) -> int:
    return next(row.time for rows in told.values() for row, frame in rows if frame is wanted)


def _is_shallow(frame: _Frame, want: Asked) -> bool:
    level = 0
    at: _Frame | None = frame
    while at is not None and at.func not in want.only:
        at = at.around
        while at is not None and not at.shown:
            at = at.around
        level += at is not None
    return level < want.depth


def _kept(told: Told) -> list[Row]:
    """The rows of shown frames, by levels among them."""
    out, level = [], 0
    for row, frame in told:
        if not frame.shown:
            continue
        level -= frame.real and row.event != "entry"
        out.append(Row(row.event, row.func, row.time, level, row.duration))
        level += row.event == "entry"
    return out


def _ours(path: Path, words: Sequence[str]) -> Kept:
    result = ftpatch("report", "--json", path, *words)
    if "matches no function" in result.err:
        return {}
    assert result.code == 0, result
    out: Kept = {}
    for row in result.json:
        func = int(row["address"], 16) - BASE + 5
        values = (row["event"], func, row["time"], row["depth"], row.get("duration"))
        out.setdefault(row["tid"], []).append(Row(*values))
    return out


def _write(file: TraceFile, folder: Path) -> Path:
    file.header["path"] = bytes(program(folder / "prog"))
    return file.write(folder / "trace")


@settings(max_examples=scaled(300, 30), deadline=None)
@given(traces(), asked(), st.sampled_from(BATCHES))
def test_what_a_naive_reading_selects(
    tmp_path: Path, file: TraceFile, want: Asked, limit: int
) -> None:
    occurring = {func for thread in file.threads for kind, func, *_ in thread.events if kind != 6}
    if not want.only | want.on | want.off <= occurring:
        return
    path = _write(file, tmp_path)
    with mock.patch.object(batching, "BATCH_WORDS", limit):
        assert _ours(path, want.words) == _naive(file, want)


def _uftrace(path: Path, *words: str) -> dict[int, list[tuple[str, str, int]]]:
    """By tid: begin or end, function, and time, of the calls that uftrace's filters select."""
    folder = path.with_name("folder")
    shutil.rmtree(folder, ignore_errors=True)
    assert ftpatch("report", "--format", "uftrace", "-o", folder, path).code == 0
    done = subprocess.run(
        ["uftrace", "dump", "--chrome", "--no-pager", "-d", folder, "--match=glob", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    out: dict[int, list[tuple[str, str, int]]] = {}
    for line in done.stdout.splitlines():
        if line.startswith('{"ts"'):  # with no event at all, the whole is no JSON
            event = json.loads(line.rstrip(","))
            if event["ph"] not in "BE":
                continue
            time = round(event["ts"] * 1000)
            out.setdefault(event.get("tid", event["pid"]), []).append(
                (event["ph"], event["name"], time)
            )
    return out


def _chrome(kept: Kept) -> dict[int, list[tuple[str, str, int]]]:
    names = dict(zip(FUNCS, NAMES, strict=True))
    return {
        tid: [("B" if row.event == "entry" else "E", names[row.func], row.time) for row in rows]
        for tid, rows in kept.items()
    }


@pytest.mark.skipif(shutil.which("uftrace") is None, reason="uftrace is not installed")
@settings(max_examples=scaled(100, 12), deadline=None)
@given(traces(damaged=False), asked(), st.booleans())
def test_what_uftrace_selects(tmp_path: Path, file: TraceFile, want: Asked, timed: bool) -> None:
    """uftrace reads folders that have calls, and does not end those that have no end."""
    occurring = {func for thread in file.threads for _, func, *_ in thread.events}
    if not occurring or not want.only <= occurring:
        return
    want = Asked(only=want.only, depth=want.depth, least=want.least if timed else 0)
    path = _write(file, tmp_path)
    words = [word for func in want.only for word in ("-F", NAMES[FUNCS.index(func)])]
    words += ["-D", str(want.depth)] if want.depth < 1 << 30 else []
    words += ["-t", f"{want.least}ns"] if want.least else []
    assert _chrome(_ours(path, want.words)) == _uftrace(path, *words)


def _calls(path: Path, *words: str) -> list[str]:
    """The names of the calls that begin."""
    rows = ftpatch("report", "--json", path, *words).json
    return [row["function"] for row in rows if row["event"] == "entry"]


def _one(folder: Path) -> Path:
    thread = Thread(7)
    spans = [("main", 0, 900), ("parse", 10, 200), ("read_line", 20, 50), ("alloc", 30, 35)]
    spans += [("hash", 60, 160), ("walk", 300, 700), ("parse", 400, 600), ("fail", 500, 510)]
    events = [(begin, 1, name) for name, begin, _ in spans] + [(e, 2, n) for n, _, e in spans]
    for time, kind, name in sorted(events):
        thread.add(kind, name, time)
    return _write(TraceFile([thread]), folder)


@pytest.mark.skipif(shutil.which("uftrace") is None, reason="uftrace is not installed")
@pytest.mark.parametrize("trigger", ["parse@on", "walk@on", "parse@off", "hash@off", "hash@on"])
def test_one_trigger_is_uftraces(tmp_path: Path, trigger: str) -> None:
    path = _one(tmp_path)
    name, _, state = trigger.partition("@")
    words = ["--disable"] if state == "on" else []
    theirs = _uftrace(path, *words, "-T", f"{name}@trace_{state}")
    begun = [name for rows in theirs.values() for kind, name, _ in rows if kind == "B"]
    assert begun == _calls(path, "--trigger", trigger) != _calls(path)


def test_triggers_are_of_all_threads(tmp_path: Path) -> None:
    """From one thread's call until another's."""
    first = Thread(1).add(1, "main", 1).add(1, "parse", 20).add(2, "parse", 30).add(2, "main", 90)
    second = Thread(2).add(1, "walk", 10).add(1, "hash", 25).add(2, "hash", 60)
    second.add(1, "fail", 61).add(2, "fail", 62).add(1, "alloc", 70).add(2, "alloc", 80)
    path = _write(TraceFile([first, second]), tmp_path)
    words = ("--trigger", "parse@on", "--trigger", "fai*@off")
    assert _calls(path, *words) == ["parse", "hash"]
    ends = [row for row in ftpatch("report", "--json", path, *words).json if row["event"] == "exit"]
    assert [(row["function"], row["duration"]) for row in ends] == [("parse", 10), ("hash", 35)]


FORMATS = "function_graph function profile histogram folded flamegraph chrome json"


@pytest.mark.parametrize("form", FORMATS.split())
def test_every_format_is_that_of_a_recording_without_the_others(tmp_path: Path, form: str) -> None:
    whole, part = _one(tmp_path), tmp_path / "part"
    thread = Thread(7).add(1, "walk", 300).add(1, "parse", 400).add(2, "parse", 600)
    header: dict[str, int | bytes] = {"path": bytes(tmp_path / "prog")}
    TraceFile([thread.add(2, "walk", 700)], header=header).write(part)
    made = []
    for path, words in ((whole, ("-F", "walk", "-D", "2")), (part, ())):
        out = path.with_suffix(f".{form}")
        assert ftpatch("report", path, "--format", form, *words, "-o", out).code == 0
        made.append(out.read_bytes())
    assert made[0] == made[1] and b"walk" in made[0]


def test_packets_are_only_of_these(tmp_path: Path) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    out, packets = tmp_path / "out", Trace()
    words = ("-F", "walk", "-D", "2", "--format", "perfetto", "-o", out)
    assert ftpatch("report", _one(tmp_path), *words).code == 0
    packets.ParseFromString(out.read_bytes())
    times = [packet.timestamp for packet in packets.packet if packet.HasField("track_event")]
    assert times == [300, 400, 600, 700]


@pytest.mark.skipif(shutil.which("trace-cmd") is None, reason="trace-cmd is not installed")
def test_events_of_trace_cmd_are_only_these(tmp_path: Path) -> None:
    out = tmp_path / "out.dat"
    words = ("-F", "walk", "-D", "2", "--format", "trace-dat", "-o", out)
    assert ftpatch("report", _one(tmp_path), *words).code == 0
    show = ["trace-cmd", "report", "-i", str(out), "-R"]
    done = subprocess.run(show, capture_output=True, text=True, check=True)
    assert len(re.findall(r"funcgraph_(?:entry|exit):", done.stdout)) == 4


@pytest.mark.skipif(shutil.which("go") is None, reason="golang-go is not installed")
def test_stacks_of_pprof_are_only_these(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("-F", "walk", "-D", "2", "--format", "pprof", "-o", out)
    assert ftpatch("report", _one(tmp_path), *words).code == 0
    top = ["go", "tool", "pprof", "-top", "-sample_index=calls", str(out)]
    done = subprocess.run(top, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines() if line.endswith(("walk", "parse"))]
    assert "accounting for 2, 100% of 2 total" in done.stdout and len(rows) == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--time-filter", "10"), "--time-filter '10' is not a time with a unit; use ns, us, ms"),
        (("-t", "-1us"), "is not a time with a unit"),
        (("--trigger", "parse"), "--trigger 'parse' is not GLOB@on or GLOB@off; as in"),
        (("--trigger", "@on"), "is not GLOB@on or GLOB@off"),
        (("-F", "prase"), "filter 'prase' matches no function in the trace; did you mean parse?"),
        (("--trigger", "prase@off"), "filter 'prase' matches no function"),
    ],
)
def test_what_is_wrong_is_said(words: Sequence[str], reason: str, tmp_path: Path) -> None:
    result = ftpatch("report", _one(tmp_path), *words)
    assert result.code == 2 and reason in result.err, result.err


def test_what_has_no_calls_that_end(tmp_path: Path) -> None:
    points = TraceFile([Thread(1).add(ENTRY, "main", 1)], header={"tracer": 1})
    path = _write(points, tmp_path)
    for option in (("-F", "main"), ("-t", "1us")):
        result = ftpatch("report", path, *option)
        assert result.code == 2 and "does not record returns, and -" in result.err, result.err
    assert _calls(path, "--max-calls", "1") == ["main"]
    sums = TraceFile([], profiles=[[(site("main"), 1, 10, 10)]])
    result = ftpatch("report", _write(sums, tmp_path), "--max-calls", "3")
    assert result.code == 2 and "selects single calls, and a profile has none" in result.err


def test_long_calls_wait_for_their_end(tmp_path: Path) -> None:
    """A call that ends many batches later, beside threads that go on; one that never ends."""
    waiting = Thread(1, per=1).add(1, "main", 1).add(1, "parse", 2)
    busy = Thread(2, per=4)
    for number in range(200):
        busy.add(1, "walk", 10 + number * 10).add(2, "walk", 13 + number * 10)
    waiting.add(2, "parse", 3000)
    path = _write(TraceFile([waiting, busy], chunk_size=64), tmp_path)
    with mock.patch.object(batching, "BATCH_WORDS", 64):
        for least, calls in (("2us", ["main", "parse"]), ("2999ns", ["main"]), ("1s", ["main"])):
            assert _calls(path, "-t", least) == calls
    walks = ["walk"] * 200
    assert _calls(path, "-t", "3ns") == ["main", "parse", *walks]
    assert _calls(path, "-t", "4ns") == ["main", "parse"]
