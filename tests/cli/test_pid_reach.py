# SPDX-License-Identifier: MIT
"""What --pid reaches: other users' processes, threads, mount namespaces, 32 bits; and what it does
not, each with a line that says so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ftpatch.errors import InputError
from ftpatch.process.maps import read_maps
from ftpatch.process.process import find_process
from tests.support.command import ftpatch, ftpatch_as
from tests.support.padded import padded
from tests.support.running import (
    PROGRAM,
    address_by_nm,
    needs_gdb,
    program_with_library,
    running,
)
from tests.support.stopping import until

pytestmark = needs_gdb
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may look into."""
    with tempfile.TemporaryDirectory(prefix="ft", dir="/tmp") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def test_errors_are_one_line_each(folder: Path) -> None:
    path = padded(folder, PROGRAM)
    with running(path) as program:
        of = ("--pid", str(program.pid))
        both = [ftpatch(verb, *of, path) for verb in ("status", "list", "check")]
    for result in [*both, *(ftpatch(verb) for verb in ("status", "list", "check"))]:
        assert result.code == 2 and not result.out and result.err.count("\n") == 1
    assert all("mutually exclusive" in result.err for result in both)
    for verb in ("status", "list", "check"):
        ended = ftpatch(verb, *of)
        assert ended.code == 2 and not ended.out
        assert re.fullmatch(r"ftpatch: \d+: no such process; .+\n", ended.err)
        kernel = ftpatch(verb, "--pid", "2")
        assert kernel.code == 2 and "a kernel thread" in kernel.err
        assert ftpatch(verb, "--pid", "one").code == 2
    assert "use it with --pid" in ftpatch("list", "--lib", "x", path).err


def _wait_until_first_has_ended(pid: int) -> None:
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z"))


def test_threads(folder: Path) -> None:
    """The number of a thread is none of a process; one whose first thread has ended is one."""
    source = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *go(void *p) { read(0, (char[1]){0}, 1); exit(0); return p; }
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, go, 0);
    puts("ready"); fflush(stdout);
    pthread_exit(0);
}
"""
    path = padded(folder, source, "-pthread")
    with running(path) as program:
        pid = program.pid
        (other,) = {int(one.name) for one in Path(f"/proc/{pid}/task").iterdir()} - {pid}
        _wait_until_first_has_ended(pid)
        before = replace(find_process(pid), thread=pid)  # a moment ago
        with pytest.raises(InputError, match="its first thread has just ended; try again"):
            read_maps(before)
        result = ftpatch("status", "--pid", str(pid))
        check = ftpatch("check", "--pid", str(pid))
        refused = ftpatch("status", "--pid", str(other))
    assert result.code == 0 and f"{path} " in result.out and check.code == 0
    assert refused.code == 2
    assert refused.err.endswith(f"a thread of process {pid}; use --pid {pid}\n")


@as_root
def test_another_users_process(folder: Path) -> None:
    path = padded(folder, PROGRAM)
    with running(path) as program:
        pid = str(program.pid)
        for verb in ("check", "trace", "probe", "undo"):  # all is imported
            ftpatch(verb, "--pid", pid, *(("-f", "no_such") if verb == "trace" else ()))
        said = f"ftpatch: {pid} ({path.name}): another user's process (root); run as root\n"
        verbs = ("status", "list", "check", "enable", "disable", "undo", "trace", "probe")
        for words in (*((verb,) for verb in verbs), ("probe", "p two")):
            result = ftpatch_as(NOBODY, *words, "--pid", pid)
            code = 125 if words == ("trace",) else 2
            assert (result.code, result.out, result.err) == (code, "", said), words


@as_root
def test_a_user_without_privileges(folder: Path) -> None:
    """May open the program itself, whatever has become of it, but no library that was replaced."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and scope.read_text().strip() != "0":
        pytest.skip("needs leave to read memory of other processes")
    path, library = program_with_library(folder)
    pipe = subprocess.PIPE
    with subprocess.Popen([path], stdin=pipe, stdout=pipe, user=NOBODY, group=NOBODY) as program:
        assert program.stdout is not None and program.stdout.readline() == b"ready\n"
        of = ("--pid", str(program.pid))
        for verb in ("status", "list", "check"):  # all is imported
            assert ftpatch(verb, *of).code == 0
        before = ftpatch_as(NOBODY, "list", *of, "--json")
        path.unlink()
        library.unlink()
        after, check = (
            ftpatch_as(NOBODY, *words, *of) for words in (["list", "--json"], ["check"])
        )
        program.communicate()
    assert before.code == 0 and len(before.json) == 5
    assert after.json == before.json[:3]
    assert (
        after.code == check.code == 2
        and "4 images, 2 without call sites, 1 unreadable" in check.out
    )
    for result in (after, check):
        assert result.err == (
            f"ftpatch: {library}: the mapped file has been deleted or replaced; "
            "run as root, which can open it\n"
        )


