# SPDX-License-Identifier: MIT
"""Unwinders that are loaded after the tracer came, as glibc loads libgcc_s for the first
backtrace() or the first thread that is cancelled: the program counts what comes of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ftpatch.process.loaded import loaded_images
from ftpatch.process.process import find_process
from ftpatch.process.unwinders import find_unwinders
from tests.support.busy import ours_in
from tests.support.command import ftpatch

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
PADS = "-fpatchable-function-entry=5"
PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define LEFT __attribute__((patchable_function_entry(0, 0)))
#define NOINLINE __attribute__((noinline))

static NOINLINE int frames(int n)
{
    void *at[64];
    int deep = n ? frames(n - 1) : backtrace(at, 64);

    __asm__ volatile("");
    return deep;
}

static NOINLINE int waits(int n)
{
    int done = n ? waits(n - 1) : pause();

    __asm__ volatile("");
    return done + 1;
}

static NOINLINE int ends(int n)
{
    if (!n)
        pthread_exit(0);
    return ends(n - 1) + 1;
}

LEFT static void on(const char *way)
{
    void *library = dlopen("./libcleans.so", RTLD_NOW);
    int (*cleaned)(void *(*)(int), int) = dlsym(library, "cleaned");

    printf("%d\n", cleaned((void *(*)(int))(*way == 'c' ? waits : ends), *way == 'c'));
    fflush(stdout);
}

LEFT int main(void)
{
    char line[64];

    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (*line == 'b')
            printf("%d\n", frames(5));
        else if (*line == 'f' && !fork()) { /* in a child */
            printf("%d\n", frames(5));
            return 0;
        } else if (*line == 'f')
            wait(0);
        else
            on(line);
        fflush(stdout);
    }
    return 0;
}
"""
LIBRARY = r"""
#include <pthread.h>
#include <unistd.h>
static void *(*call)(int);
static int cleanups, started;
static void clean(int *n) { cleanups += *n; }
/* One clean-up on either side of calls that are traced. */
static void *run(void *unused)
{
    int own __attribute__((cleanup(clean))) = 7;
    __atomic_store_n(&started, 1, __ATOMIC_SEQ_CST);
    return call(3);
}
int cleaned(void *(*what)(int), int cancels)
{
    pthread_t thread;
    call = what;
    cleanups = started = 0;
    pthread_create(&thread, 0, run, 0);
    while (!__atomic_load_n(&started, __ATOMIC_SEQ_CST))
        usleep(100);
    usleep(20000);
    if (cancels)
        pthread_cancel(thread);
    pthread_join(thread, 0);
    return cleanups;
}
"""


class Later:
    """The program, running."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.program, self.pid = program, str(program.pid)

    def said(self) -> str:
        """Its next line."""
        assert self.program.stdout is not None
        return self.program.stdout.readline().strip()

    def does(self, what: str) -> str:
        """Let it do something, and return what it says of that."""
        assert self.program.stdin is not None
        self.program.stdin.write(f"{what}\n")
        self.program.stdin.flush()
        return self.said()

    @property
    def has_unwinder(self) -> bool:
        """Whether one is loaded."""
        return "libgcc_s" in Path(f"/proc/{self.pid}/maps").read_text()

    def exported(self) -> int:
        """What the dynamic linker reads for the function that unwinders import."""
        export = find_unwinders(loaded_images(find_process(int(self.pid)))[0]).export
        assert export is not None
        with Path(f"/proc/{self.pid}/mem").open("rb", buffering=0) as held:
            held.seek(export.address)
            return int.from_bytes(held.read(8), "little") - export.old


@contextmanager
def _running(folder: Path) -> Iterator[Later]:
    for name, text, flags in (
        ("cleans.c", LIBRARY, ("-fexceptions", "-shared", "-fpic", "-o", "libcleans.so")),
        ("later.c", PROGRAM, ("-w", "-fexceptions", PADS, "-o", "later", "-pthread")),
    ):
        (folder / name).write_text(text)
        subprocess.run(["gcc", "-O1", name, *flags], cwd=folder, check=True)
    pipe = subprocess.PIPE
    with subprocess.Popen(["./later"], stdin=pipe, stdout=pipe, text=True, cwd=folder) as program:
        running = Later(program)
        assert running.said() == "ready" and not running.has_unwinder
        try:
            yield running
        finally:
            program.communicate()
    assert program.returncode == 0


def _enabled(running: Later, trace: Path, tracer: str) -> None:
    said = ftpatch("enable", "--pid", running.pid, "--tracer", tracer, "-o", trace)
    assert said.code == 0, said.err


def _left(running: Later) -> None:
    said = ftpatch("undo", "--pid", running.pid)
    assert said.code == 0, said.err
    assert ours_in(int(running.pid)) == [] and running.exported() == 0
    assert ftpatch("check", "--pid", running.pid).code == 0


@pytest.mark.parametrize("tracer", ["function_graph", "function_profile"])
def test_the_first_backtrace(tracer: str, tmp_path: Path) -> None:
    """It has a line more for each of the six calls that are traced."""
    with _running(tmp_path) as running:
        _enabled(running, tmp_path / "t.trace", tracer)
        assert running.exported() != 0
        deep = int(running.does("b"))
        assert running.has_unwinder
        assert int(running.does("f")) == deep  # of a child
        _left(running)
        assert int(running.does("b")) == deep - 6 > 6


@pytest.mark.parametrize("way", ["cancel", "exit"])
def test_the_first_thread_that_ends(way: str, tmp_path: Path) -> None:
    """What is cleaned up is beyond calls that are traced, and then beyond calls that are not."""
    with _running(tmp_path) as running:
        _enabled(running, tmp_path / "t.trace", "function_graph")
        assert running.does(way) == "7"
        assert running.has_unwinder
        _left(running)
        assert running.does(way) == "7"


def test_brought_in_again(tmp_path: Path) -> None:
    """It is met as one that is there, and then by the slot that was bound before."""
    with _running(tmp_path) as running:
        deep = 0
        for number in range(3):
            _enabled(running, tmp_path / f"{number}.trace", "function_graph")
            deep = int(running.does("b"))
            _left(running)
            assert int(running.does("b")) == deep - 6
        assert deep > 12


def test_a_child_binds_its_own(tmp_path: Path) -> None:
    """Its parent has none yet, which is bound as without a tracer later."""
    with _running(tmp_path) as running:
        _enabled(running, tmp_path / "t.trace", "function_graph")
        assert int(running.does("f")) > 12  # a child binds its own
        assert not running.has_unwinder
        _left(running)
        assert 6 < int(running.does("b")) < 12
