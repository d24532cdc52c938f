# SPDX-License-Identifier: MIT
"""``ftpatch.Process``: tracers, probes and watches in a running process, which counts itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import ftpatch
from tests.support.busy import ours_in
from tests.support.command import ftpatch as command
from tests.support.watch_live import cannot

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
PADS = "-fpatchable-function-entry=5"
LIBRARY = """
static int served;
__attribute__((noinline)) int serve(int n) { served++; return n + 1; }
__attribute__((patchable_function_entry(0, 0))) int told(void) { return served; }
"""
PROGRAM = """
#include <stdio.h>
#define LEFT __attribute__((patchable_function_entry(0, 0)))
int serve(int n), told(void);
int worked;
__attribute__((noinline)) int work(int n) { worked++; return serve(n) * 2; }
__attribute__((noinline)) int rest(int n) { return work(n) - 1; }
LEFT int main(void)
{
	int n, i;

	puts("ready");
	fflush(stdout);
	while (scanf("%d", &n) == 1) {
		for (i = 0; i < n; i++)
			rest(i);
		printf("%d %d\\n", worked, told());
		fflush(stdout);
	}
	return 0;
}
"""
TIMES = 5


class Works:
    """The program, running."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.program = program
        self.process = ftpatch.Process(program.pid)

    def work(self) -> int:
        """Let it work; how often it has in all."""
        assert self.program.stdin is not None and self.program.stdout is not None
        self.program.stdin.write(f"{TIMES}\n")
        self.program.stdin.flush()
        worked, served = map(int, self.program.stdout.readline().split())
        assert worked == served
        return worked


@pytest.fixture
def works(tmp_path: Path) -> Iterator[Works]:
    """It runs; in the end it is as it was."""
    (tmp_path / "serve.c").write_text(LIBRARY)
    (tmp_path / "work.c").write_text(PROGRAM)
    flags = ["gcc", "-g", "-O1", PADS]
    words = [*flags, "-shared", "-fPIC", "serve.c", "-o", "libserve.so"]
    subprocess.run(words, cwd=tmp_path, check=True)
    subprocess.run([*flags, "work.c", "./libserve.so", "-o", "work"], cwd=tmp_path, check=True)
    pipe = subprocess.PIPE
    with subprocess.Popen(["./work"], stdin=pipe, stdout=pipe, text=True, cwd=tmp_path) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        yield Works(program)
        assert ours_in(program.pid) == []
        assert command("check", "--pid", str(program.pid)).code == 0
        program.communicate()
    assert program.returncode == 0


def _calls(trace: Path) -> dict[str, int]:
    names = ftpatch.Trace(trace).columns()["function"].tolist()
    return {name: names.count(name) for name in names}


def test_calls_are_those_that_it_counts(works: Works, tmp_path: Path) -> None:
    process, trace = works.process, tmp_path / "t.trace"
    done = process.enable(["work", "serve"], lib="libserve*", output=trace)
    assert (done.changed, done.trace, done.threads) == (2, trace, 1)
    assert 0 < done.pause < 10 and done.refused == ()
    assert works.work() == TIMES
    assert process.enable("rest").changed == 1
    assert works.work() == 2 * TIMES
    assert process.disable("serve", lib="libserve*").changed == 1
    assert works.work() == 3 * TIMES
    process.record(False)
    assert works.work() == 4 * TIMES
    process.record(True)
    assert works.work() == 5 * TIMES
    out = process.undo()
    assert (out.changed, out.left, out.foreign) == (2, "", ()) and out.pause > 0
    assert works.work() == 6 * TIMES
    assert _calls(trace) == {"work": 4 * TIMES, "serve": 2 * TIMES, "rest": 3 * TIMES}


def test_options_of_a_tracer(works: Works, tmp_path: Path) -> None:
    trace = tmp_path / "t.trace"
    trace.write_text("taken")
    with pytest.raises(ftpatch.OutputError, match="the output exists"):
        works.process.enable("work", output=trace)
    works.process.enable("*", notrace="rest", args=True, size=1 << 20, output=trace, force=True)
    works.work()
    works.process.undo()
    work = ftpatch.Trace(trace).arguments("work")
    assert work["n"].tolist() == [*range(TIMES)]
    works.process.enable("r??t", tracer="function", output=trace, force=True, max_stack=64)
    works.work()
    works.process.undo()
    assert _calls(trace) == {"rest": TIMES}
    assert trace.stat().st_size < 1 << 20