@as_root
def test_a_process_with_its_own_file_system(folder: Path) -> None:
    """What it calls /tmp/..., is another file for it."""
    program_with_library(folder)
    inside = "mount -t tmpfs none {0} && cp {1}/prog {1}/libl.so {0} && exec {0}/prog"
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "libl.so").write_bytes(b"another")
    script = inside.format(hidden, folder)
    words = ["unshare", "-m", "sh", "-c", script]
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs mount namespaces")
    with running(*words, LD_LIBRARY_PATH=str(hidden), LD_PRELOAD=f"{hidden}/libl.so") as program:
        of = ("--pid", str(program.pid))
        rows = ftpatch("list", *of, "--lib", "libl*", "--json").json
        check = ftpatch("check", *of)
    assert {row["symbol"] for row in rows} >= {"three", "four"}
    assert check.code == 0, check.out


def test_32_bits(folder: Path) -> None:
    if shutil.which("i686-linux-gnu-gcc") is None:
        pytest.skip("needs a compiler for i386")
    (folder / "prog.c").write_text(PROGRAM)
    path = folder / "prog"
    words = ["i686-linux-gnu-gcc", "-static", "-O1", "-fpatchable-function-entry=5"]
    subprocess.run([*words, f"{path}.c", "-o", path], check=True)
    with running(path) as program:
        of = ("--pid", str(program.pid))
        rows = ftpatch("list", *of, "-f", "one", "-f", "two", "--json").json
        check = ftpatch("check", *of)
    places = {row["symbol"]: int(row["ip"], 16) for row in rows}
    assert places == {name: address_by_nm(path, name) for name in ("one", "two")}
    assert check.code == 0, check.out


def test_trace_reaches_what_the_others_do(folder: Path) -> None:
    source = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int work(int n) { return n + getppid(); }
static void *go(void *p) { for (;;) { work(1); usleep(1000); } return p; }
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, go, 0);
    puts("ready"); fflush(stdout);
    pthread_exit(0);
}
"""
    path = padded(folder, source, "-pthread")
    with running(path) as program:
        _wait_until_first_has_ended(program.pid)
        words = ("trace", "--pid", str(program.pid), "-f", "work", "--seconds", "0.2")
        said = ftpatch(*words, "--format", "profile")
        assert said.code == 0 and " work\n" in said.out, said.err
        assert "not a time" in ftpatch(*words[:-1], "nan").err
        program.kill()
    kernel = ftpatch("trace", "--pid", "2")
    assert kernel.code == 125 and "a kernel thread" in kernel.err


@pytest.mark.parametrize("verb", ["trace", "enable", "probe", "watch"])
def test_a_mapped_file_is_never_an_output(folder: Path, verb: str) -> None:
    """The program's own, or a library's."""
    path, library = program_with_library(folder)
    held = {one: one.read_bytes() for one in (path, library)}
    words = {"probe": ("p main",), "watch": ("stdout:rw-",)}.get(verb, ())
    with running(path) as program:
        for one in held:
            said = ftpatch(verb, "--pid", str(program.pid), *words, "-o", one, "--force")
            assert said.code in (2, 125) and said.err.count("\n") == 1, said.err
            assert "mapped" in said.err or "another file of this run" in said.err
        program.kill()
    assert held == {one: one.read_bytes() for one in held}


def test_errors_lead_on(folder: Path) -> None:
    path = padded(folder, PROGRAM)
    with running(path) as program:
        of = ("--pid", str(program.pid))
        said = {
            "use libc.so.6:qsort": ftpatch("probe", *of, "p qsort"),
            f"see `ftpatch list --pid {program.pid}`": ftpatch("trace", *of, "-f", "nothing*"),
            "it has ld-linux-x86-64.so.2, libc.so.6": ftpatch("trace", *of, "--lib", "nothing*"),
            "libc.so.6 without call sites": ftpatch("trace", *of, "--lib", "libc.so*"),
        }
        program.kill()
    for hint, result in said.items():
        assert hint in result.err and result.err.count("\n") == 1, result.err
    for verb, ours in (("record", "`ftpatch trace -o FILE`"), ("replay", "`ftpatch report`")):
        assert ftpatch(verb, path).err == f"ftpatch: no such command '{verb}'; use {ours}\n"
