# SPDX-License-Identifier: MIT
"""``ftpatch.Trace``: columns of what was written by hand, and of what real programs recorded."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import ftpatch
from tests.support.command import ROOT
from tests.support.command import ftpatch as command
from tests.support.trace_writer import (
    BASE,
    ENTRY,
    EXIT,
    GRAPH,
    LEFT,
    PROFILE,
    Call,
    Thread,
    TraceFile,
    program,
    site,
)

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def _file(folder: Path, threads: list[Thread], **more: int | bytes) -> Path:
    header: dict[str, int | bytes] = {"path": bytes(program(folder / "prog")), "tracer": GRAPH}
    return TraceFile(threads, header=header | {"hz": 10**9} | more).write(folder / "trace")


def test_every_call_is_a_row(tmp_path: Path) -> None:
    inner = Call(site("parse"), 2, 6, [Call(site("alloc"), 3, 4)])
    first = Thread(7, list(Call(site("main"), 1, 9, [inner]).events()))
    second = Thread(8, list(Call(site("walk"), 5, 8).events()))
    trace = ftpatch.Trace(_file(tmp_path, [first, second]))
    assert trace.kind == "calls"
    columns = trace.columns()
    begin = columns.pop("time")
    assert (begin - begin[0]).tolist() == [0, 1, 2, 4]
    assert {name: column.tolist() for name, column in columns.items()} == {
        "duration": [8, 4, 1, 3],
        "pid": [columns["pid"][0]] * 4,
        "tid": [7, 7, 7, 8],
        "depth": [0, 1, 2, 0],
        "function": ["main", "parse", "alloc", "walk"],
        "address": [BASE, BASE + 0x20, BASE + 0x80, BASE + 0x60],
    }


def test_what_did_not_return_has_no_duration(tmp_path: Path) -> None:
    """One frame that was left, one that is open; and calls that begin in one chunk and end in
    another."""
    thread = Thread(7, per=2).add(ENTRY, "main", 1).add(ENTRY, "parse", 2)
    thread.add(ENTRY, "fail", 3).add(LEFT, 1, 4).add(EXIT, "parse", 5).add(ENTRY, "walk", 6)
    columns = ftpatch.Trace(_file(tmp_path, [thread])).columns()
    found = dict(zip(columns["function"], columns["duration"].tolist(), strict=True))
    assert found == {"main": -1, "parse": 3, "fail": -1, "walk": -1}
    assert columns["function"].tolist() == ["main", "parse", "fail", "walk"]


def test_a_filter_and_a_profile(tmp_path: Path) -> None:
    calls = [Call(site("parse"), 2, 6), Call(site("parse"), 7, 8)]
    thread = Thread(7, list(Call(site("main"), 1, 11, calls).events()))
    path = _file(tmp_path, [thread])
    profile = ftpatch.Trace(path).profile()
    assert {name: column.tolist() for name, column in profile.items()} == {
        "function": ["main", "parse"],
        "address": [BASE, BASE + 0x20],
        "hits": [1, 2],
        "total": [10, 5],
        "self": [5, 5],
    }
    assert ftpatch.Trace(path, filter="par*").columns()["function"].tolist() == ["parse"] * 2


def test_data_frames_take_the_columns(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    thread = Thread(7, list(Call(site("main"), 1, 9, [Call(site("parse"), 2, 6)]).events()))
    trace = ftpatch.Trace(_file(tmp_path, [thread]))
    assert pandas.DataFrame(trace.columns()).groupby("function").duration.sum().to_dict() == {
        "main": 8,
        "parse": 4,
    }
    frame = polars.DataFrame(trace.columns())
    assert frame.filter(polars.col("depth") == 1)["function"].to_list() == ["parse"]


def test_an_empty_trace_has_empty_columns(tmp_path: Path) -> None:
    columns = ftpatch.Trace(_file(tmp_path, [])).columns()
    assert {name: len(column) for name, column in columns.items()} == dict.fromkeys(columns, 0)
    assert len(columns) == 7


def test_a_recorded_profile_is_its_own_table(tmp_path: Path) -> None:
    header: dict[str, int | bytes] = {"tracer": PROFILE, "hz": 10**9}
    header["path"] = bytes(program(tmp_path / "prog"))
    entries = [(site("main"), 2, 50, 30)]
    path = TraceFile(profiles=[entries], header=header).write(tmp_path / "trace")
    trace = ftpatch.Trace(path)
    assert trace.kind == "a profile"
    columns = trace.columns()
    assert columns["function"].tolist() == ["main"] and columns["hits"].tolist() == [2]
    rows = command("report", "--json", path).json
    assert [row["total"] for row in rows] == columns["total"].tolist()


@needs_gcc
def test_hits_have_their_values(tmp_path: Path) -> None:
    """What the program's own arguments and results were, by its source."""
    shop = tmp_path / "shop"
    subprocess.run(["gcc", "-O2", ROOT / "samples/shop.c", "-o", shop], check=True)
    probes = ("p:sold sell n=$arg1:s32 stock=@stock:s32", "r:left sell $retval:s32")
    assert command("probe", shop, *probes, "-o", f"{shop}.probed").code == 0
    path = tmp_path / "shop.trace"
    subprocess.run([f"{shop}.probed"], env={"FTPATCH_TRACE": str(path)}, check=True)
    trace = ftpatch.Trace(path)
    columns = trace.columns()
    sold = columns["probe"] == "sold"
    assert columns["n"][sold].tolist() == [3, 100]
    assert columns["stock"][sold].tolist() == [12, 9]
    assert columns["arg1"][~sold].tolist() == [9, -1]
    assert columns["n"][~sold].tolist() == [None, None]
    assert (columns["duration"][sold] == -1).all() and (columns["duration"][~sold] >= 0).all()
    assert set(columns["function"]) == {"sell"}
    with pytest.raises(ftpatch.UsageError, match="no profile"):
        trace.profile()


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    path = _file(tmp_path, [Thread(7).add(ENTRY, "main", 1)], path=bytes(tmp_path / "gone"))
    trace = ftpatch.Trace(path)
    assert any("gone" in note for note in trace.notes), trace.notes
    assert trace.columns()["function"].tolist() == [hex(BASE + 4)]
    with pytest.raises(ftpatch.InputError):
        ftpatch.Trace(ROOT / "README.md")
