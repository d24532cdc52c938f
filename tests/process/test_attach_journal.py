# SPDX-License-Identifier: MIT
"""The journal of a process: two commands at once, a damaged one, one that a child inherits."""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftpatch.errors import InputError
from ftpatch.process import process_journal
from ftpatch.process.process import find_process
from tests.support.busy import busy, busy_program, ours_in, taken_out
from tests.support.command import child_env, ftpatch, ftpatch_command
from tests.support.padded import padded
from tests.support.running import PROGRAM, running

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
FORKING = r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int one(int n) { return n + 1; }
int main(void) {
    char line[64];
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        pid_t child = *line == 'f' ? fork() : 1;
        if (!child) { close(0); close(1); close(2); for (;;) { one(1); usleep(1000); } }
        if (*line == 'q') return 0;
        printf("%d\n", child); fflush(stdout);
    }
    return 7;
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the journals, for this test alone."""
    path = tmp_path / "journals"
    monkeypatch.setattr(process_journal, "_folder", lambda *, make: path)
    path.mkdir(mode=0o700)
    yield path


def test_two_commands_at_once(tmp_path: Path) -> None:
    """One of them comes first, and the other one says so."""
    path = busy_program(tmp_path, "-fno-exceptions", "-fpatchable-function-entry=5")
    with busy(path, 2, 50) as program:
        pid = ("--pid", str(program.pid))
        for number in range(3):
            commands = [
                subprocess.Popen(
                    ftpatch_command("enable", *pid, "-o", tmp_path / f"{number}.{which}"),
                    env=child_env(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for which in range(2)
            ]
            said = [one.communicate()[1] for one in commands]
            assert sorted(one.returncode for one in commands) == [0, 2], said
            assert "ftpatch is already attached" in "".join(said) or "already has the" in "".join(
                said
            )
            taken_out(program.pid)
            assert ours_in(program.pid) == []


def test_another_one_is_waited_for(tmp_path: Path) -> None:
    with running(padded(tmp_path, PROGRAM)) as program:
        fd = os.open(f"/proc/{program.pid}", os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        threading.Timer(0.5, os.close, [fd]).start()
        begun = time.monotonic()
        pid = ("--pid", str(program.pid))
        assert ftpatch("enable", *pid, "-o", tmp_path / "t.trace").code == 0
        assert time.monotonic() - begun > 0.4
        assert ftpatch("undo", *pid).code == 0


def test_what_was_enabled_meanwhile_is_taken_out_too(tmp_path: Path) -> None:
    with running(padded(tmp_path, PROGRAM)) as program:
        pid = ("--pid", str(program.pid))
        with subprocess.Popen(
            ftpatch_command("trace", *pid, "-f", "one", "-o", tmp_path / "t.trace"),
            env=child_env(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as tracing:
            process, until = find_process(program.pid), time.monotonic() + 30
            while time.monotonic() < until:
                entry = process_journal.recall(process)
                if entry is not None and len(entry.changes):
                    break
                time.sleep(0.02)
            assert ftpatch("enable", *pid, "-f", "two").code == 0
            tracing.terminate()
        assert ftpatch("check", *pid).code == 0 and ours_in(program.pid) == []


def _states(*pid: str) -> list[tuple[str, str, bool]]:
    """Of each site, without what it calls: the journal names that."""
    rows = ftpatch("list", *pid, "--json").json
    return [(row["ip"], row["state"], row["differing"]) for row in rows]


def test_a_damaged_one(tmp_path: Path, folder: Path) -> None:
    """One line, and nothing is written to the process."""
    rng = random.Random(5)
    with running(padded(tmp_path, PROGRAM)) as program:
        pid = ("--pid", str(program.pid))
        assert ftpatch("enable", *pid, "-o", tmp_path / "t.trace").code == 0
        (path,) = folder.iterdir()
        held = path.read_bytes()
        states = _states(*pid)
        for _ in range(60):
            wrong = bytearray(held)
            match rng.randrange(3):
                case 0:
                    del wrong[rng.randrange(len(wrong)) :]
                case 1:
                    wrong[rng.randrange(len(wrong))] ^= 1 << rng.randrange(8)
                case 2:
                    wrong = bytearray(rng.randbytes(100))
            path.write_bytes(wrong)
            found = None
            try:
                found = process_journal.recall(find_process(program.pid))
            except InputError as error:
                assert "damaged" in str(error) or "another version" in str(error)
            if found is None:
                said = ftpatch("undo", *pid)
                assert said.code == 2 and len(said.err.splitlines()) == 1
                assert _states(*pid) == states
        path.write_bytes(held)
        assert ftpatch("undo", *pid).code == 0
        assert ours_in(program.pid) == []


def test_wrong_probes(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, whatever stands in their place."""
    dumps = json.dumps
    with running(padded(tmp_path, PROGRAM)) as program:
        pid = ("--pid", str(program.pid))
        assert ftpatch("probe", *pid, "p two", "--keep", "-o", tmp_path / "t.trace").code == 0
        process = find_process(program.pid)
        (path,) = folder.iterdir()
        held, entry = path.read_bytes(), process_journal.recall(process)
        assert entry is not None and [text for _, text in entry.probes] == ["p:probes/p_two_0 two"]
        wrong: tuple[object, ...] = (5, [5], [[1, 2]], [["x", "y"]], [[1 << 64, "p"]], None, [[]])
        for probes in wrong:
            with monkeypatch.context() as patched:
                changed = lambda told, probes=probes: dumps(told | {"probes": probes})  # noqa: E731
                patched.setattr(json, "dumps", changed)
                process_journal.keep(process, entry)
            for verb in ("undo", "probe"):
                said = ftpatch(verb, *pid)
                assert said.code == 2 and "damaged" in said.err and said.err.count("\n") == 1
            assert ftpatch("status", *pid).code == 0
        path.write_bytes(held)
        assert ftpatch("undo", *pid).code == 0
        assert ours_in(program.pid) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"areas": []}, "damaged"), ({"runtime": (1 << 64) - 1}, "")],
    ids=["no-areas", "runtime"],
)
def test_wrong_addresses(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, object],
    said: str,
) -> None:
    """One line, or the address is not needed; all is still undone by the right one."""
    dumps = json.dumps
    with running(padded(tmp_path, PROGRAM)) as program:
        pid = ("--pid", str(program.pid))
        assert ftpatch("enable", *pid, "-f", "two", "-o", tmp_path / "t.trace").code == 0
        process = find_process(program.pid)
        (path,) = folder.iterdir()
        held, entry = path.read_bytes(), process_journal.recall(process)
        assert entry is not None
        with monkeypatch.context() as patched:
            patched.setattr(json, "dumps", lambda told: dumps(told | changed))
            process_journal.keep(process, entry)
        told = ftpatch("disable", *pid, "--recording")
        assert told.code == (2 if said else 0) and said in told.err
        assert told.err.count("\n") == bool(said)
        path.write_bytes(held)
        assert ftpatch("undo", *pid).code == 0
        assert ours_in(program.pid) == []


