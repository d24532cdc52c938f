# SPDX-License-Identifier: MIT
"""A program with threads, signals, children, jumps, exceptions and coroutines, traced again and
again: it says in the end what it says untouched, and is in memory what it is in its files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftpatch.errors import InputError
from ftpatch.ftrace.filter import Selection
from ftpatch.process.attached import detach
from ftpatch.process.loaded import loaded_images
from ftpatch.process.process import Process, find_process
from ftpatch.process.process_journal import recall
from ftpatch.tracer.attach import choose
from ftpatch.tracer.live import attach
from ftpatch.tracer.plan import Tracing
from ftpatch.tracer.recordings import TraceFiles
from tests.support.busy import busy, busy_program, ours_in
from tests.support.command import PATIENCE, ftpatch
from tests.support.sampling import scaled

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
FORMS = {
    "pads": ("-fpatchable-function-entry=5",),
    "fentry": ("-pg", "-mfentry", "-mrecord-mcount", "-fno-pie", "-no-pie"),
}
TRACERS = (
    ("function", False),
    ("function_graph", False),
    ("function_graph", True),
    ("function_profile", False),
)
COPIED = 30
"""Seconds until everything can be taken out, whatever lies on a stack that was not copied."""


def _cycle(process: Process, trace: Path, tracer: str, *, arguments: bool) -> list[Path] | None:
    """Its files, None where not everything could be taken out."""
    loaded, _ = loaded_images(process)
    chosen = choose(loaded, Selection(), [])
    tracing = Tracing(tracer=tracer, depth=1024, size=1 << 20, arguments=arguments)
    with TraceFiles(trace, process.place / "exe", loaded[0].path) as made:
        attach(process, loaded, chosen, tracing, made.environment, str(trace))
        time.sleep(0.02)
        done = _taken_out(process)
        files = made.finish()
        return files if done else None


def _taken_out(process: Process) -> bool:
    """Whether everything could be. Not where exceptions have passed traced calls, and a return
    address stands where a stack may have been copied to: stacks for signals, when they are freed,
    are such places."""
    begun, left = time.monotonic(), [""]
    while recall(process) is not None:
        assert time.monotonic() < begun + PATIENCE, left
        with contextlib.suppress(InputError):  # a thread may not stop in time
            left += [out.left for _, out in detach(process)]
        if time.monotonic() > begun + COPIED and "stack that was copied" in left[-1]:
            return False
    return True


def _cycles(process: Process, folder: Path, times: int) -> Iterator[tuple[int, list[Path] | None]]:
    """The number and the files of each cycle in which all threads stopped, with every tracer in
    turn; FOLDER/NUMBER.trace is its recording."""
    for number in range(times):
        tracer, arguments = TRACERS[number % len(TRACERS)]
        try:
            files = _cycle(process, folder / f"{number}.trace", tracer, arguments=arguments)
        except InputError as error:
            assert "did not stop" in str(error)  # a busy machine
            _taken_out(process)
            continue
        yield number, files


@pytest.mark.scaled
@pytest.mark.parametrize("form", FORMS)
def test_cycles_of_all_tracers(tmp_path: Path, form: str) -> None:
    path = busy_program(tmp_path, "-fno-exceptions", *FORMS[form])
    with busy(path, scaled(40, 20, 200), scaled(300, 100, 1000)) as program:
        process = find_process(program.pid)
        for number, files in _cycles(process, tmp_path, scaled(60, 8, 1000)):
            trace = tmp_path / f"{number}.trace"
            assert files is not None and ours_in(program.pid) == []
            assert trace in files
            if number < len(TRACERS) * 2:
                said = ftpatch("report", trace, "--format", "profile")
                assert said.code == 0 and "fibonacci" in said.out, said.err
            for file in files:
                file.unlink()
        said = ftpatch("check", "--pid", str(program.pid))
        assert said.code == 0, said.out


@pytest.mark.scaled
def test_cycles_with_exceptions(tmp_path: Path) -> None:
    """They pass returns of all tracers, also while these come and go."""
    path = busy_program(tmp_path, *FORMS["pads"])
    with busy(path, scaled(40, 10, 100), scaled(300, 100, 1000)) as program:
        process = find_process(program.pid)
        for _, files in _cycles(process, tmp_path, scaled(40, 6, 400)):
            if files is None:
                break
            assert ours_in(program.pid) == []
            for file in files:
                file.unlink()
        assert ftpatch("check", "--pid", str(program.pid)).code == 0
