# SPDX-License-Identifier: MIT
"""Processes with many threads, that begin and end, fork and take signals while all are stopped
again and again: what they compute is what an untouched run does."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ftpatch.errors import InputError
from ftpatch.process.process import Process
from ftpatch.process.stop import one_stopped, stopped
from tests.support.command import ROOT
from tests.support.sampling import scaled
from tests.support.stopping import Running, built, running, until

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
SOURCE = Path(__file__).with_name("churning.c")
PER_SECOND = 1000


@pytest.fixture(scope="module")
def churning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(SOURCE, tmp_path_factory.mktemp("churning"))


@contextmanager
def _signals(process: Process) -> Iterator[list[int]]:
    """Signals to it, PER_SECOND, of which none may be lost; yields the count of them. By pidfd: the
    programs of these tests use up so many numbers that an ended one's is soon another's thread."""
    sent, done = [0], threading.Event()
    fd = os.pidfd_open(process.pid)

    def send() -> None:
        begun = time.monotonic()
        while not done.is_set():
            while sent[0] < (time.monotonic() - begun) * PER_SECOND and not done.is_set():
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(fd, signal.SIGRTMIN)
                    sent[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        done.set()
        thread.join()
        os.close(fd)


def _lines(program: Running) -> tuple[str, str]:
    """What was computed, and how many signals were handled."""
    computed, handled = program.ended().splitlines()[-2:]
    return computed, handled


def _untouched(path: Path, *words: str) -> str:
    with running(path, *words) as program:
        return _lines(program)[0]


@pytest.mark.scaled
def test_many_threads(churning: Path) -> None:
    """Hundreds of stops of 200 threads, in full."""
    words = (str(scaled(200, 50)), str(scaled(500, 120, 1500)), "threads")
    wanted = _untouched(churning, *words)
    cycles = 0
    with running(churning, *words) as program, _signals(program.process) as sent:
        until(lambda: len(program.states()) > 1)
        while len(program.states()) > 1:
            with stopped(program.process, wait=5):
                assert set(program.states()) <= set("tXZ")
            cycles += 1
            time.sleep(0.005 if cycles % 10 else 0.0)
        alive = sent[0]
        found, handled = _lines(program)
    assert cycles >= scaled(80, 10, 250)
    assert found == wanted
    count = int(handled.split()[1])
    assert alive <= count, (alive, count, sent)
    assert count <= sent[0], (alive, count, sent)


@pytest.mark.scaled
@pytest.mark.parametrize("kind", ["vfork", "spawn"])
def test_children(churning: Path, kind: str) -> None:
    words = ("2", str(scaled(800, 200)), kind)
    wanted = _untouched(churning, *words)
    with running(churning, *words) as program:
        cycles = 0
        until(lambda: len(program.states()) > 1)
        while len(program.states()) > 1:
            with stopped(program.process, wait=5):
                cycles += 1
            time.sleep(0.001)
        assert cycles > 10
        assert _lines(program)[0] == wanted


STOPS = """
import random, sys, time
from contextlib import suppress
from ftpatch.errors import InputError
from ftpatch.process.process import find_process
from ftpatch.process.stop import one_stopped, stopped
process = find_process(int(sys.argv[1]))
print("ready", flush=True)
while True:
    with suppress(InputError), random.choice([stopped, one_stopped])(process):
        time.sleep(random.choice([0, 0.0005]))
"""


@pytest.mark.scaled
def test_the_one_that_stops_is_killed(churning: Path) -> None:
    """At random moments: what it held goes on."""
    times = scaled(30, 6, 100)
    words = ("20", str(scaled(6000, 1500, 20000)), "spawn")
    wanted = _untouched(churning, *words)
    chance = random.Random(1)
    with running(churning, *words) as program, _signals(program.process):
        until(lambda: len(program.states()) > 1)
        killed = 0
        while len(program.states()) > 1 and killed < times:
            line = [sys.executable, "-c", STOPS, str(program.pid)]
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            with subprocess.Popen(line, stdout=subprocess.PIPE, env=env) as stops:
                assert stops.stdout is not None and stops.stdout.readline() == b"ready\n"
                time.sleep(chance.random() * 0.02)
                stops.kill()
            killed += 1
        until(lambda: len(program.states()) == 1, 300)
        found, handled = _lines(program)
    assert found == wanted and killed > times // 2
    assert int(handled.split()[1]) > 0


EXEC = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static char *path, count[20];
static void *other(void *p) { usleep(300); return other(p); }
static void *leaves(void *p) {
    usleep(2000);
    execl(path, path, count, (char *)0);
    return 0;
}
int main(int argc, char **argv) {
    pthread_t t;
    int left = atoi(argv[1]);
    path = argv[0];
    if (argc > 2) { printf("ready %d\n", getpid()); fflush(stdout); }
    if (left == 0) { char c; read(0, &c, 1); puts("done"); return 0; }
    sprintf(count, "%d", left - 1);
    for (int i = 0; i < 8; i++) pthread_create(&t, 0, other, 0);
    if (left % 2) pthread_create(&t, 0, leaves, 0); else leaves(0);
    other(0);
}
"""


@pytest.mark.scaled
def test_a_program_that_starts_another_in_its_place(tmp_path: Path) -> None:
    """By any thread, which ends all others; it waits for those that are traced."""
    source = tmp_path / "again.c"
    source.write_text(EXEC)
    path = built(source, tmp_path)
    with running(path, str(scaled(1000, 100)), "first") as program:
        cycles, refused = 0, set()
        end = time.monotonic() + 60
        while len(program.states()) > 1 or not _is_last(program):
            try:
                with stopped(program.process, wait=2):
                    cycles += 1
            except InputError as error:
                refused.add(error.reason.partition(": ")[2])
            assert time.monotonic() < end, "it hangs"
        assert program.ended() == "done\n"
    assert cycles > 20
    assert refused <= {"it has just started another program"}


def _is_last(program: Running) -> bool:
    return (program.process.place / "cmdline").read_bytes().endswith(b"\x000\x00")


def test_a_first_thread_that_has_ended(tmp_path: Path) -> None:
    source = tmp_path / "headless.c"
    source.write_text(r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *lives(void *p) { char c; read(0, &c, 1); puts("done"); fflush(stdout); exit(0); }
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, lives, 0);
    printf("ready %d\n", getpid()); fflush(stdout);
    pthread_exit(0);
}
""")
    with running(built(source, tmp_path)) as program:
        until(lambda: sorted(program.states()) == ["S", "Z"])
        for stop in (stopped, one_stopped):
            with stop(program.process) as world:
                (thread,) = world.threads
                assert thread.tid != program.pid
        assert program.ended() == "done\n"
