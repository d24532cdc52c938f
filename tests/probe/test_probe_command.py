# SPDX-License-Identifier: MIT
"""Programs that are started with probes: what they print, how they end, and what they and gdb
count."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, Result, child_env, ftpatch_command
from tests.support.probed_process import hits
from tests.support.sampling import SEED, scaled

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
LIBRARY = """
long n;
__attribute__((noinline)) long work(long by) { return n += by; }
__attribute__((constructor)) static void begin(void) { for (int i = 0; i < 3; i++) work(1); }
"""
PROGRAM = r"""
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
long work(long by);
extern long n;
static volatile sig_atomic_t asked;
static void ask(int number) { asked = number; }
int main(int argc, char **argv) {
    signal(SIGTERM, ask);
    close(open("ran", O_CREAT, 0600));
    for (int i = 1; i < argc; i++) {
        long number = atol(argv[i]);
        if (number < 0) { raise((int)-number); continue; }
        for (long k = 0; k < number; k++) { work(2); usleep(1000); if (asked) break; }
    }
    printf("%ld %d\n", n, (int)asked);
    return 7;
}
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program whose library is called by its own constructor, too; run in an empty folder."""
    (tmp_path / "work.c").write_text(LIBRARY)
    (tmp_path / "prog.c").write_text(PROGRAM)
    shared = ("cc", "-O1", "-shared", "-fPIC", "work.c", "-o", "libwork.so")
    linked = ("cc", "-O1", "prog.c", "libwork.so", f"-Wl,-rpath,{tmp_path}", "-o", "prog")
    for words in (shared, linked):
        subprocess.run(words, check=True, cwd=tmp_path)
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    return tmp_path / "prog"


def _probed(command: str, *words: str) -> Result:
    """As a process of its own, whose program has the same standard output."""
    done = subprocess.run(
        ftpatch_command("probe", "-c", command, *words),
        env=child_env(COLUMNS="80"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def test_from_constructors_on(program: Path) -> None:
    probes = ("p:work libwork.so:work by=$arg1:s64", "r:done libwork.so:work n=$retval:s64")
    done = _probed(f"{program} 5", *probes, "p:main main argc=$arg1:s32", "-o", "t", "-q")
    assert (done.code, done.out) == (7, "13 0\n"), done.err
    _, rows = hits(Path("t"))
    assert [row["values"]["by"] for row in rows["work"]] == [1] * 3 + [2] * 5
    assert [row["values"]["n"] for row in rows["done"]] == [1, 2, 3, 5, 7, 9, 11, 13]
    assert [row["values"]["argc"] for row in rows["main"]] == [2]


def test_ends_as_it_would(program: Path) -> None:
    probe = "p libwork.so:work"
    for arguments, code in (("1", 7), (f"1 -{int(signal.SIGKILL)}", 137), ("-6", 134)):
        done = _probed(f"{program} {arguments}", probe, "-q")
        assert done.code == code, done.err
    done = _probed("cat -", probe.replace("work.so:work", "c.so.6:read"), "-q")
    assert (done.code, done.out) == (0, "")  # what it reads is ours


def test_a_script_is_its_interpreter(program: Path) -> None:
    script = program.with_name("script")
    script.write_text(f"#!/bin/sh\necho from script\nexec {program} 1\n")
    script.chmod(0o755)
    done = _probed(str(script), "p:written libc.so.6:write", "-o", "t", "-q")
    assert (done.code, done.out) == (7, "from script\n5 0\n")
    assert hits(Path("t"))[0] == {"written": 1}  # not of what it starts in its place


@pytest.mark.parametrize(
    "words",
    [
        ("p libwork.so:wrok",),
        ("p libnone.so:work",),
        ("p libwork.so:work", "q"),
        ("p libwork.so:work", "--report", "none"),
        ("p libwork.so:work", "--keep"),
        ("p libwork.so:work", "--in-place"),
        ("p libwork.so:work", "--pid", "1"),
        ("p libwork.so:work", "--size", "1"),
        ("p libwork.so:work", "--bogus"),
        ("p libwork.so:work", "--plan"),
        (),
    ],
)
def test_refused_before_it_runs(program: Path, words: tuple[str, ...]) -> None:
    done = _probed(f"{program} 1", *words)
    assert done.code == 125 and not done.out
    assert done.err.count("\n") == 1 and done.err.startswith("ftpatch: ")
    assert not Path("ran").exists()


@pytest.mark.parametrize("command", ["", "'", "none-such", "/dev/null", ".", "./static"])
def test_what_cannot_be_started(tmp_path: Path, command: str) -> None:
    (tmp_path / "s.c").write_text('int main(void) { __builtin_puts("ran"); return 0; }')
    subprocess.run(["cc", "-static", "s.c", "-o", "static"], check=True, cwd=tmp_path)
    done = _probed(command.replace("./", f"{tmp_path}/"), "p main")
    assert done.code == 125 and not done.out
    assert done.err.count("\n") == 1 and done.err.startswith("ftpatch: ")


def test_a_program_that_the_kernel_cannot_run(program: Path, tmp_path: Path) -> None:
    """Its segments are beyond the file's end."""
    cut = tmp_path / "cut"
    cut.write_bytes(program.read_bytes()[:3000])
    cut.chmod(0o755)
    with subprocess.Popen([cut]) as alone:
        pass
    assert alone.returncode == -signal.SIGSEGV
    done = _probed(str(cut), "p main")
    assert done.code == 125
    assert f"{cut}: killed by signal 11 before its libraries were loaded" in done.err


