# SPDX-License-Identifier: MIT
"""Rings: what is left of each thread are its latest calls, as the program itself wrote them down,
and what is not left is counted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import PATIENCE, ftpatch
from tests.support.follower import following
from tests.support.padded import padded
from tests.support.running import running
from tests.support.sampling import scaled
from tests.support.stopping import has_opened, until
from tests.support.trace_events import are_latest
from tests.support.tracer_ports import FORMS, Form, build, run_with

SOURCE = (Path(__file__).parent.parent / "programs" / "ring.c").read_text()
Events = list[dict[str, Any]]
SURE = 40
"""Calls in a row that are not in a log twice."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, with pads."""
    return padded(tmp_path_factory.mktemp("ring"), SOURCE, "-pthread", "-w")


def _run(program: Path, tracer: str, words: Sequence[object], size: str = "1M") -> tuple[Path, str]:
    """Run it with a ring; its trace and its log."""
    folder, log = program.parent, log_path(program)
    traced, trace = folder / "traced", folder / "ring.trace"
    options = ("--tracer", tracer, "--ring", "--size", size, "--force", "-o", traced)
    assert ftpatch("enable", program, *options, "-f", "f?", "-f", "handled").code == 0
    trace.unlink(missing_ok=True)
    threads, calls, *more = map(str, words)
    subprocess.run(
        [traced, threads, calls, log, *more],
        env={**os.environ, "FTPATCH_TRACE": str(trace)},
        check=True,
        timeout=PATIENCE,
    )
    return trace, log.read_text()


def _events(trace: Path) -> Events:
    said = ftpatch("report", trace, "--json")
    assert said.code == 0, said.err
    return list(map(json.loads, said.out.splitlines()))


def _calls(events: Events) -> dict[int, str]:
    """The logged functions that each thread called, in order."""
    calls: dict[int, str] = defaultdict(str)
    for one in events:
        if one.get("event") == "entry" and one["function"] != "handled":
            calls[one["tid"]] += one["function"][1]
    return calls


def _overwritten(events: Events) -> Counter[int]:
    return Counter({one["tid"]: one["overwritten"] for one in events if "overwritten" in one})


def log_path(program: Path) -> Path:
    """Where it writes down its calls."""
    return program.parent / "log"


@pytest.mark.parametrize("tracer", ["function", "function_graph"])
@pytest.mark.parametrize("threads", [1, 3, 50])
def test_what_is_left_are_the_latest_calls(program: Path, tracer: str, threads: int) -> None:
    """Written over several times: 50 threads fill a megabyte in 1300 calls each."""
    calls = scaled(400_000, 200_000) // threads
    trace, log = _run(program, tracer, (threads, calls), size="1M" if threads > 9 else "256K")
    events = _events(trace)
    kinds = Counter(one.get("event") for one in events)
    shown, gone = _calls(events), _overwritten(events)
    assert are_latest(shown, log) == threads * calls
    each = 1 if tracer == "function" else 2
    assert kinds["entry"] + kinds["exit"] + gone.total() == each * threads * calls
    assert gone.total() > kinds["entry"] > 0
    for tid, called in shown.items():
        if tracer == "function":
            assert len(called) + gone[tid] == calls


@pytest.mark.parametrize("tracer", ["function", "function_graph"])
def test_handlers_call_in_between(program: Path, tracer: str) -> None:
    trace, log = _run(program, tracer, (8, scaled(200_000, 60_000), "signals"))
    events = _events(trace)
    assert are_latest(_calls(events), log)
    assert any(one.get("function") == "handled" for one in events)


def test_times_of_a_thread_never_go_back(program: Path) -> None:
    trace, _ = _run(program, "function_graph", (50, 5000))
    last: dict[int, int] = {}
    for one in _events(trace):
        if "time" in one:
            assert one["time"] >= last.get(one["tid"], 0)
            last[one["tid"]] = one["time"]


def test_a_file_that_is_not_full_is_whole(program: Path) -> None:
    trace, log = _run(program, "function_graph", (4, 1000), size="16M")
    events = _events(trace)
    assert not _overwritten(events) and are_latest(_calls(events), log) == 4000
    assert {len(calls) for calls in _calls(events).values()} == {1000}
    said = ftpatch("report", trace)
    assert "overwritten" not in said.out and "lost" not in said.out


def test_returns_without_their_entries(program: Path) -> None:
    """As ftrace has them."""
    trace, _ = _run(program, "function_graph", (1, 100_000), size="256K")
    said = ftpatch("report", trace).out
    (note,) = [line for line in said.splitlines() if "overwritten" in line]
    assert note.startswith("# ") and note.endswith(" events overwritten by later ones (--ring)")
    rows = [line for line in said.splitlines() if line[:1] not in ("#", "")]
    depth = 0
    for row in rows:
        depth += row.endswith("{") - ("|  " in row and row.split("|  ")[1].lstrip()[:1] == "}")
        assert depth >= -4
    assert depth <= 0


