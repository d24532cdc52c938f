# SPDX-License-Identifier: MIT
"""Two runs beside each other, against sums that a naive reading makes of both."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.cli.test_golden import _same
from tests.support.command import ftpatch
from tests.support.probe_traces import BIAS, HIT, RETURNED, ProbeFile, Told, ip_of
from tests.support.sampling import scaled
from tests.support.trace_naive import Sums, sums
from tests.support.trace_writer import (
    BASE,
    ENTRY,
    EXIT,
    FUNCTIONS,
    Thread,
    TraceFile,
    program,
    site,
)
from tests.trace.test_trace_reading import files

LINE = re.compile(r"([\d.]+) us +([\d.]+) us +(\d+) +(\w+)$", re.MULTILINE)
OTHERS = tuple(reversed(FUNCTIONS))
"""The functions in another order: as if the program had been built again."""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in the output are names without a folder."""
    monkeypatch.chdir(tmp_path)


def _naive(file: TraceFile, names: tuple[str, ...]) -> dict[str, Sums]:
    every: dict[str, Sums] = {}
    for thread in file.threads:
        if thread.events:
            for func, one in sums(thread.events)[0].items():
                name = names[(func - 5) // 0x20]
                mine = every.setdefault(name, Sums())
                mine.hits, mine.total = mine.hits + one.hits, mine.total + one.total
                mine.own += one.own
    return {name: one for name, one in every.items() if one.hits or one.total}


def _told(one: Sums | None) -> dict[str, int] | None:
    return {"hits": one.hits, "total": one.total, "self": one.own} if one else None


@settings(max_examples=scaled(60, 15), deadline=None)
@given(files(), files())
def test_it_is_the_difference_of_two_naive_readings(before: TraceFile, after: TraceFile) -> None:
    for file, name, names in ((before, "old", FUNCTIONS), (after, "new", OTHERS)):
        file.header["path"] = bytes(program(Path(name), names))
        file.write(Path(f"{name}.trace"))
    result = ftpatch("report", "--diff", "old.trace", "new.trace", "--json")
    assert result.code == 0, result.err
    old, new = _naive(before, FUNCTIONS), _naive(after, OTHERS)
    rows = {row["function"]: row for row in result.json}
    assert rows.keys() == old.keys() | new.keys() and len(rows) == len(result.json)
    for name, row in rows.items():
        assert row["before"] == _told(old.get(name)) and row["after"] == _told(new.get(name))
        one, other = old.get(name, Sums()), new.get(name, Sums())
        assert row["difference"] == {
            "hits": other.hits - one.hits,
            "total": other.total - one.total,
            "self": other.own - one.own,
        }
        expected = round(other.total / one.total, 6) if one.total else None
        assert row["ratio"]["total"] == expected
    changes = [row["difference"]["self"] for row in result.json]
    assert changes == sorted(changes, reverse=True)


def _run(name: str, spent: int, *, calls: tuple[str, ...], names: tuple[str, ...]) -> Path:
    main, time = Thread(1).add(ENTRY, names.index("main") * 0x20 + 5, 0), 100
    for call in calls:
        func = names.index(call) * 0x20 + 5
        main.add(ENTRY, func, time).add(EXIT, func, time + spent)
        time += spent + 50
    main.add(EXIT, names.index("main") * 0x20 + 5, time)
    header: dict[str, int | bytes] = {"path": bytes(program(Path(name), names))}
    return TraceFile([main], header=header | {"lost0": spent % 1000}).write(Path(f"{name}.trace"))


def _two() -> tuple[Path, Path]:
    old = _run("old", 1000, calls=("walk", "walk", "hash"), names=FUNCTIONS)
    return old, _run("new", 2500, calls=("walk", "walk", "walk", "alloc"), names=OTHERS)


def test_text() -> None:
    old, new = _two()
    _same(
        "trace-diff",
        ftpatch("report", "--diff", old, new),
        ftpatch("report", "--diff", new, old, "--json", "-f", "!walk"),
        ftpatch("report", "--diff", old, new, "--time", "-0.0000025", "-f", "hash", "-f", "alloc"),
    )


def test_profiles_and_entries_are_compared_too() -> None:
    old, _ = _two()
    header: dict[str, int | bytes] = {"path": bytes(Path("old"))}
    entries = [(site("main") + 1, 1, 9000, 500), (site("hash") + 1, 3, 8500, 8500)]
    profile = TraceFile(profiles=[entries], header=header).write(Path("profile.trace"))
    rows = {
        row["function"]: row for row in ftpatch("report", "--diff", old, profile, "--json").json
    }
    assert rows["hash"]["before"] == {"hits": 1, "total": 1000, "self": 1000}
    assert rows["hash"]["after"] == {"hits": 3, "total": 8500, "self": 8500}
    assert rows["walk"]["after"] is None
    thread = Thread(1).add(ENTRY, "main", 0).add(ENTRY, "walk", 5)
    entered = TraceFile([thread], header=header | {"tracer": 1}).write(Path("entries.trace"))
    out = ftpatch("report", "--diff", old, entered).out.splitlines()
    assert [line.split() for line in out if not line.startswith("#")] == [
        ["1", "1", "+0", "1.00", "main"],
        ["1", "-", "-1", "gone", "hash"],
        ["2", "1", "-1", "0.50", "walk"],
    ]
    (row,) = ftpatch("report", "--diff", old, entered, "--json", "-f", "walk").json
    assert row["difference"] == {"hits": -1} and row["ratio"] == {"hits": 0.5}


def test_a_program_built_again_over_the_old_one() -> None:
    old, new = _two()
    shutil.copy("old", "kept")
    shutil.copy("new", "old")
    raw = bytearray(old.read_bytes())
    raw[184:216] = b"x" * 32
    old.write_bytes(raw)
    refused = ftpatch("report", "--diff", old, new)
    assert refused.code == 2 and "old.trace: not a trace of old, or" in refused.err
    raw[184:216] = bytes(32)
    old.write_bytes(raw)
    told = ftpatch("report", "--diff", old, new, "--diff-image", "kept", "--json")
    assert {row["function"] for row in told.json} == {"main", "walk", "hash", "alloc"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--format", "chrome"], "--format chrome and --diff conflict"),
        (["--tid", "1"], "--tid and --diff conflict"),
        (["--source"], "--source and --diff conflict"),
        (["-f", "nothing"], "filter 'nothing' matches no function in the trace"),
        (["-o", "old.trace", "--force"], "the output is one of the input traces"),
        (["-o", "missing/x"], "cannot write"),
    ],
)
def test_what_cannot_be_compared_is_one_line(words: list[str], reason: str) -> None:
    old, new = _two()
    before = old.read_bytes()
    result = ftpatch("report", "--diff", old, new, *words)
    assert result.code == 2 and reason in result.err and not result.out
    assert [line for line in result.err.splitlines() if "ftpatch: " not in line] == []
    assert old.read_bytes() == before


