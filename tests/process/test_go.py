# SPDX-License-Identifier: MIT
"""Go programs while they run: what would meet a goroutine's stack is refused, the C that they call
is traced and probed, and counted."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.busy import ours_in, taken_out
from tests.support.command import ftpatch
from tests.support.probed_process import hits
from tests.support.sampling import scaled
from tests.support.told import Told
from tests.support.trace_events import calls_in, read_trace

pytestmark = [
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64"),
    pytest.mark.skipif(shutil.which("go") is None, reason="golang-go is not installed"),
]
PROGRAMS = Path(__file__).parent.parent / "programs"
PAD = "-fpatchable-function-entry=5"
THREADS = "4"
"""Threads that run goroutines at once."""
CALLS = 2000
THROUGH = "long through(long (*to)(long), long n) { return to(n) + 1; }\n"


@pytest.fixture(autouse=True)
def _threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMAXPROCS", THREADS)


def _built(folder: Path, name: str, **environment: str) -> Path:
    path = folder / "prog"
    words = ["go", "build", "-o", str(path), str(PROGRAMS / name)]
    subprocess.run(words, env=os.environ | environment, cwd=folder, check=True)
    return path


def _without_sections(path: Path) -> None:
    """Cut off the section headers, as packers do."""
    with path.open("r+b") as file:
        for at, size in ((40, 8), (58, 6)):  # e_shoff; e_shentsize, e_shnum, e_shstrndx
            file.seek(at)
            file.write(bytes(size))


@pytest.mark.parametrize("form", ["plain", "no-sections"])
def test_goroutines_are_left_alone(tmp_path: Path, form: str) -> None:
    path = _built(tmp_path, "goroutines.go")
    if form == "no-sections":
        _without_sections(path)
    place = "main.work" if form == "plain" else "0x401000"
    room = "a Go program, whose goroutines' stacks have no room for probes, and are copied"
    with Told(path) as program:
        made = program.asks(1000)
        for verb, said in (("status", "1 image, 1 without call sites"), ("check", "every inva")):
            told = ftpatch(verb, "--pid", program.pid)
            assert told.code == 0 and said in told.out, told.err
        for words, code, said in (
            (("list",), 2, "no image has call sites"),
            (("enable",), 2, "a Go program, whose compiler leaves no call sites"),
            (("enable", "-f", "main.work"), 2, "a Go program, whose compiler leaves no call sites"),
            (("trace", "--seconds", "1"), 125, "a Go program, whose compiler leaves no call sites"),
            (("probe", f"p:x {place}", "--seconds", "1"), 2, room),
            (("probe", f"r:x {place}", "--seconds", "1"), 2, room),
        ):
            told = ftpatch(words[0], "--pid", program.pid, *words[1:])
            assert (told.code, told.out, told.err.count("\n")) == (code, "", 1)
            assert said in told.err
        assert ours_in(int(program.pid)) == []
        assert program.asks(1000) == made == "made 140500\n"
        program.require_clean()
    told = ftpatch("probe", path, f"p:x {place}", "-o", tmp_path / "out")
    assert told.code == 2 and room in told.err


@pytest.fixture(scope="module")
def calling_c(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("go")
    source, library = folder / "through.c", folder / "libthrough.so"
    source.write_text(THROUGH)
    words = ["gcc", "-O1", PAD, "-shared", "-fpic", str(source), "-o", str(library)]
    subprocess.run(words, check=True)
    flags = {
        "CGO_CFLAGS": f"-O1 {PAD}",
        "CGO_LDFLAGS": f"-L{folder} -lthrough -Wl,-rpath,{folder}",
    }
    return _built(folder, "calls_c.go", CGO_ENABLED="1", **flags)


@pytest.mark.scaled
@pytest.mark.parametrize("tracer", ["function", "function_graph", "function_profile"])
def test_the_c_that_it_calls(calling_c: Path, tmp_path: Path, tracer: str) -> None:
    """A library of C, through which Go panics; of the program itself entries only."""
    with Told(calling_c) as program:
        for number in range(scaled(5, 1)):
            trace = tmp_path / f"{number}.trace"
            words = ("--tracer", tracer, "--lib", "libthrough.so", "-f", "through", "-o", trace)
            more = ("-f", "work") if tracer == "function" else ()
            said = ftpatch("enable", "--pid", program.pid, *words, *more)
            assert said.code == 0, said.err
            assert program.asks(CALLS) == f"done {CALLS}\n"
            taken_out(int(program.pid))
            assert ours_in(int(program.pid)) == []
            assert program.asks(100) == "done 100\n"
            program.require_clean()
            assert calls_in(read_trace(trace)).total() == (2 if more else 1) * CALLS


def test_returns_in_its_own_file_are_not_replaced(calling_c: Path, tmp_path: Path) -> None:
    with Told(calling_c) as program:
        for tracer in ("function_graph", "function_profile"):
            words = ("--tracer", tracer, "-f", "work", "-o", tmp_path / "t.trace")
            said = ftpatch("enable", "--pid", program.pid, *words)
            assert (said.code, said.err.count("\n")) == (2, 1)
            assert "whose runtime reads the return addresses that would be replaced" in said.err
            assert "use --tracer function" in said.err
        assert ours_in(int(program.pid)) == []
        assert program.asks(100) == "done 100\n"


def test_probes_of_the_libraries_that_it_calls(calling_c: Path, tmp_path: Path) -> None:
    trace = tmp_path / "t.trace"
    with Told(calling_c) as program:
        probes = ("p:in libthrough.so:through", "r:out libthrough.so:through $retval:s64")
        more = ("p:asked libc.so.6:getppid", "r:told libc.so.6:getppid $retval:s32")
        said = ftpatch("probe", "--pid", program.pid, *probes, *more, "--keep", "-o", trace)
        assert said.code == 0, said.err
        assert program.asks(CALLS) == f"done {CALLS}\n"
        taken_out(int(program.pid))
        assert ours_in(int(program.pid)) == []
        assert program.asks(100) == "done 100\n"
        program.require_clean()
    counted, rows = hits(trace)
    returned = sorted(n + 1 for n in range(CALLS) if n % 7)  # the others panic
    expected = {"in": CALLS, "out": len(returned), "asked": CALLS, "told": CALLS}
    assert counted == expected
    assert sorted(row["values"]["arg1"] for row in rows["out"]) == returned
