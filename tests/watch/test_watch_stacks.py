# SPDX-License-Identifier: MIT
"""The calls that led to accesses: gdb's backtrace is the same at the same write, in programs with
watches and beside processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ftpatch.layout import constants
from ftpatch.process.bpf import STACKED
from ftpatch.watch.copied_stacks import events_with_stacks
from tests.support.command import PATIENCE, ftpatch
from tests.support.running import needs_gdb
from tests.support.watch_live import cannot, watching
from tests.support.watch_programs import refusal, rows_of

SOURCE = Path(__file__).parent / "stacked.c"
GDB = Path(__file__).parent.parent / "support" / "watch_stack_gdb.py"
LEVELS = ("-O0", "-O2", "-O2 -fomit-frame-pointer -no-pie", "-O1 -fno-omit-frame-pointer")


def _built(folder: Path, level: str) -> Path:
    path = folder / "stacked"
    words = ["gcc", *level.split(), "-w", "-pthread", str(SOURCE), "-o", str(path)]
    subprocess.run(words, check=True)
    return path


def _by_gdb(program: Path, depth: int) -> list[list[str]]:
    plan, out = program.with_suffix(".plan"), program.with_suffix(".stacks")
    words = {"type": "int", "symbol": "held", "words": str(depth), "out": str(out)}
    plan.write_text(json.dumps(words))
    done = subprocess.run(
        ["gdb", "-nx", "-batch", "-x", str(GDB), str(program)],
        env={**os.environ, "PLAN": str(plan)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert out.exists(), done.stderr[-500:]
    found: list[list[str]] = json.loads(out.read_text())
    return found


def _frame(text: str) -> str:
    """As the script has it."""
    found = re.fullmatch(r"(\w+\+0x[0-9a-f]+)/0x[0-9a-f]+", text)
    return found[1] if found else "*"


def _stacks(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Those of the writes."""
    return [[_frame(text) for text in row["stack"]] for row in rows if row.get("access") == "w"]


def _assert_same(found: list[list[str]], wanted: list[list[str]]) -> None:
    assert len(found) == len(wanted) > 8
    assert found == wanted