def test_other_events_are_refused() -> None:
    old, new = _two()
    probes = ProbeFile([Told("p:one main", BASE)], [Thread(1).add(HIT, 0, 5)]).write(Path("p"))
    refused = ftpatch("report", "--diff", old, probes)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "ftpatch: p: there are no r probes, and --diff needs calls\n"
    header: dict[str, int | bytes] = {"hz": 0, "path": b"new"}
    ticks = TraceFile([Thread(1).add(ENTRY, "main", 0)], header=header).write(Path("ticks"))
    refused = ftpatch("report", "--diff", ticks, new)
    assert refused.code == 2 and "ticks: clock rate unknown, unlike the other run's" in refused.err
    alone = ftpatch("report", new, "--diff-image", "new")
    assert alone.code == 2 and "--diff-image needs --diff" in alone.err


@pytest.mark.skipif(shutil.which("uftrace") is None, reason="needs uftrace")
def test_uftrace_agrees() -> None:
    """The sums of both runs are those that uftrace reports of its own format."""
    old, new = _two()
    rows = {row["function"]: row for row in ftpatch("report", "--diff", old, new, "--json").json}
    for trace, side in ((old, "before"), (new, "after")):
        folder = f"{trace.stem}.uftrace"
        assert ftpatch("report", trace, "--format", "uftrace", "-o", folder).code == 0
        words = ["uftrace", "report", "--no-pager", "-d", folder]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        told = {}
        for total, own, hits, name in LINE.findall(done.stdout):
            sums = {"total": round(float(total) * 1000), "self": round(float(own) * 1000)}
            told[name] = {"hits": int(hits)} | sums
        assert told == {name: row[side] for name, row in rows.items() if row[side]}


def test_calls_that_r_probes_saw() -> None:
    """Of a tracer's run the same calls: nothing differs."""
    old, _ = _two()
    header: dict[str, int | bytes] = {"path": bytes(Path("old"))}
    thread = Thread(1)
    for time in (1100, 2150):
        thread.add(RETURNED, 0, time, BIAS, 1000)
    probe = Told("r:walked walk", ip_of("walk"))
    probes = ProbeFile([probe], [thread], header=header).write(Path("probes.trace"))
    (row,) = ftpatch("report", "--diff", old, probes, "--json", "-f", "walk*").json
    assert row["before"] == row["after"] == {"hits": 2, "total": 2000, "self": 2000}
    assert row["difference"] == {"hits": 0, "total": 0, "self": 0}


def test_columns_of_long_times_do_not_touch() -> None:
    """A function that is a million times slower."""
    old = _run("old", 200, calls=("hash",), names=FUNCTIONS)
    new = _run("new", 294_249_222, calls=("hash",), names=FUNCTIONS)
    out = ftpatch("report", "--diff", old, new, "-f", "hash").out.splitlines()
    rows = [line.split() for line in out if line.endswith(" hash")]
    times = ["0.200", "us", "294249.2", "us", "+294249.0", "us"]
    assert rows == [["1", "1", *times, ">9999", "hash"]] * 2