def test_what_cannot_be(works: Works, tmp_path: Path) -> None:
    process, trace = works.process, tmp_path / "t.trace"
    for refused, reason in (
        (lambda: process.enable("wrok"), "matches no"),
        (lambda: process.enable(lib="libnone*"), "matches no library that it has loaded"),
        (lambda: process.enable(tracer="grpah"), "grpah"),
        (lambda: process.enable(size=1), "too small"),
        (lambda: process.enable("work", tracer=3), "tracer"),  # type: ignore[arg-type]
        (lambda: process.disable("work"), "ftpatch is not attached"),
        (process.undo, "ftpatch is not attached"),
        (lambda: process.record(True), "it records nothing"),
        (lambda: process.probe(()), "no probes"),
        (lambda: process.watch(()), "nothing to watch"),
        (lambda: process.watch("nothing:rw-"), "no such symbol"),
    ):
        with pytest.raises(ftpatch.UsageError, match=reason):
            refused()
    process.enable("work", output=trace)
    with pytest.raises(ftpatch.UsageError, match="already has the function_graph tracer"):
        process.enable("rest", tracer="function")
    with pytest.raises(ftpatch.UsageError, match="ftpatch is already attached"):
        process.probe("p work")
    process.undo()


def test_probes_are_hit_as_often_as_it_counts(works: Works, tmp_path: Path) -> None:
    process, trace = works.process, tmp_path / "t.trace"
    probes = ["p:own work n=$arg1:s32", "r:lib libserve.so:serve ret=$retval:s32"]
    done = process.probe(probes, output=trace)
    assert done.changed == 2 and done.trace == trace
    with pytest.raises(ftpatch.UsageError, match="it has probes, and no tracer"):
        process.enable("work")
    assert works.work() == TIMES
    assert process.undo().changed == 2
    assert works.work() == 2 * TIMES
    hits = ftpatch.Trace(trace).columns()
    own = hits["probe"] == "own"
    assert hits["n"][own].tolist() == [*range(TIMES)]
    assert hits["ret"][~own].tolist() == [*range(1, TIMES + 1)]


def test_probes_that_cannot_be(works: Works, tmp_path: Path) -> None:
    wrong = ["p wrok", "p libnone.so:serve", "p:own work"]
    with pytest.raises(ftpatch.UsageError, match="no library 'libnone") as raised:
        works.process.probe(wrong, output=tmp_path / "t.trace")
    (note,) = raised.value.__notes__
    assert "no such function 'wrok'" in note
    done = works.process.probe(wrong, keep_going=True, output=tmp_path / "t.trace")
    assert done.changed == 1 and len(done.refused) == 2
    works.process.undo()


def test_accesses_are_those_that_it_counts(works: Works, tmp_path: Path) -> None:
    if cannot():
        pytest.skip(cannot())
    trace = tmp_path / "t.trace"
    words = ["worked:-w-", "libserve.so:served:-w-"]
    with works.process.watch(words, output=trace) as watching:
        assert (watching.watches, watching.threads) == (("worked:-w-", words[1]), 1)
        assert (watching.notes, watching.trace) == ((), trace)
        before = works.work()
        assert watching.stop() == (trace,) == watching.stop()
    works.work()
    assert watching.accesses == 2 * before
    rows = ftpatch.Trace(trace).columns()
    for name in ("worked", "libserve.so:served"):
        of = rows["symbol"] == name
        assert [int(new) for new in rows["new"][of].tolist()] == [*range(1, TIMES + 1)]
    assert set(rows["function"][rows["symbol"] == "worked"].tolist()) == {"work"}
    with pytest.raises(ftpatch.OutputError, match="the output exists"):
        works.process.watch("worked:rw-", output=trace)
    with works.process.watch("worked:rw-", output=trace, force=True):
        works.work()
    assert len(ftpatch.Trace(trace).columns()["symbol"]) >= TIMES
