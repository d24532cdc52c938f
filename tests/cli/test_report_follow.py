# SPDX-License-Identifier: MIT
"""``ftpatch report --follow``, beside programs that run: lines come while they do, and at the end
what was printed is what the finished report says."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, ftpatch, ftpatch_command
from tests.support.follower import beside, following, orders, traced_orders
from tests.support.following import reported, without_leaves
from tests.support.stopping import until
from tests.support.trace_writer import ENTRY, FUNCTION, Thread, TraceFile
from tests.support.watch_live import cannot

needs_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
KILLED = "ftpatch: the program did not end by exit(): it was killed, called _exit or exec, or still"


def _calls(lines: list[str]) -> list[str]:
    """The lines of a graph below its headings."""
    return without_leaves([line for line in lines if not line.startswith("#")])


@pytest.mark.parametrize("name", ["function_graph", "function", "json"])
def test_calls_come_as_they_are_made(tmp_path: Path, name: str) -> None:
    _, traced = traced_orders(tmp_path)
    trace = tmp_path / "x.trace"
    words = (trace, "--format", name)
    with orders(traced, FTPATCH_TRACE=str(trace)) as program, following(*words) as follower:
        follower.wait_for("main")
        for number in range(1, 4):
            program.do("s1")
            follower.wait_for("price", number)
        program.do("t2", "s3")
        follower.wait_for("thread")
        program.end()
        result = follower.end()
    assert (result.code, result.err) == (0, "")
    lines, expected = result.out.splitlines(), reported(trace, "--format", name)
    if name == "function_graph":
        lines, expected = without_leaves(lines), without_leaves(expected)
    assert lines == expected
    assert len([line for line in lines if "price" in line]) >= 5


def test_forked_children(tmp_path: Path) -> None:
    """Those that were there, and those that come."""
    _, traced = traced_orders(tmp_path)
    trace = tmp_path / "x.trace"
    with orders(traced, FTPATCH_TRACE=str(trace)) as program:
        program.do("f1")
        with following(trace, "--json") as follower, following(trace) as graph:
            follower.wait_for("price")
            graph.wait_for("price")
            program.do("f2")
            follower.wait_for("price", 3)
            program.do("s3", "f4")
            program.end()
            result, shown = follower.end(), graph.end()
    assert result.code == shown.code == 0
    assert result.out.splitlines() == reported(trace, "--json")
    assert "ftpatch: with 3 files of the program's children: " in result.err
    assert _calls(shown.out.splitlines()) == _calls(reported(trace))
    with following(trace, "--json", "--no-children") as follower:
        alone = follower.end()
    assert alone.err == "" and alone.out.splitlines() == reported(trace, "--json", "--no-children")


def test_a_program_that_is_killed(tmp_path: Path) -> None:
    _, traced = traced_orders(tmp_path)
    trace = tmp_path / "x.trace"
    with orders(traced, FTPATCH_TRACE=str(trace)) as program, following(trace) as follower:
        follower.wait_for("main")
        program.do("s1", "s2")
        program.kill()
        result = follower.end()
    assert result.code == 0 and result.err.startswith(KILLED)
    assert _calls(result.out.splitlines()) == _calls(reported(trace))


def test_ctrl_c_ends_it_and_not_the_program(tmp_path: Path) -> None:
    _, traced = traced_orders(tmp_path)
    trace = tmp_path / "x.trace"
    with orders(traced, FTPATCH_TRACE=str(trace)) as program:
        with following(trace) as follower:
            program.do("s1")
            follower.wait_for("sell")
            result = follower.end(signal.SIGINT)
        assert (result.code, result.err) == (0, "")
        program.do("s2")
        timed = following(trace, "--seconds", "1")
        with timed as follower:
            begun = time.monotonic()
            assert follower.end().out.count("sell() {") == 2
            assert time.monotonic() - begun >= 1
        program.end()


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    """Is noticed, though nothing is written to it any more."""
    _, traced = traced_orders(tmp_path)
    trace = tmp_path / "x.trace"
    words = ("report", "--follow", trace, "--json")
    with orders(traced, FTPATCH_TRACE=str(trace)), beside(*words) as follower:
        assert follower.stdout is not None and follower.stderr is not None
        assert b"main" in follower.stdout.readline()
        follower.stdout.close()
        assert follower.wait(PATIENCE) == 128 + signal.SIGPIPE
        assert follower.stderr.read() == b""


def test_a_finished_trace_is_printed(tmp_path: Path) -> None:
    _, traced = traced_orders(tmp_path)
    trace = tmp_path / "x.trace"
    with orders(traced, FTPATCH_TRACE=str(trace)) as program:
        program.do("s1", "t2", "s3")
        program.end()
    assert ftpatch("report", "--follow", trace) == ftpatch("report", trace)
    source = ("--source", "-f", "sell", "-D", "1")
    assert ftpatch("report", "--follow", trace, *source) == ftpatch("report", trace, *source)
    unmatched = ftpatch("report", "--follow", trace, "-f", "sel")
    assert unmatched.code == 2 and unmatched.out.count("\n") == 4
    assert unmatched.err == ftpatch("report", trace, "-f", "sel").err


def test_what_trace_runs_has_no_name_yet(tmp_path: Path) -> None:
    """The file that `-o` names is made at the end; so are those of children."""
    path, _ = traced_orders(tmp_path)
    trace = tmp_path / "x.trace"
    command = ftpatch_command("trace", "-o", trace, "--report", f"json={tmp_path / 'json'}", path)
    with orders(*command) as program:
        assert not trace.exists()
        with (
            following(trace, "--json") as follower,
            following(trace, "--format", "function") as text,
        ):
            text.wait_for(": main")
            program.do("s1", "f2")
            follower.wait_for("price", 3)
            program.end()
            result, shown = follower.end(), text.end()
    assert result.out.splitlines() == reported(trace, "--json")
    calls = [line.split() for line in reported(trace, "--format", "function") if ": " in line]
    followed = [line.split() for line in shown.out.splitlines() if ": " in line]
    # The program's name, and not that of the copy; the number only from the fork on.
    assert [line[0] for line in followed] == [line[0] for line in calls]
    assert [line[-2:] for line in followed] == [line[-2:] for line in calls]


@needs_x86
@pytest.mark.parametrize("keep", [False, True], ids=["attended", "kept"])
def test_probes_of_a_running_process(tmp_path: Path, keep: bool) -> None:
    path, _ = traced_orders(tmp_path)
    trace = tmp_path / "x.trace"
    with orders(path) as program:
        words = (
            "probe",
            "--pid",
            str(program.pid),
            "p:sale sell n=$arg1:s32 stack",
            "r:cost price ret=$retval",
        )
        with beside(*words, "-o", trace, *["--keep"] * keep) as probing:
            place = tmp_path / ".x.trace.recording"
            if keep:
                assert probing.wait(PATIENCE) == 0
            until(place.exists, PATIENCE)
            until(lambda: _is_followed(trace), PATIENCE)
            until(lambda: _is_probed(program.pid), PATIENCE)  # the file is there before
            with following(trace) as follower, following(trace, "--json") as lines:
                program.do("s1", "t2", "s3")
                follower.wait_for("cost: (", 3)
                follower.wait_for("sale: (sell+0x0", 3)
                lines.wait_for('"cost"', 3)
                if keep:
                    assert ftpatch("undo", "--pid", str(program.pid)).code == 0
                else:
                    probing.send_signal(signal.SIGINT)
                    assert probing.wait(PATIENCE) == 0
                result, objects = follower.end(), lines.end()
        program.end()
    assert (result.code, result.err) == (0, "")
    assert result.out == ftpatch("report", trace).out
    assert objects.out == ftpatch("report", trace, "--json").out
    assert " n=3\n => sell+" in result.out and "# sale" in result.out


def _is_probed(pid: int) -> bool:
    """Whether the process has probes."""
    return "ftpatch's own probes" in ftpatch("status", "--pid", str(pid)).out


def _is_followed(trace: Path) -> bool:
    """Whether it is there, be it without a name."""
    result = ftpatch("report", "--follow", trace, "--seconds", "0.01")
    assert result.code == 0 or "No such file" in result.err, result
    return result.code == 0


@needs_x86
def test_calls_of_a_running_process(tmp_path: Path) -> None:
    path, _ = traced_orders(tmp_path)
    trace = tmp_path / "x.trace"
    with orders(path) as program:
        pid = str(program.pid)
        assert ftpatch("enable", "--pid", pid, "-f", "sell", "-o", trace).code == 0
        with following(trace) as follower:
            program.do("s1")
            follower.wait_for("sell()")
            assert ftpatch("disable", "--pid", pid, "--recording").code == 0
            program.do("s2")
            assert ftpatch("enable", "--pid", pid, "--recording").code == 0
            program.do("t3")
            assert ftpatch("undo", "--pid", pid).code == 0
            result = follower.end()
        program.end()
    assert (result.code, result.err) == (0, "")
    assert without_leaves(result.out.splitlines()) == without_leaves(reported(trace))
    assert result.out.count("sell()") == 2


SLOW = """
import time
from ftpatch.watch.trace_file import TraceFile
append, flush = TraceFile._append, TraceFile.flush
TraceFile._append = lambda *words: (append(*words), time.sleep(0.3))
TraceFile.flush = lambda self: (self._taken and time.sleep(0.3), flush(self))
"""
"""Between the accesses of one thread and those of the next one, and before the header."""


@pytest.mark.skipif(bool(cannot()), reason=cannot())
@pytest.mark.parametrize("script", ["", SLOW], ids=["", "slow"])
def test_accesses_to_variables(tmp_path: Path, script: str) -> None:
    path, _ = traced_orders(tmp_path)
    trace = tmp_path / "x.trace"
    with orders(path) as program:
        words = ("watch", "--pid", str(program.pid), "sold:rw-", "-o", trace)
        with beside(*words, script=script) as watching:
            until(trace.exists, PATIENCE)
            with following(trace) as follower, following(trace, "--json") as lines:
                program.do("s1")
                follower.wait_for(" sell+0x")
                program.do("t2")
                lines.wait_for('"new": "0x3"')
                watching.send_signal(signal.SIGINT)
                assert watching.wait(PATIENCE) == 0
                result, objects = follower.end(), lines.end()
        program.end()
    assert (result.code, result.err) == (0, "")
    assert result.out == ftpatch("report", trace).out
    assert objects.out == ftpatch("report", trace, "--json").out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "profile"], "profile needs all events, and --follow shows them as they come; "
         "use function_graph, function or json"),
        (["--format", "html"], "html needs all events, and --follow shows them as they come; "
         "use function_graph, function or json"),
        (["--trigger", "main@on"], "--trigger needs all calls, and --follow shows them one by one; "
         "use it without --follow"),
        (["--max-calls", "3"], "--max-calls needs all calls, and --follow shows them one by one; "
         "use it without --follow"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed(tmp_path: Path, options: list[str], said: str) -> None:
    trace = TraceFile([Thread(1).add(ENTRY, "main", 1)]).write(tmp_path / "x.trace")
    result = ftpatch("report", "--follow", trace, *options)
    assert (result.code, result.out) == (2, "")
    assert result.err == f"ftpatch: {trace}: {said}\n"


@pytest.mark.parametrize(
    "option",
    [
        ["-o", "x"],
        ["--graph", "main"],
        ["--diff", "x"],
        ["--tui"],
        ["--open"],
        ["--diff-image", "x"],
    ],
    ids=lambda option: option[0],
)
def test_options_that_conflict(tmp_path: Path, option: list[str]) -> None:
    trace = TraceFile([Thread(1).add(ENTRY, "main", 1)]).write(tmp_path / "x.trace")
    result = ftpatch("report", "--follow", trace, *option)
    name = "--output" if option[0] == "-o" else option[0]
    assert (result.code, result.err) == (2, f"ftpatch: {name} and --follow conflict\n")


def test_files_that_cannot_be_followed(tmp_path: Path) -> None:
    def refused(path: Path, *options: str) -> str:
        result = ftpatch("report", "--follow", path, *options)
        assert (result.code, result.out) == (2, "")
        return result.err.removeprefix(f"ftpatch: {path}: ").removesuffix("\n")

    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe") == "not a regular file; use a trace file"
    assert refused(tmp_path / "none") == "cannot read: No such file or directory"
    profile = TraceFile(profiles=[[(6, 1, 2, 3)]]).write(tmp_path / "profile")
    assert refused(profile) == (
        "a profile cannot be followed: it has sums, not events; report it without --follow"
    )
    entries: dict[str, int | bytes] = {"tracer": FUNCTION}
    trace = TraceFile([Thread(1).add(ENTRY, "main", 1)], header=entries).write(tmp_path / "entries")
    assert "does not record returns" in refused(trace, "--format", "function_graph")
    assert "use function or json" in refused(trace, "--format", "chrome")
    assert refused(trace, "--seconds", "0").endswith("--seconds 0: not a time; use more than 0")
    alone = ftpatch("report", trace, "--seconds", "1")
    assert (alone.code, alone.err) == (
        2,
        "ftpatch: --seconds needs --follow; add it, or remove --seconds\n",
    )
