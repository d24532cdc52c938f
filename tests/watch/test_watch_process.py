# SPDX-License-Identifier: MIT
"""Variables of running processes: each access that the program counts is recorded, and when
ftpatch ends, however it does, nothing is left."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import ROOT, child_env, ftpatch
from tests.support.running import needs_gdb
from tests.support.sampling import scaled
from tests.support.stopping import until
from tests.support.watch_live import (
    accesses,
    built_shared,
    counted,
    shared,
    watching,
)
from tests.support.watch_programs import name_of, rows_of

ROUNDS, MORE = 20, 5
SLOTS = ("cell:-w-", "a:-w-", "b:-w-", "c:-w-")


@pytest.mark.parametrize("link", ["pie", "no-pie", "static", "static-pie"])
def test_counts_are_the_programs_own(tmp_path: Path, link: str) -> None:
    """Of threads that were there, that began later, and of a child."""
    with shared(built_shared(tmp_path, link), "3") as program:
        before = program.do("all", "own")
        with watching(program.pid, "cell:rw-", "--json") as watcher:
            reads, writes = program.do("all", "own", "more", "fork", "more")
            rows = accesses(watcher.end())
        assert program.end() == 0
    own = [row for row in rows if row["pid"] == program.pid]
    assert counted(own) == (reads - before[0], writes - before[1])
    assert counted([row for row in rows if row["pid"] != program.pid]) == (ROUNDS, ROUNDS)
    assert len({row["tid"] for row in own}) == 3 + 1 + 2 * MORE
    assert {(name_of(row), row["access"]) for row in rows} == {("put", "w"), ("get", "r")}
    assert {row["comm"] for row in rows} == {"shared"}


def test_values_are_those_that_were_written(tmp_path: Path) -> None:
    with shared(built_shared(tmp_path), "1") as program:
        program.do("own")
        with watching(program.pid, "cell:-w-", "--json") as watcher:
            program.do("own", "all", "fork")
            rows = accesses(watcher.end())
    values = list(range(ROUNDS))
    new = [int(row["new"], 16) for row in rows]
    assert new == values * 3
    assert [int(row["old"], 16) for row in rows] == [ROUNDS - 1, *new[:-1]]
    assert [row["time"] for row in rows] == sorted({row["time"] for row in rows})


@needs_gdb
def test_an_element_of_a_member(tmp_path: Path) -> None:
    """Its neighbours are written as often."""
    with (
        shared(built_shared(tmp_path, "pie", "-g"), "1") as program,
        watching(program.pid, "parts.cell[1]:rw-", "--json") as watcher,
    ):
        _, writes = program.do("own", "all")
        rows = accesses(watcher.end())
    assert [(row["symbol"], row["access"]) for row in rows] == [("parts.cell[1]", "w")] * writes
    assert [int(row["new"], 16) for row in rows] == list(range(ROUNDS)) * 2


def test_the_address_is_that_of_gdb(tmp_path: Path) -> None:
    with shared(built_shared(tmp_path), "0") as program:
        with watching(program.pid, "cell:rw-", "--json") as watcher:
            program.do("own")
            rows = accesses(watcher.end())
        ips = sorted({row["ip"] for row in rows})
        words = ["gdb", "-p", str(program.pid), "-batch", "-nx"]
        asked = [word for ip in ips for word in ("-ex", f"info symbol {ip}")]
        done = subprocess.run([*words, *asked], capture_output=True, text=True, check=True)
    by_gdb = [line.split(" in ")[0] for line in done.stdout.splitlines() if " in section" in line]
    names = {row["ip"]: row["function"].partition("/")[0] for row in rows}
    assert [names[ip].replace("+0x", " + ") for ip in ips] == [
        f"{name} + {int(at):x}" for name, _, at in (one.partition(" + ") for one in by_gdb)
    ]


def test_threads_that_begin_all_the_time(tmp_path: Path) -> None:
    """Each is begun by another one that may not have been found yet."""
    with shared(built_shared(tmp_path), "2") as program:
        program.do("chain")
        with watching(program.pid, "cell:-w-", "--json") as watcher:
            _, writes = program.do("go")
            rows = accesses(watcher.end())
    assert counted(rows) == (0, writes) and writes >= 200


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left(tmp_path: Path, number: signal.Signals) -> None:
    with shared(built_shared(tmp_path), "2") as program:
        status = _status(program.pid)
        for _ in range(2):  # all breakpoints are free again
            with watching(program.pid, *SLOTS) as watcher:
                program.do("all")
                watcher.end(number)
                reads, writes = program.do("all", "more")
        until(lambda: _status(program.pid) == status)
        assert (reads, writes) == (ROUNDS * (8 + 2 * MORE),) * 2
        with watching(program.pid, "cell:rw-", "--json") as watcher:
            program.do("own")
            assert counted(accesses(watcher.end())) == (ROUNDS, ROUNDS)
        assert program.end() == 0


def _status(pid: int) -> list[str]:
    """What /proc tells of a process, without what changes by itself: SigQ counts the signals queued
    for the user, in any process (proc_pid_status(5))."""
    moving = ("Vm", "Rss", "voluntary", "nonvoluntary", "State", "Threads", "SigQ")
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [line for line in lines if not line.startswith(moving)]


@pytest.mark.scaled
def test_many_threads(tmp_path: Path) -> None:
    threads = scaled(1000, 200)
    words = ("cell:rw-", "--json", "--size", "256M")
    with (
        shared(built_shared(tmp_path), str(threads)) as program,
        watching(program.pid, *words) as watcher,
    ):
        assert f"in {threads + 1} threads" in watcher.err
        counts = program.do("all")
        rows = accesses(watcher.end())
    assert counted(rows) == counts == (threads * ROUNDS,) * 2
    assert len({row["tid"] for row in rows}) == threads


def test_too_few_descriptors(tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))

    def raised() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, 4096))

    with shared(built_shared(tmp_path), "30") as program:
        with watching(program.pid, "cell:rw-", before=limited) as watcher:
            result = watcher.end(None)
        assert result.code == 2 and result.err.count("\n") == 1 and not result.out
        assert "take 95 descriptors, and 90 may be open" in result.err
        with watching(program.pid, "cell:rw-", "--json", before=raised) as watcher:
            counts = program.do("all")
            assert counted(accesses(watcher.end())) == counts


def test_the_processors_breakpoints_are_four(tmp_path: Path) -> None:
    with shared(built_shared(tmp_path), "1") as program:
        five = ftpatch("watch", "--pid", str(program.pid), *SLOTS, "cell+4:-w-")
        assert five.code == 2 and "Maximum limit:(4) reached" in five.err
        with watching(program.pid, *SLOTS[:3]) as watcher:
            more = ftpatch("watch", "--pid", str(program.pid), "cell:-w-", "c:-w-")
            program.do("own")
            result = watcher.end()
    assert more.code == 2 and not more.out
    assert more.err.endswith(
        "c:-w-: not watched: errno 28, no free breakpoint: used by a debugger or perf\n"
    )
    assert "cell:-w-        20         0        20  put" in result.out


def test_the_file_and_the_reports(tmp_path: Path) -> None:
    """What is printed is what `report` prints of the file, children's included."""
    trace, page = tmp_path / "t", tmp_path / "t.json"
    words = ("cell:rw-", "-o", trace, "--report", "ksym", "--report", f"json={page}")
    with shared(built_shared(tmp_path), "1") as program:
        with watching(program.pid, *words) as watcher:
            program.do("all", "fork")
            result = watcher.end()
        assert result.code == 0, result.err
        (child,) = tmp_path.glob("t.[0-9]*")
        assert ftpatch("report", trace).out == result.out == ftpatch("report", trace, child).out
        rows = rows_of(trace, child)
        assert page.read_text().count("\n") == len(rows)
        assert trace.stat().st_mode & 0o777 == 0o600
        refused = ftpatch("watch", "--pid", str(program.pid), *words[:3])
        assert refused.code == 2 and "the output exists" in refused.err
        with watching(program.pid, *words[:3], "--force") as watcher:
            program.do("own")
            assert watcher.end().code == 0
        assert not child.exists()
        assert {row["tid"] for row in rows_of(trace) if "access" in row} == {program.pid}