def test_a_child_that_lives_on(tmp_path: Path) -> None:
    """Its parent has ended: the journal stays, and the child is undone by its own number."""
    path = padded(tmp_path, FORKING)
    with running(path) as program:
        assert program.stdin is not None and program.stdout is not None
        parent = ("--pid", str(program.pid))
        said = ftpatch("enable", *parent, "-o", tmp_path / "t.trace")
        assert said.code == 0, said.err
        program.stdin.write(b"f\n")
        program.stdin.flush()
        child = int(program.stdout.readline())
        program.stdin.write(b"q\n")
        program.stdin.flush()
        program.wait()
    try:
        assert ftpatch("check", "--pid", str(child)).code == 1
        said = ftpatch("undo", "--pid", str(child))
        assert said.code == 0, said.err
        assert ftpatch("check", "--pid", str(child)).code == 0
        assert ours_in(child) == []
    finally:
        os.kill(child, 9)


@pytest.mark.parametrize("forged", ["areas", "token", "no-token"])
def test_one_whose_tracer_is_elsewhere(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, forged: str
) -> None:
    """It is refused while sites call a tracer, and stays for the right one to take its place."""
    dumps = json.dumps
    with running(padded(tmp_path, PROGRAM)) as program:
        pid = ("--pid", str(program.pid))
        assert ftpatch("enable", *pid, "-f", "two", "-o", tmp_path / "t.trace").code == 0
        process, states = find_process(program.pid), _states(*pid)
        (path,) = folder.iterdir()
        held, entry = path.read_bytes(), process_journal.recall(process)
        assert entry is not None
        start, size, *_ = entry.areas[0]
        away = start + (1 << 30)
        every: dict[str, dict[str, object]] = {
            "areas": {"areas": [[away, size, away, away]]},
            "token": {"token": 16 * "5a"},
            "no-token": {"token": ""},
        }
        changed = every[forged]
        with monkeypatch.context() as patched:
            patched.setattr(json, "dumps", lambda told: dumps(told | changed))
            process_journal.keep(process, entry)
        for _ in range(2):
            said = ftpatch("undo", *pid)
            assert said.code == 2 and not said.out and said.err.count("\n") == 1
            assert ("damaged" if forged == "no-token" else "the journal is wrong") in said.err
        assert path.exists()
        path.write_bytes(held)
        assert _states(*pid) == states
        assert ftpatch("undo", *pid).code == 0
        assert ours_in(program.pid) == []


def test_nothing_to_take_out(tmp_path: Path, folder: Path) -> None:
    """What it tells of has been undone already: that is what is said, and not of no site."""
    with running(padded(tmp_path, PROGRAM)) as program:
        pid = ("--pid", str(program.pid))
        assert ftpatch("enable", *pid, "-f", "two", "-o", tmp_path / "t.trace").code == 0
        (path,) = folder.iterdir()
        held = path.read_bytes()
        assert ftpatch("undo", *pid).code == 0
        path.write_bytes(held)
        said = ftpatch("undo", *pid)
        assert said.code == 0 and not said.out
        assert said.err.endswith("nothing to take out: what ftpatch put into it is gone (exec?)\n")
        assert not path.exists()