CHURN = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void inner(void) { __asm__ volatile("" ::: "memory"); }
void outer(void) { inner(); __asm__ volatile("" ::: "memory"); }
static void *run(void *arg) { for (int i = 0; i < 5; i++) outer(); return (void *)(long)gettid(); }
int main(int argc, char **argv)
{
	pthread_attr_t attr;
	pthread_t id[10];
	void *tid;

	pthread_attr_init(&attr);
	for (int i = 0; i < atoi(argv[1]); i += 10) {
		for (int k = 0; k < 10; k++) { /* stacks of many sizes: in many places */
			pthread_attr_setstacksize(&attr, 65536 * (1 + (i + k) % 97));
			pthread_create(&id[k], &attr, run, 0);
		}
		for (int k = 0; k < 10; k++) {
			pthread_join(id[k], &tid);
			printf("%ld\n", (long)tid);
		}
	}
}
"""


def test_threads_that_end_leave_their_room(tmp_path: Path) -> None:
    """Many more than there are chunks, one after the other."""
    program, trace = padded(tmp_path, CHURN, "-fno-inline", "-pthread"), tmp_path / "t.trace"
    traced = tmp_path / "traced"
    options = ("--tracer", "function_graph", "--ring", "--size", "1M", "-o", traced)
    assert ftpatch("enable", program, "-f", "inner", "-f", "outer", *options).code == 0
    env, number = {**os.environ, "FTPATCH_TRACE": str(trace)}, scaled(5000, 1000)
    said = subprocess.run(
        [traced, str(number)], env=env, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    order, events = list(map(int, said.stdout.split())), _events(trace)
    calls = Counter(one["tid"] for one in events if one.get("event") == "entry")
    assert set(calls.values()) == {10} and 40 < len(calls) < 70
    assert 2 * calls.total() + _overwritten(events).total() == 20 * number
    assert not any(one["lost"] for one in events if "lost" in one)
    # Ten run side by side, and those that ended within a lap may keep a chunk for one more.
    assert set(order[-20:]) <= set(calls)


def test_killed_at_any_moment(program: Path) -> None:
    trace, _ = _run(program, "function_graph", (1, 10), size="512K")
    environment, seen = {**os.environ, "FTPATCH_TRACE": str(trace)}, 0
    for number in range(scaled(15, 4)):
        trace.unlink()
        words: list[Path | str] = [
            program.parent / "traced",
            "20",
            "1000000000",
            program.parent / "none",
        ]
        with subprocess.Popen(words, env=environment) as process:
            time.sleep(0.02 + number % 10 * 0.01)
            process.send_signal(signal.SIGKILL)
        said = ftpatch("report", trace, "--json")
        notes = [line for line in said.err.splitlines() if "overwritten by later" not in line]
        assert said.code == 0 and all("did not end by exit()" in note for note in notes), said.err
        seen += len(_calls(list(map(json.loads, said.out.splitlines()))))
    assert seen


def test_reported_while_it_is_written(program: Path) -> None:
    """What is overwritten meanwhile is not there, but nothing is wrong."""
    trace, _ = _run(program, "function", (1, 10))
    trace.unlink()
    environment = {**os.environ, "FTPATCH_TRACE": str(trace)}
    words: list[Path | str] = [
        program.parent / "traced",
        "2",
        "1000000000",
        program.parent / "none",
    ]
    with subprocess.Popen(words, env=environment) as process:
        try:
            time.sleep(0.3)
            for _ in range(scaled(6, 3)):
                last: dict[int, int] = {}
                said = ftpatch("report", trace, "--json")
                assert said.code == 0 and "corrupt" not in said.err, said.err
                assert "without a valid last event" not in said.err
                for one in map(json.loads, said.out.splitlines()):
                    if "time" in one:
                        assert one["function"] in {f"f{n}" for n in range(8)}
                        assert one["time"] >= last.get(one["tid"], 0)
                        last[one["tid"]] = one["time"]
        finally:
            process.kill()


def _alike(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _gaps(called: str, made: str) -> int:
    """How often something is missing in what was called, which is part of what was made."""
    at = gaps = 0
    while called:
        same = _alike(called, made[at:])
        called, at = called[same:], at + same
        if called:
            gaps += 1
            at = made.find(called[:SURE], at)
            assert at >= 0, f"not in the log: {called[:SURE]}"
    return gaps + (at < len(made))


@pytest.mark.parametrize("tracer", ["function_graph", "function"])
@pytest.mark.parametrize("pause", [60_000, 6000, 600])
def test_followed(program: Path, tracer: str, pause: int) -> None:
    """Of a program that takes its time all is told, though the file never holds half of it. Of one
    that is faster than we are, what is told are its calls in order, with gaps that are counted."""
    trace, _ = _run(program, tracer, (1, 10), size="512K")
    trace.unlink()
    words: list[Path | str] = [
        program.parent / "traced",
        "3",
        "25000",
        log_path(program),
        str(pause),
    ]
    with running(*words, FTPATCH_TRACE=str(trace)) as process, following(trace, "--json") as seen:
        assert process.stdin is not None
        until(lambda: has_opened(seen.process.pid, trace), PATIENCE)
        process.stdin.write(b"\n")
        process.stdin.flush()
        done = seen.end()
    assert done.code == 0 and "corrupt" not in done.err, done.err
    assert "without a valid last event" not in done.err
    events, missed = list(map(json.loads, done.out.splitlines())), 0
    shown = _calls(events)
    for line in log_path(program).read_text().splitlines():
        tid, _, made = line.split()
        missed += _gaps(shown[int(tid)], made)
    told = re.search(r"chunks overwritten before they were read: (\d+)", done.err)
    assert missed <= (int(told[1]) if told else 0)
    assert pause < 60_000 or not told or missed


FORKING = r"""
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int leaf(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
int main(void)
{
	for (int i = 0; i < 3; i++)
		if (!fork()) {
			for (int k = 0; k < 100000 * (i + 1); k++)
				leaf(k);
			return 0;
		}
	for (int k = 0; k < 50000; k++)
		leaf(k);
	while (wait(0) > 0)
		;
	return 0;
}
"""


def test_children_have_rings_of_their_own(tmp_path: Path) -> None:
    program = padded(tmp_path, FORKING, "-fno-inline")
    trace = tmp_path / "t.trace"
    words = ("--tracer", "function", "--ring", "--size", "256K", "-f", "leaf", "-o", trace)
    assert ftpatch("trace", *words, "--format", "json", "--", program).code == 0
    sums = Counter[int]()
    for one in _events(trace):
        sums[one["pid"]] += 1 if "event" in one else one["overwritten"]
    assert sorted(sums.values()) == [50_000, 100_000, 200_000, 300_000]


@pytest.mark.parametrize("form", [form for form in FORMS if form.level == "-O2"], ids=str)
def test_on_other_processors(form: Form, tmp_path: Path) -> None:
    program, traced = build(form, "ring.c", tmp_path), tmp_path / "traced"
    options = ("--tracer", "function", "--ring", "--size", "256K", "-o", traced)
    assert ftpatch("enable", program, "-f", "f?", *options).code == 0
    trace, log = tmp_path / "t.trace", tmp_path / "log"
    run_with(form, traced, ("8", "20000", str(log)), FTPATCH_TRACE=str(trace))
    events = _events(trace)
    shown = _calls(events)
    assert are_latest(shown, log.read_text()) == 160_000
    assert sum(map(len, shown.values())) + _overwritten(events).total() == 160_000


def test_the_environment_asks_for_it(program: Path, tmp_path: Path) -> None:
    """And it can say no where the file was made with --ring."""
    plain, ring = tmp_path / "plain", tmp_path / "ring"
    options = ("--tracer", "function", "--size", "64K", "-f", "f?")
    assert ftpatch("enable", program, *options, "-o", plain).code == 0
    assert ftpatch("enable", program, *options, "--ring", "-o", ring).code == 0
    for path, word, kept in [
        (plain, "1", True),
        (ring, "0", False),
        (ring, "", True),
        (plain, "yes", False),
        (ring, "00", True),
    ]:
        trace = tmp_path / "t.trace"
        trace.unlink(missing_ok=True)
        env = {**os.environ, "FTPATCH_TRACE": str(trace), "FTPATCH_TRACE_RING": word}
        done = subprocess.run(
            [path, "1", "20000", tmp_path / "log"], env=env, check=True, capture_output=True
        )
        assert (b"neither 1 nor 0" in done.stderr) == (len(word) > 1)
        said = ftpatch("report", trace)
        assert ("overwritten" in said.out) == kept and ("lost when" in said.out) != kept


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tracer", "function_profile", "--ring"), "records sums"),
        (("--tracer", "nop", "--ring"), "the nop tracer records nothing"),
        (("--tracer", "nop", "--off"), "the nop tracer records nothing"),
        (("--ring",), "--ring requires a --tracer of programs"),
        (("--tracer", "boot", "--off"), "--off requires a --tracer of programs"),
    ],
)
def test_it_is_refused(program: Path, tmp_path: Path, words: Sequence[str], said: str) -> None:
    done = ftpatch("enable", program, *words, "-o", tmp_path / "out")
    assert done.code == 2 and said in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
