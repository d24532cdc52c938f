# SPDX-License-Identifier: MIT
"""System calls that wait while their process is stopped and goes on: the program says how they end,
and an untouched run what is right."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ftpatch.errors import InputError
from ftpatch.process.ptrace import Stop, detach, interrupt, next_stop, seize
from ftpatch.process.stop import one_stopped, stopped
from tests.support.sampling import scaled
from tests.support.stopping import Running, built, running, until

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
SOURCE = Path(__file__).with_name("waiting.c")
_TEXT = SOURCE.read_text().partition("#define CASES")[2].partition("\nstatic")[0]
ENDED, RESUMED, BY_HANDLER, TIMED, AGAIN = (
    re.findall(r"X\((\w+),", part) for part in _TEXT.split("/*")[1:]
)
"""Cases by the comments above them."""
CYCLES = scaled(40, 10)
SHORT = 400
"""Milliseconds that timed calls take."""


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(SOURCE, tmp_path_factory.mktemp("waiting"))


def _ended(waiting: Path, case: str, meanwhile: Callable[[Running], None]) -> tuple[str, int, int]:
    """What a program says after something was done to it, the milliseconds it waited, and those
    that a call of SHORT may take: it cannot end while it is stopped, nor without a processor."""
    begun = time.monotonic()
    with running(waiting, case) as program:
        program.wait_asleep()
        try:
            meanwhile(program)
        except InputError as error:  # on a busy machine its time may be over first
            if case not in TIMED + AGAIN or "has ended" not in str(error):
                raise
        over = int((time.monotonic() - begun) * 1000)
        if case not in TIMED + AGAIN:
            program.wait_asleep()  # FUTEX_WAKE is for those that wait already
        line = program.ended("" if case in TIMED + AGAIN else "\n").splitlines()[-1]
    if line.startswith("skip"):
        pytest.skip(line)
    said, times = line.split(" ms ")
    ms, delayed = map(int, times.split(" delayed "))
    return said, ms, max(SHORT, over) + delayed + SHORT // 2


def _untouched(program: Running) -> None:
    """Leave it alone."""


def _stops(program: Running) -> None:
    for _ in range(CYCLES):
        with stopped(program.process) as world:
            assert len(world.threads) == len(program.states())
            assert set(program.states()) == {"t"}
        assert 0 < world.pause_ns < 1e9
        time.sleep(0.002)


def _stops_of_one(program: Running) -> None:
    """The first thread; on a busy machine others may come before it."""
    times = 0
    while times < CYCLES:
        with one_stopped(program.process) as world:
            times += program.pid in {thread.tid for thread in world.threads}
        time.sleep(0.002)


def _resumes(program: Running) -> None:
    """As a thread does that was led elsewhere and comes back."""
    for _ in range(CYCLES):
        with stopped(program.process) as world:
            for thread in world.threads:
                thread.leave(thread.resumed)
        time.sleep(0.002)


def _plain_stop(program: Running) -> None:
    """What every debugger does."""
    program.wait_asleep()
    seize(program.pid)
    interrupt(program.pid)
    until(lambda: next_stop(program.pid) == (Stop.STOP, 5))
    detach(program.pid)
    program.wait_asleep()


@pytest.mark.scaled
@pytest.mark.parametrize("case", ENDED + RESUMED + BY_HANDLER)
@pytest.mark.parametrize("stops", [_stops, _stops_of_one, _resumes], ids=["all", "one", "resumes"])
def test_a_call_goes_on_waiting(waiting: Path, case: str, stops: Callable[[Running], None]) -> None:
    wanted, *_ = _ended(waiting, case, _untouched)
    found, *_ = _ended(waiting, case, stops)
    assert found == wanted
    assert "interrupted 0" in found


@pytest.mark.scaled
@pytest.mark.parametrize("case", TIMED)
@pytest.mark.parametrize("stops", [_stops, _resumes], ids=["all", "resumes"])
def test_a_call_waits_as_long_as_it_did(
    waiting: Path, case: str, stops: Callable[[Running], None]
) -> None:
    wanted, *_ = _ended(waiting, case, _untouched)
    found, ms, latest = _ended(waiting, case, stops)
    assert found == wanted
    assert SHORT - 1 <= ms < latest


@pytest.mark.scaled
@pytest.mark.parametrize("case", AGAIN)
def test_a_limit_in_a_register_begins_anew(waiting: Path, case: str) -> None:
    wanted, *_ = _ended(waiting, case, _untouched)
    begun = time.monotonic()
    found, ms, _ = _ended(waiting, case, _stops)
    assert found == wanted
    assert SHORT - 1 <= ms <= (time.monotonic() - begun) * 1000


@pytest.mark.parametrize("case", ENDED + RESUMED)
def test_what_a_plain_stop_ends(waiting: Path, case: str) -> None:
    """The calls that have to be set up again are those of which a plain stop makes EINTR."""
    said, *_ = _ended(waiting, case, _plain_stop)
    assert f"interrupted {int(case in ENDED)} " in said
