# SPDX-License-Identifier: MIT
"""What people read of a trace, at 80 columns, and what other programs read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_golden import _same
from tests.support.command import ftpatch
from tests.support.trace_writer import (
    BASE,
    ENTRY,
    ENTRY_ARGS,
    ENTRY_FROM,
    EXIT,
    EXIT_VALUE,
    LEFT,
    Thread,
    TraceFile,
    program,
    site,
)

ERROR = (1 << 64) - 22
TIMES = [9_999, 10_001, 100_001, 1_000_001, 10_000_001, 100_000_001, 1_000_000_001]
"""Around the marks, in nanoseconds."""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in the output are names without a folder."""
    monkeypatch.chdir(tmp_path)


def _graph(**header: int | bytes) -> Path:
    """Two threads; leaves, levels, marks, a frame that is left and comes back, one still open."""
    main = Thread(4711).add(ENTRY, "main", 0).add(ENTRY, "parse", 100)
    time = 200
    for spent in TIMES:
        main.add(ENTRY, "read_line", time).add(EXIT, "read_line", time + spent)
        time += spent + 10
    main.add(EXIT, "parse", time).add(ENTRY, "walk", time + 100).add(ENTRY, "alloc", time + 200)
    main.add(ENTRY, "fail", time + 300).add(LEFT, 2, time + 500).add(EXIT, "walk", time + 900)
    main.add(EXIT, "fail", time + 2000).add(EXIT, "print_all", time + 2100)
    other = Thread(4712).add(ENTRY, "walk", 5_000).add(ENTRY, "hash", 6_000)
    other.add(EXIT, "hash", 7_500)
    header["path"] = bytes(program(Path("prog")))
    return TraceFile([main, other], header=header).write(Path("prog.trace"))


def _values() -> Path:
    thread = Thread(9).add(ENTRY_ARGS, "main", 0, 2, 0x7FFC_0000_1000, 0, 0, 0, 0)
    thread.add(ENTRY_ARGS, "hash", 500, 1, 2, 3, 4, 5, (1 << 64) - 1)
    thread.add(EXIT_VALUE, "hash", 900, 0).add(ENTRY_ARGS, "fail", 1000, *[0] * 6)
    thread.add(EXIT_VALUE, "fail", 1100, ERROR).add(EXIT_VALUE, "main", 2000, 0x1234)
    header: dict[str, int | bytes] = {"path": bytes(program(Path("prog"))), "flags": 3}
    return TraceFile([thread], header=header).write(Path("values.trace"))


def _function() -> Path:
    thread = Thread(77)
    for number, (name, caller) in enumerate([("main", 1 << 40), ("walk", BASE + 0x12)]):
        thread.add(ENTRY_FROM, name, 1_234_567_890 * number, caller)
    header: dict[str, int | bytes] = {"tracer": 1, "path": bytes(program(Path("prog")))}
    return TraceFile([thread], header=header).write(Path("function.trace"))


def _profile() -> Path:
    entries = [(site("main") + 1, 1, 9000, 500), (0, 0, 0, 0), (site("hash") + 1, 3, 8500, 8500)]
    header: dict[str, int | bytes] = {"path": bytes(program(Path("prog")))}
    file = TraceFile(profiles=[entries, entries[2:]], header=header)
    return file.write(Path("profile.trace"))


def test_text() -> None:
    trace = _graph(flags=4, lost0=3, lost1=1, size=1 << 20, taken=1 << 19)
    _same("trace-graph", ftpatch("report", trace))
    _same("trace-profile", ftpatch("report", "--format", "profile", trace))
    _same("trace-folded", ftpatch("report", "--format", "folded", trace))
    _same("trace-function", ftpatch("report", _function()))
    _same("trace-values", ftpatch("report", _values()))
    _same("trace-values-json", ftpatch("report", "--json", _values()))
    _same("trace-function-profile", ftpatch("report", _profile()))
    narrow = ftpatch("report", "-D", "2", "-f", "!read_*", "--tid", "4711", trace)
    _same("trace-narrow", narrow, ftpatch("report", trace, "--time", "0.00000999-0.01"))


def test_help() -> None:
    result = ftpatch("report", "--help")
    assert result.code == 0 and max(map(len, result.out.splitlines())) <= 80
    _same("help-report", result)


def test_chrome() -> None:
    result = ftpatch("report", "--format", "chrome", _graph())
    events = json.loads(result.out)["traceEvents"]
    stacks: dict[int, list[str]] = {}
    for event in events:
        stack = stacks.setdefault(event["tid"], [])
        if event["ph"] == "B":
            stack.append(event["name"])
        elif event["ph"] == "E":
            assert stack.pop() == event["name"]
    assert stacks == {0: [], 4711: ["main"], 4712: ["walk"]}
    assert [e["ts"] for e in events if e["name"] == "hash"] == [6.0, 7.5]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"prog"}
    args = json.loads(ftpatch("report", "--format", "chrome", _values()).out)["traceEvents"]
    assert [e["args"]["value"] for e in args if e["ph"] == "E"] == ["0x0", hex(ERROR), "0x1234"]


def test_json_of_a_profile() -> None:
    rows = ftpatch("report", "--json", _profile()).json
    assert rows[0] == {
        "function": "hash",
        "address": hex(BASE + 0xA0),
        "hits": 6,
        "total": 17000,
        "avg": 2833,
        "self": 17000,
    }
    rows = ftpatch("report", "--json", _profile(), "-f", "ma*").json
    assert [row["function"] for row in rows] == ["main"]


def test_formats_that_need_more_than_there_is_say_so() -> None:
    for form in ("function_graph", "folded", "flamegraph", "html"):
        result = ftpatch("report", "--format", form, _function())
        assert result.code == 2 and f"{form} needs them" in result.err
    for form in ("function_graph", "folded", "flamegraph", "function", "chrome", "perfetto"):
        result = ftpatch("report", "--format", form, _profile())
        assert result.code == 2 and "a profile cannot be reported as" in result.err
    hits = ftpatch("report", "--format", "profile", _function()).out.splitlines()[2].split()
    assert hits == ["1", "-", "-", "-", "main"]