def _recorded(program: Path, depth: int, *requests: str, size: str = "16M") -> Path:
    if refusal():
        pytest.skip(refusal())
    patched, trace = program.with_suffix(".w"), program.with_suffix(".trace")
    result = ftpatch("watch", program, *requests, "-o", patched, "--force")
    assert result.code == 0, result.err
    subprocess.run(
        [str(patched), str(depth)],
        env={**os.environ, "FTPATCH_TRACE": str(trace), "FTPATCH_TRACE_SIZE": size},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    return trace


@contextmanager
def _started(program: Path, depth: int) -> Iterator[subprocess.Popen[str]]:
    """The program before its first line."""
    if cannot():
        pytest.skip(cannot())
    pipe = subprocess.PIPE
    words = [str(program), str(depth)]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


@needs_gdb
@pytest.mark.parametrize("level", LEVELS)
def test_stacks_are_those_of_gdb(tmp_path: Path, level: str) -> None:
    program = _built(tmp_path, level)
    wanted = _by_gdb(program, 5)
    rows = rows_of(_recorded(program, 5, "held:-w- stack if old != new"))
    _assert_same(_stacks(rows), wanted)


@needs_gdb
@pytest.mark.parametrize("level", LEVELS[1:3])
def test_stacks_beside_a_process_are_those_of_gdb(tmp_path: Path, level: str) -> None:
    program = _built(tmp_path, level)
    wanted = _by_gdb(program, 5)
    with (
        _started(program, 5) as process,
        watching(process.pid, "held:-w- stack", "other:-w-", "--json") as watcher,
    ):
        process.communicate("\n", timeout=PATIENCE)
        result = watcher.end(None)
    assert result.code == 0, result.err
    _assert_same(_stacks([row for row in result.json if row.get("symbol") == "held"]), wanted)
    assert [row.get("stack") for row in result.json if row.get("symbol") == "other"] == [None]


def test_a_depth(tmp_path: Path) -> None:
    """The innermost ones; where there are more, it is told, also of those that are not copied."""
    program = _built(tmp_path, "-O1")
    trace = _recorded(program, 2000, "held:-w- stack(3)", "other:-w- stack")
    rows = [row for row in rows_of(trace) if "access" in row]
    deepest = next(row for row in rows if row["symbol"] == "held")
    assert [_frame(text).partition("+")[0] for text in deepest["stack"]] == ["leaf", "deep", "deep"]
    assert deepest["stack_cut"] is True
    (other,) = (row for row in rows if row["symbol"] == "other")
    assert other["stack"][0].startswith("threaded+") and "stack_cut" not in other
    text = ftpatch("report", trace).out
    assert re.search(
        r"W +leaf\+.*\n => leaf\+\S+\n => deep\+\S+\n => deep\+\S+\n => \.\.\.\n", text
    )


def test_folded_stacks_and_flame_graphs(tmp_path: Path) -> None:
    program = _built(tmp_path, "-O1")
    trace = _recorded(program, 2, "held:-w- stack")
    rows = [row for row in rows_of(trace) if "access" in row]
    folded = ftpatch("report", trace, "--format", "folded")
    assert folded.code == 0, folded.err
    counts = [int(line.rpartition(" ")[2]) for line in folded.out.splitlines()]
    assert sum(counts) == len(rows)
    leaves = {re.split(r"[; ]", line)[-2] for line in folded.out.splitlines()}
    assert leaves == {"leaf", "handled"}
    assert any(";main;deep;deep;deep;leaf 1" in line for line in folded.out.splitlines())
    page = tmp_path / "page.html"
    assert ftpatch("report", trace, "--format", "flamegraph", "-o", page).code == 0
    assert "compared" in page.read_text()


def test_a_file_that_is_followed(tmp_path: Path) -> None:
    program = _built(tmp_path, "-O1")
    trace = _recorded(program, 2, "held:-w- stack")
    once = ftpatch("report", "--json", trace)
    followed = ftpatch("report", "--json", "--follow", trace)
    assert followed.code == once.code == 0
    assert followed.json == once.json


def test_a_file_that_is_full_of_stacks(tmp_path: Path) -> None:
    """What has no room is missed, and what is there is whole."""
    program = _built(tmp_path, "-O1")
    rows = rows_of(_recorded(program, 90, "held:-w- stack", size="64K"))
    end = rows[-1]
    assert end["hits"] == len(rows) - 1 and end["missed"] == 0
    with_many = rows_of(_recorded(program, 90, "held:rw- stack", size="64K"))
    assert all(row["stack"][0].startswith(("leaf+", "handled+")) for row in with_many[:-1])


def test_without_stacks_there_is_no_flame_graph(tmp_path: Path) -> None:
    trace = _recorded(_built(tmp_path, "-O1"), 2, "held:-w-")
    result = ftpatch("report", trace, "--format", "flamegraph", "-o", tmp_path / "page.html")
    assert result.code == 2
    assert result.err == (
        f"ftpatch: {trace}: no watch records stacks, and flamegraph needs them; "
        "watch it with `stack`, as in stock:rw- stack\n"
    )


REGISTERS, PLACE = constants["CALLS_REGISTERS"], constants["CALLS_PLACE"]
CUT = constants["CALLS_CUT"]


def test_copies_become_what_the_runtime_stores() -> None:
    """Only words from the stack pointer on that may be addresses, each with its place."""
    records = np.zeros(3, STACKED)
    records["low"] = 0x7000
    records["general"][:, 4] = [0x7010, 0x7008, 0x700C]
    records["stack"][:, :6] = [0x401000, 0x402000, 0x403000, 5, 1 << 47, 0x404000]
    records["stack"][1, 10:] = 0x405000
    events = np.arange(15, dtype=np.uint64).reshape(3, 5)
    flat, lengths = events_with_stacks(events, records, np.array([True, True, False]), 4)
    assert lengths.tolist() == [5 + 1 + 16 + 2, 5 + 1 + 16 + constants["CALLS_WORDS"], 5]
    first, second, third = np.split(flat, np.cumsum(lengths)[:-1])
    assert first[:6].tolist() == [0, 1, 2, 3, 4, 2]
    assert first[6:22].tolist() == records["general"][0].tolist()
    assert first[22:].tolist() == [0x403000, 3 << PLACE | 0x404000]
    assert int(second[5]) == CUT | constants["CALLS_WORDS"]
    assert second[22:24].tolist() == [0x402000, 1 << PLACE | 0x403000]
    assert third.tolist() == [10, 11, 12, 13, 14]
    # A stack pointer that is no multiple of a word has no words.
    flat, lengths = events_with_stacks(events[2:], records[2:], np.array([True]), 4)
    assert lengths.tolist() == [5 + 1 + 16] and flat[5] == 0


def test_what_it_costs_beside_a_process(tmp_path: Path) -> None:
    """A burst of accesses with stacks loses none that is not counted."""
    program = _built(tmp_path, "-O1")
    with (
        _started(program, 300) as process,
        watching(process.pid, "held:rw- stack(2)", "--json") as watcher,
    ):
        process.communicate("\n", timeout=PATIENCE)
        result = watcher.end(None)
    assert process.returncode in (0, -signal.SIGKILL)
    rows = [row for row in result.json if "access" in row]
    assert result.json[-1]["hits"] == len(rows) and result.json[-1]["missed"] == 0
    assert all(len(row["stack"]) == 2 for row in rows)
