# SPDX-License-Identifier: MIT
"""Signals that arrive while a thread is in ftpatch's code: what their handlers return to stays as
long as they run, and no longer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ftpatch.process import attached
from ftpatch.process.process import find_process
from ftpatch.process.process_journal import recall
from tests.support.busy import ours_in
from tests.support.command import ftpatch
from tests.support.probed_process import Asked

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
SOURCE = Path(__file__).parent.parent / "programs" / "handling.c"
WAYS = {"trap": ["--no-optimize"], "jump": []}
UNKNOWN = "-fno-asynchronous-unwind-tables"


@contextmanager
def _probed(folder: Path, how: str, *flags: str) -> Iterator[tuple[Asked, str]]:
    """Let the program run with a probe in it, and with the bounds of what came with that. It must
    end well."""
    path = folder / "handling"
    subprocess.run(["gcc", "-O1", *flags, SOURCE, "-o", path], check=True)
    pipe = subprocess.PIPE
    with subprocess.Popen([path], stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        running = Asked(program)
        words = ["p:w work n=$arg1:s64", *WAYS[how], "--keep", "-o", str(folder / "t.trace")]
        said = ftpatch("probe", *running.pid, *words)
        assert said.code == 0, said.err
        entry = recall(find_process(program.pid))
        assert entry is not None
        yield running, " ".join(f"{start:x} {start + size:x}" for start, size, _, _ in entry.areas)
        program.communicate()
    assert program.returncode == 7
    rows = [row for row in ftpatch("report", folder / "t.trace", "--json").json if "hits" in row]
    assert [(row["way"], row["missed"]) for row in rows] == [(how, 0)]


def _taken_out(running: Asked) -> None:
    said = ftpatch("undo", *running.pid)
    assert (said.code, said.err) == (0, "")
    assert ours_in(running.program.pid) == []
    assert ftpatch("check", *running.pid).code == 0


@pytest.mark.parametrize("how", WAYS)
def test_a_handler_that_has_returned(tmp_path: Path, how: str) -> None:
    with _probed(tmp_path, how) as (running, bounds):
        assert running.ask(f"left {bounds}") == "there"
        _taken_out(running)
        assert running.ask("") == "7"


def test_traps_that_were_handled(tmp_path: Path) -> None:
    """In a program without unwind information."""
    with _probed(tmp_path, "trap", UNKNOWN) as (running, _):
        assert running.ask("calls") == "there"
        _taken_out(running)
        assert running.ask("") == "7"


@pytest.mark.parametrize("stack", ["in", "on", "both"])
@pytest.mark.parametrize("known", ["unwound", "unknown"])
@pytest.mark.parametrize("how", WAYS)
def test_a_handler_that_runs(
    tmp_path: Path, how: str, known: str, stack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With unwind information or without."""
    monkeypatch.setattr(attached, "WAIT", 0.5)
    flags = () if known == "unwound" else (UNKNOWN,)
    with _probed(tmp_path, how, *flags) as (running, bounds):
        assert running.ask(f"{stack} {bounds}") == "there"
        said = ftpatch("undo", *running.pid)
        assert said.code != 0 and "the tracer stays mapped" in said.err, said.err
        assert running.ask("") == "7"
        _taken_out(running)
