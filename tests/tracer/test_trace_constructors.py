# SPDX-License-Identifier: MIT
"""``trace --lib``: constructors of libraries that the program is linked with. The library
counts its calls itself, and prints their number at the end."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, child_env, ftpatch_command, ftpatch_process
from tests.support.trace_file_programs import native

pytestmark = native
PAD = "-fpatchable-function-entry=5"
PTRACE = 101
"""Number of ptrace(2) (arch/x86/entry/syscalls/syscall_64.tbl)."""
LIBRARY = """
#include <pthread.h>
#include <stdexcept>
#include <stdio.h>
static int calls;
extern "C" __attribute__((noinline)) int leaf(int n)
{
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (n == 7)
        throw std::runtime_error("seven");
    return n;
}
static void *run(void *p) { leaf(1); return p; }
static struct Object {
    Object() { try { leaf(7); } catch (std::exception &) { leaf(1); } }
    ~Object() { leaf(2); fprintf(stderr, "calls %d\\n", calls); }
} object;
__attribute__((constructor)) static void begun(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, run, 0);
    pthread_join(thread, 0);
    leaf(0);
}
extern "C" int entry(int n) { return leaf(n); }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("constructors")
    (folder / "lib.cc").write_text(LIBRARY.replace("\\\\n", "\\n"))
    (folder / "prog.c").write_text("int entry(int); int main(void) { return entry(3); }\n")
    for words in (
        ["g++", "-O1", PAD, "-shared", "-fPIC", "-pthread", "lib.cc", "-o", "libbegins.so"],
        ["gcc", "-O1", PAD, "prog.c", "-L.", "-lbegins", "-Wl,-rpath,$ORIGIN", "-o", "prog"],
        ["gcc", "-O1", "prog.c", "-L.", "-lbegins", "-Wl,-rpath,$ORIGIN", "-o", "bare"],
    ):
        subprocess.run(words, cwd=folder, check=True)
    return folder


def _calls(text: str) -> int:
    (count,) = re.findall("^calls ([0-9]+)$", text, re.MULTILINE)
    return int(count)


@pytest.mark.parametrize("tracer", ["function", "function_graph"])
@pytest.mark.parametrize("program", ["prog", "bare"])
def test_all_calls(program: str, tracer: str, folder: Path) -> None:
    """Those of a constructor's thread and after its exception as well."""
    words = ["--lib", "libbegins*", "--tracer", tracer, "--format", "json", f"{folder}/{program}"]
    found = ftpatch_process("trace", *words)
    assert found.code == 3 and _calls(found.err) == 6
    for name, times in (("leaf", 6), ("begun", 1), ("run", 1), ("main", int(program == "prog"))):
        entered = f'"event": ?"entry"[^}}]*"function": ?"{name}[("]'
        assert len(re.findall(entered, found.out)) == times, name


def test_their_profile(folder: Path) -> None:
    found = ftpatch_process(
        "trace", "--lib", "libbegins*", "--tracer", "function_profile", f"{folder}/prog"
    )
    assert found.code == 3
    hits = {line.split()[-1]: line.split()[0] for line in found.out.splitlines()[2:]}
    assert (hits["leaf"], hits["begun()"], hits["entry"], hits["main"]) == ("6", "1", "1", "1")


def test_a_second_instance(folder: Path) -> None:
    """The file itself, which the program finds by name where its copy is preloaded by path. The
    first one's functions are called by both, and the last line has all."""
    preload = {"LD_PRELOAD": f"{folder}/libbegins.so"}
    words = ["--lib", "libbegins*", "--tracer", "function", "--format", "json", f"{folder}/prog"]
    found = ftpatch_process("trace", *words, env=preload)
    counts = sorted(map(int, re.findall("^calls ([0-9]+)$", found.err, re.MULTILINE)))
    assert found.code == 3 and len(counts) in (1, 2)
    entered = re.findall(r'"event": ?"entry"[^}]*"function": ?"leaf"', found.out)
    assert len(entered) == counts[-1]


def test_without_ptrace_the_rest_is_traced(folder: Path) -> None:
    """And what is not, is named."""
    outer = folder / "starting"
    source = Path(__file__).with_name("starting.c")
    words = ["gcc", "-w", "-pthread", f'-DLOG="{folder}/log"', str(source), "-o", str(outer)]
    subprocess.run(words, check=True)
    inner = ftpatch_command("trace", "--lib", "libbegins*", f"{folder}/prog")
    done = subprocess.run(
        [str(outer), "filter", str(PTRACE), *inner],
        capture_output=True,
        text=True,
        env=child_env(),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 3 and "entry() {" in done.stdout and "begun" not in done.stdout
    assert "constructors and libraries opened later: not traced: " in done.stderr
    assert _calls(done.stderr) == 6
