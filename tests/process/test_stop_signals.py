# SPDX-License-Identifier: MIT
"""Signals to a process that is stopped and goes on: each is handled once, and ends the calls that
it would have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ftpatch.process.stop import stopped
from tests.process.test_stop_calls import ENDED, RESUMED, SOURCE
from tests.support.sampling import scaled
from tests.support.stopping import Running, built, running, until

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
ROUNDS = scaled(20, 6)
PREEMPTED = scaled(400, 100)
BUSY, PAUSE, BETWEEN = 300_000, 10_000, 0.0003
"""Nanoseconds for which the processor is taken, and left; seconds between two stops."""
PLAIN, RESTARTING = signal.SIGUSR1, signal.SIGHUP
"""Signals that the program handles without and with SA_RESTART."""
CASES = [case for case in ENDED + RESUMED if case != "pthread_join"]
"""Those in which the first thread waits in the call itself."""
Send = Callable[[Running, int], None]


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(SOURCE, tmp_path_factory.mktemp("waiting"))


@pytest.fixture(scope="module")
def preempting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(Path(__file__).with_name("preempting.c"), tmp_path_factory.mktemp("preempting"))


def _alone(program: Running, number: int) -> None:
    os.kill(program.pid, number)


def _before(program: Running, number: int) -> None:
    os.kill(program.pid, number)
    with stopped(program.process):
        pass


def _meanwhile(program: Running, number: int) -> None:
    with stopped(program.process):
        os.kill(program.pid, number)
        assert program.pending()


def _thrice(program: Running, number: int) -> None:
    """Stops around it."""
    for send in (False, True, False):
        with stopped(program.process):
            if send:
                os.kill(program.pid, number)
        time.sleep(0.002)


def _delivered(program: Running, number: int) -> None:
    """To a thread that is led elsewhere: its handler is begun before."""
    with stopped(program.process) as world:
        os.kill(program.pid, number)
        (thread,) = (thread for thread in world.threads if thread.tid == program.pid)
        assert thread.is_signalled
        world.deliver(thread)
        assert not thread.is_signalled
        thread.leave(thread.resumed)


def _said(waiting: Path, case: str, number: int, send: Send) -> str:
    with running(waiting, case) as program:
        for _ in range(ROUNDS):
            program.wait_asleep()
            send(program, number)
        program.wait_asleep()
        line = program.ended().splitlines()[-1]
    if line.startswith("skip"):
        pytest.skip(line)
    return line.split(" ms ")[0]


@pytest.mark.scaled
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("send", [_before, _meanwhile, _thrice, _delivered])
@pytest.mark.parametrize("number", [PLAIN, RESTARTING], ids=["plain", "restarting"])
def test_a_handler_ends_a_call_as_it_would_have(
    waiting: Path, case: str, send: Send, number: int
) -> None:
    wanted = _said(waiting, case, number, _alone)
    assert f"handled {ROUNDS}" in wanted
    assert _said(waiting, case, number, send) == wanted


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.scaled
@pytest.mark.parametrize("case", ["accept4", "epoll_wait", "poll_limit", "read_pipe"])
def test_a_call_that_was_to_be_made_again_has_begun(
    waiting: Path, case: str, preempting: Path
) -> None:
    """A second stop may find the thread before its call, while the kernel lets it go on: it has
    no processor. A handler ends the call all the same."""
    ours = os.sched_getaffinity(0)
    if len(ours) < 2:
        pytest.skip("needs two processors")
    *others, last = sorted(ours)
    with running(waiting, case) as program:
        program.wait_asleep()
        os.sched_setaffinity(program.pid, {last})
        os.sched_setaffinity(0, others)
        words = [str(preempting), str(last), str(BUSY), str(PAUSE)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as hog:
            try:
                assert hog.stdout is not None and hog.stdout.readline()
                for _ in range(PREEMPTED):
                    program.wait_asleep()
                    for send in (False, True):
                        with stopped(program.process):
                            if send:
                                os.kill(program.pid, PLAIN)
                        time.sleep(BETWEEN)
                program.wait_asleep()
            finally:
                hog.kill()
                os.sched_setaffinity(0, ours)
        said = program.ended().splitlines()[-1]
    assert f"interrupted {PREEMPTED} handled {PREEMPTED} " in said


@pytest.mark.scaled
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("number", [signal.SIGWINCH, signal.SIGCHLD, signal.SIGCONT])
def test_an_ignored_signal_ends_nothing(waiting: Path, case: str, number: int) -> None:
    """Not even the kernel's own way: a thread that is traced wakes for it."""

    def send(program: Running, number: int) -> None:
        for _ in range(5):
            os.kill(program.pid, number)
            with stopped(program.process):
                os.kill(program.pid, number)
            os.kill(program.pid, number)

    said = _said(waiting, case, number, send)
    assert "interrupted 0" in said and "handled 0" in said


@pytest.mark.parametrize("case", ["epoll_wait", "read_pipe", "poll"])
def test_a_stopped_process_stays_so(waiting: Path, case: str) -> None:
    with running(waiting, case) as program:
        program.wait_asleep()
        os.kill(program.pid, signal.SIGSTOP)
        until(lambda: program.states() == "TT")
        for _ in range(5):
            with stopped(program.process) as world:
                assert {thread.group_stop for thread in world.threads} == {signal.SIGSTOP}
                assert program.states() == "tt"
            until(lambda: program.states() == "TT")
        os.kill(program.pid, signal.SIGCONT)
        program.wait_asleep()
        with stopped(program.process) as world:
            assert {thread.group_stop for thread in world.threads} == {0}
            os.kill(program.pid, signal.SIGSTOP)
        until(lambda: program.states() == "TT")
        with stopped(program.process):
            os.kill(program.pid, signal.SIGCONT)
        program.wait_asleep()
        assert "result 1 errno 0" in program.ended()


def test_a_signal_that_ends_it(waiting: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with running(waiting, "epoll_wait") as program:
            program.wait_asleep()
            with stopped(program.process):
                os.kill(program.pid, number)
            until(lambda: not program.process.place.exists())
            assert program.status() == 128 + number
