# SPDX-License-Identifier: MIT
"""Traps in running processes that use SIGILL themselves, from many threads: the program counts its
calls, its signals and what went wrong, and does not notice."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftpatch.api.probing import parsed_probes
from ftpatch.errors import InputError, Refused
from ftpatch.probe.in_process import Limits, lay_into
from ftpatch.probe.targets import find_targets
from ftpatch.process import attached
from ftpatch.process.attached import detach
from ftpatch.process.loaded import loaded_images
from ftpatch.process.process import Process, find_process
from ftpatch.process.process_journal import recall
from ftpatch.tracer.recordings import TraceFiles
from tests.support.busy import ended, ours_in, taken_out
from tests.support.command import ftpatch
from tests.support.probed_process import Asked, asked, compiled, hits, total
from tests.support.running import address_by_nm
from tests.support.sampling import scaled

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
SOURCE = Path(__file__).parent.parent / "programs" / "own_sigill.c"
PROBES = (
    *("p:w work n=$arg1:s64", "r:l work $retval:s64", "p:m libc.so.6:malloc", "p:f libc.so.6:fork"),
    *("r:pc libc.so.6:pthread_create", "p:s libc.so.6:sigaction"),
)
PATIENCE = 60
"""Seconds until everything can be taken out."""


def _compiled(folder: Path, *flags: str) -> Path:
    path = folder / "own_sigill"
    words = ["gcc", "-O1", "-pthread", *flags, str(SOURCE), "-o", str(path)]
    subprocess.run(words, check=True)
    return path


@contextlib.contextmanager
def _running(path: Path, threads: int) -> Iterator[Asked]:
    """Let it run. It must end well."""
    pipe = subprocess.PIPE
    with subprocess.Popen([path, str(threads)], stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        yield Asked(program)
        program.communicate()
    assert program.returncode == 7


def _calls(running: Asked, rounds: int) -> int:
    """Let each thread make so many rounds: its number of calls."""
    calls, errors, _ = running.ask(f"r {rounds}").split(", ", 2)
    assert errors.startswith("0 errors"), errors
    return int(calls.split()[0])


@contextlib.contextmanager
def _at_work(running: Asked) -> Iterator[None]:
    """Let all threads make rounds meanwhile."""
    assert running.program.stdin is not None
    running.program.stdin.write("b\n")
    running.program.stdin.flush()
    yield
    said = running.ask("")
    assert " 0 errors, " in said, said


def _cycle(process: Process, trace: Path) -> None:
    loaded, _ = loaded_images(process)
    refused = Refused()
    definitions = parsed_probes(loaded[0].file, PROBES, refused)
    targets = find_targets(loaded, definitions, refused, optimize=False)
    assert not refused.errors and [target.traps for target in targets] == [True, True]
    limits = Limits(depth=1024, size=1 << 20)
    with TraceFiles(trace, process.place / "exe", loaded[0].path) as made:
        lay_into(process, loaded, targets, limits, made.environment, str(trace))
        time.sleep(0.02)
        _taken_out(process)
        for file in made.finish():
            file.unlink()


def _taken_out(process: Process) -> None:
    end = time.monotonic() + PATIENCE
    while recall(process) is not None:
        assert time.monotonic() < end
        with contextlib.suppress(InputError):  # a thread may not stop in time
            detach(process)


@pytest.mark.parametrize("link", ["-pie", "-static"])
def test_every_hit_is_counted(tmp_path: Path, link: str) -> None:
    """While 24 threads block, raise, wait, fork and spawn. Children record into their own files."""
    path, trace = _compiled(tmp_path, link), tmp_path / "t.trace"
    with _running(path, 24) as running:
        _calls(running, 40)
        probes = ("p:w work n=$arg1:s64", "r:l work $retval:s64")
        said = ftpatch("probe", *running.pid, *probes, "--no-optimize", "--keep", "-o", trace)
        assert said.code == 0, said.err
        calls = _calls(running, 70)
        said = ftpatch("undo", *running.pid)
        assert said.code == 0, said.err
        assert ours_in(running.program.pid) == []
        assert ftpatch("check", *running.pid).code == 0
        _calls(running, 40)
    rows = [
        row
        for row in ftpatch("report", trace, "--no-children", "--json").json
        if "hits" in row and row["pid"] == running.program.pid
    ]
    assert {row["probe"]: (row["way"], row["hits"], row["missed"]) for row in rows} == {
        "w": ("trap", calls, 0),
        "l": ("trap", calls, 0),
    }


def test_values(tmp_path: Path) -> None:
    path, trace = compiled(tmp_path), tmp_path / "t.trace"
    probes = ("p:six six a=$arg1:s64 f=$arg6:s64", "r:three three $retval:s64")
    with asked(path) as running:
        before = running.maps()
        said = ftpatch("probe", *running.pid, *probes, "--no-optimize", "--keep", "-o", trace)
        assert said.code == 0, said.err
        assert running.ask("c40") == total(40)
        assert ftpatch("undo", *running.pid).code == 0
        assert running.ask("c9") == total(9)
        running.require_clean(before)
    counted, rows = hits(trace)
    assert counted == {"six": 40, "three": 40}
    assert [row["values"] for row in rows["six"]] == [{"a": i, "f": i + 5} for i in range(40)]
    assert [row["values"]["arg1"] for row in rows["three"]] == [i * i - 3 for i in range(40)]


@pytest.mark.scaled
def test_cycles(tmp_path: Path) -> None:
    path = _compiled(tmp_path)
    with _running(path, scaled(24, 8, 48)) as running:
        process = find_process(running.program.pid)
        with _at_work(running):
            for number in range(scaled(40, 5, 1000)):
                try:
                    _cycle(process, tmp_path / f"{number}.trace")
                except InputError as error:
                    known = ("did not stop", "stayed inside", "blocks SIGILL", "has ended")
                    assert any(one in str(error) for one in known), error
                    _taken_out(process)
                assert ours_in(process.pid) == []
        said = ftpatch("check", *running.pid)
        assert said.code == 0, said.out
        _calls(running, 40)


@pytest.mark.scaled
def test_killed_at_any_moment(tmp_path: Path) -> None:
    path, rng = _compiled(tmp_path), random
    kept = ("--keep", "--force", "-o", str(tmp_path / "t.trace"))
    with _running(path, 4) as running:
        pid = running.pid
        lay = ("probe", *pid, *PROBES, "--no-optimize", *kept)
        with _at_work(running):
            begun = time.monotonic()
            assert ended(signal.SIGKILL, 60, *lay, both=True)[0] == 0
            laying = time.monotonic() - begun
            taken_out(running.program.pid)
            for _ in range(scaled(10, 3, 200)):
                ended(signal.SIGKILL, laying * rng.uniform(0.3, 1.1), *lay, both=True)
                if rng.random() < 0.5:
                    ended(signal.SIGKILL, laying * rng.uniform(0.2, 0.8), "undo", *pid, both=True)
                taken_out(running.program.pid)
                assert ours_in(running.program.pid) == []
                checked = ftpatch("check", *pid)
                assert checked.code == 0, checked.out
        _calls(running, 40)


def test_a_stripped_function_without_room(tmp_path: Path) -> None:
    """A function of one byte has no room for a jump."""
    more, trace = tmp_path / "more.c", tmp_path / "t.trace"
    more.write_text(
        'void tiny(void); __asm__(".globl tiny\\n.type tiny, @function\\n"\n'
        '"tiny: ret\\n.size tiny, 1\\n");\n'
        "__attribute__((constructor)) static void first(void) { tiny(); }\n"
    )
    path = compiled(tmp_path, str(more))
    at = hex(address_by_nm(path, "tiny"))
    subprocess.run(["strip", path], check=True)
    with asked(path) as running:
        before = running.maps()
        said = ftpatch("probe", *running.pid, f"p:tiny {at}", "--keep", "-o", trace)
        assert said.code == 0, said.err
        assert running.ask("c1") == total(1)
        assert ftpatch("undo", *running.pid).code == 0
        running.require_clean(before)
    (row,) = [row for row in ftpatch("report", trace, "--json").json if "hits" in row]
    assert (row["way"], row["missed"]) == ("trap", 0)


@pytest.mark.parametrize("how", ["handler", "pending"])
def test_what_cannot_be_taken_over_yet(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler that runs with SIGILL blocked, and returns to where it is not; a signal that waits
    until it is not blocked any more."""
    monkeypatch.setattr(attached, "WAIT", 0.5)
    source, path = tmp_path / "odd.c", tmp_path / "odd"
    source.write_text(
        "#include <signal.h>\n#include <stdio.h>\n#include <unistd.h>\n"
        "__attribute__((noipa)) long work(long n) { return n + 1; }\n"
        'static void waits(int n) { char c; if (n == SIGUSR1) puts("ready"); fflush(stdout);\n'
        "  while (read(0, &c, 1) == 1 && c != '\\n') work(1); puts(\"on\"); fflush(stdout); }\n"
        "int main(void) { struct sigaction act = {.sa_handler = waits}; sigset_t ill; char c;\n"
        "  sigemptyset(&ill); sigaddset(&ill, SIGILL); sigfillset(&act.sa_mask);\n"
        "  sigaction(SIGUSR1, &act, 0);\n"
        "  if (HOW[0] == 'h') raise(SIGUSR1);\n"
        '  else { sigprocmask(SIG_BLOCK, &ill, 0); raise(SIGILL); puts("ready"); waits(0);\n'
        "    signal(SIGILL, SIG_IGN); sigprocmask(SIG_UNBLOCK, &ill, 0); }\n"
        "  while (read(0, &c, 1) == 1) work(2);\n"
        "  return 7; }\n"
    )
    subprocess.run(["gcc", "-O1", f'-DHOW="{how}"', str(source), "-o", str(path)], check=True)
    pipe = subprocess.PIPE
    with subprocess.Popen([path], stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        running = Asked(program)
        before = running.maps()
        words = ("probe", *running.pid, "p:one work", "--no-optimize")
        said = ftpatch(*words, "--seconds", "0.1")
        wanted = "in a signal handler that blocks SIGILL" if how == "handler" else "SIGILL was pend"
        assert said.code == 2 and wanted in said.err and said.err.count("\n") == 1, said.err
        running.require_clean(before)
        assert running.ask("") == "on"
        said = ftpatch(*words, "--seconds", "0.1", "-q")
        assert said.code == 0, said.err
        program.communicate("xx")
    assert program.returncode == 7