def test_a_file_that_is_full(tmp_path: Path) -> None:
    with (
        shared(built_shared(tmp_path), "2") as program,
        watching(program.pid, "cell:rw-", "--size", "64K") as watcher,
    ):
        _, writes = program.do(*["all"] * 30)
        result = watcher.end()
    rows = [line for line in result.out.splitlines() if not line.startswith("#")]
    missed = 2 * writes - len(rows)
    assert missed > 0
    assert f"# cell:rw-: accesses missed: {missed}\n" in result.out
    assert f"# {missed} events lost when the trace file was full (--size)\n" in result.out
    assert f"ftpatch: {missed} events lost when the trace file was full: use a larger --size\n" in (
        result.err
    )


def test_the_end_of_the_process_and_of_the_time(tmp_path: Path) -> None:
    with shared(built_shared(tmp_path), "1") as program:
        with watching(program.pid, "cell:rw-", "--seconds", "0.2") as watcher:
            assert watcher.end(None).code == 0
        with watching(program.pid, "cell:rw-", "--json") as watcher:
            counts = program.do("own", "all")
            assert program.end() == 0
            assert counted(accesses(watcher.end(None))) == counts


def test_another_program(tmp_path: Path) -> None:
    with shared(built_shared(tmp_path), "1") as program:
        with watching(program.pid, "cell:rw-", "--json") as watcher:
            program.do("own")
            program.tell("exec")
            result = watcher.end(None)
        assert counted(accesses(result)) == (ROUNDS, ROUNDS)
        assert "it runs another program now, which is not watched\n" in result.err


def test_in_a_namespace_of_its_own(tmp_path: Path) -> None:
    """Numbers of processes are those that ftpatch sees."""
    words = ["unshare", "-fp", "--mount-proc"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs PID namespaces")
    path, out = built_shared(tmp_path), tmp_path / "out"
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from tests.support.watch_live import shared, watching, accesses, counted\n"
        f"with shared({str(path)!r}, '2') as program:\n"
        "    with watching(program.pid, 'cell:rw-', '--json') as watcher:\n"
        "        counts = program.do('all', 'own')\n"
        "        rows = accesses(watcher.end())\n"
        "    assert counted(rows) == counts\n"
        "    assert {row['pid'] for row in rows} == {program.pid}\n"
        "    assert len({row['tid'] for row in rows}) == 3\n"
        f"Path({str(out)!r}).write_text('well')\n"
    )
    done = subprocess.run(
        [*words, sys.executable, str(script)], env=child_env(), cwd=ROOT, capture_output=True
    )
    assert done.returncode == 0 and out.read_text() == "well", done.stderr.decode()