def test_nothing_stays_when_the_reader_goes(program: Path, tmp_path: Path) -> None:
    left = tmp_path / "tmp"
    left.mkdir()
    with subprocess.Popen(
        ftpatch_command("probe", "-c", f"{program} 2000", "p work", "-q", "--format", "json"),
        env=child_env(TMPDIR=str(left)),
        stdout=subprocess.PIPE,
    ) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline()
        ours.stdout.close()
    assert ours.returncode == 128 + signal.SIGPIPE
    assert not [*left.iterdir()]


def test_it_runs_on_when_the_time_is_over(program: Path) -> None:
    words = ("p:work libwork.so:work", "--seconds", "0.2", "-o", "t", "-q")
    done = _probed(f"{program} 2000", *words)
    assert (done.code, done.out) == (7, "4003 0\n"), done.err
    assert 3 <= hits(Path("t"))[0]["work"] < 2003


def test_a_signal_ends_both(program: Path) -> None:
    words = ftpatch_command("probe", "-c", f"{program} 100000", "p:work libwork.so:work", "-o", "t")
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=child_env(), stdout=pipe, stderr=pipe, text=True) as running:
        until = time.monotonic() + PATIENCE
        while not Path("ran").exists() and time.monotonic() < until:
            time.sleep(0.01)
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 7, err
    total, asked = map(int, re.findall(r"^(\d+) (\d+)$", out, re.MULTILINE)[0])
    assert asked == signal.SIGTERM
    assert 3 <= hits(Path("t"))[0]["work"] <= (total - 3) // 2 + 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_it_runs_ends_both(program: Path, number: signal.Signals) -> None:
    """Whenever it comes: a program that was let go on ends by it too, none runs on."""
    rng = random.Random(f"{SEED} {number}")
    for _ in range(scaled(20, 4)):
        Path("ran").unlink(missing_ok=True)
        words = ftpatch_command("probe", "-c", f"{program} 60000", "p libwork.so:work", "-q")
        with subprocess.Popen(words, env=child_env(), stderr=subprocess.DEVNULL) as running:
            until = time.monotonic() + PATIENCE
            while not _running(program) and time.monotonic() < until:
                time.sleep(0.005)
            time.sleep(rng.uniform(0.0, 0.2))
            running.send_signal(number)
        assert running.returncode in (7, 128 + number, -number, 125)
        assert not _runs(program)


def _runs(program: Path) -> bool:
    """Whether it runs, a moment later: what was sent SIGKILL may not have ended yet."""
    for _ in range(50):
        if not _running(program):
            return False
        time.sleep(0.1)
    return True


def _running(program: Path) -> bool:
    return any(_is(one, program) for one in Path("/proc").glob("[0-9]*/exe"))


def _is(exe: Path, program: Path) -> bool:
    try:
        return exe.samefile(program)
    except OSError:
        return False


def test_it_survives_that_ftpatch_is_killed(program: Path) -> None:
    """At any moment: either nothing of it has run, or it runs to its end."""
    rng, ran, took = random.Random(f"{SEED} killed"), 0, 0.0
    for _ in range(scaled(16, 5)):
        begun = time.monotonic()
        words = ftpatch_command("probe", "-c", f"{program} 600", "p:work libwork.so:work", "-q")
        with subprocess.Popen(
            words, env=child_env(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as running:
            if took:
                time.sleep(rng.uniform(0.2, 1.0) * took)
                running.kill()
            said, _ = running.communicate(timeout=PATIENCE)  # until all that it began have ended
        took = took or time.monotonic() - begun
        if Path("ran").exists():
            ran += 1
            Path("ran").unlink()
            assert re.fullmatch(r"1203 (0|15)\n|\d+ 15\n", said)
        else:
            assert not said
    if scaled(1, 0):
        assert ran > 1


@pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb")
def test_counts_are_those_of_gdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a function of libc in a program of the distribution, from its constructors on."""
    for name in "abc":
        (tmp_path / "listed" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    command = "ls -l listed"
    done = _probed(command, "p:malloc libc.so.6:malloc", "p:opendir opendir", "-o", "t", "-q")
    assert done.code == 0, done.err
    assert hits(Path("t"))[0] == {"malloc": _by_gdb(command, "malloc"), "opendir": 1}


def _by_gdb(command: str, function: str) -> int:
    """Calls of a function of libc after the dynamic linker has told of all libraries."""
    script = f"""
import gdb
class Count(gdb.Breakpoint):
    calls = 0
    def stop(self):
        Count.calls += 1
        return False
gdb.execute("set confirm off"); gdb.execute("set breakpoint pending on")
gdb.execute("set startup-with-shell off"); gdb.execute("set auto-solib-add on")
gdb.execute("break _dl_debug_state")
gdb.execute("run"); gdb.execute("continue"); gdb.execute("delete")
maps = gdb.execute("info proc mappings", to_string=True).splitlines()
base = next(int(line.split()[0], 16) for line in maps if line.endswith("/libc.so.6"))
Count(f"*{{base + {_offset(function)}:#x}}")
gdb.execute("continue")
print("calls", Count.calls)
"""
    Path("count.py").write_text(script)
    words = ["gdb", "-nx", "-q", "-batch", "-x", "count.py", "--args", *command.split()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return int(re.findall(r"^calls (\d+)$", done.stdout, re.MULTILINE)[0])


def _offset(function: str) -> int:
    libc = subprocess.run(["ldd", "/bin/ls"], capture_output=True, text=True, check=True).stdout
    path = re.findall(r"=> (\S+/libc\.so\.6)", libc)[0]
    named = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout
    return int(re.findall(rf"^(\w+) T {function}(?:@|$)", named, re.MULTILINE)[0], 16)
