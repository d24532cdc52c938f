# SPDX-License-Identifier: MIT
"""The program of tests/watch/shared.c while it runs, and ``ftpatch watch --pid`` beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ftpatch.process.bpf import make_ring
from tests.support.command import PATIENCE, ROOT, Result, child_env, ftpatch_command
from tests.support.stopping import until
from tests.support.watch_programs import refusal

__all__ = [
    "Shared",
    "Watcher",
    "accesses",
    "built_shared",
    "cannot",
    "counted",
    "shared",
    "watching",
]

SOURCE = Path(__file__).parent.parent / "watch" / "shared.c"
LINKS = {
    "pie": ("-pie", "-fPIE"),
    "no-pie": ("-no-pie", "-fno-pie"),
    "static": ("-static", "-fno-pie"),
    "static-pie": ("-static-pie", "-fPIE"),
}


def cannot() -> str:
    """Why this machine cannot watch processes; empty where it can."""
    if refusal():
        return refusal()
    try:
        os.close(make_ring(321, 4096))
    except OSError as error:
        return f"bpf: {error}"
    return ""


def built_shared(folder: Path, link: str = "pie", *more: str) -> Path:
    """shared.c as a program, compiled with ``more`` options; skips where processes cannot be
    watched."""
    if cannot():
        pytest.skip(cannot())
    path = folder / "shared"
    words = ["gcc", "-O1", "-w", "-pthread", *LINKS[link], *more, str(SOURCE), "-o", str(path)]
    subprocess.run(words, check=True)
    return path


class Shared:
    """The running program: takes orders, and tells how often it has read and written."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def do(self, *orders: str) -> tuple[int, int]:
        """Reads and writes after orders."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        answer = ""
        for order in orders:
            stdin.write(f"{order}\n")
            stdin.flush()
            answer = stdout.readline()
        _, reads, writes = answer.split()
        return int(reads), int(writes)

    def tell(self, order: str) -> None:
        """Give an order that has no answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()

    def end(self) -> int:
        """End it; its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(PATIENCE)


@contextmanager
def shared(*words: Path | str) -> Iterator[Shared]:
    """Run the program."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*map(str, words)], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert said == ["ready", str(process.pid)], said
        try:
            yield Shared(process)
        finally:
            process.kill()


@dataclass
class Watcher:
    """A command at work."""

    process: subprocess.Popen[str]
    said: Path

    @property
    def err(self) -> str:
        """Standard error so far."""
        return self.said.read_text()

    def end(self, number: signal.Signals | None = signal.SIGINT) -> Result:
        """End it by a signal, or let it end by itself."""
        if number is not None:
            self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=PATIENCE)
        return Result(self.process.returncode, out, self.err)


@contextmanager
def watching(
    pid: int, *words: Path | str, before: Callable[[], None] | None = None
) -> Iterator[Watcher]:
    """Watch a process, from when the breakpoints are there."""

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job ignores it
        if before is not None:
            before()

    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "said"
        with (
            said.open("w") as err,
            subprocess.Popen(
                ftpatch_command("watch", "--pid", str(pid), *words),
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                env=child_env(),
                cwd=ROOT,
                preexec_fn=prepare,
            ) as process,
        ):
            one = Watcher(process, said)
            try:
                until(lambda: "watching" in one.err or process.poll() is not None, PATIENCE)
                yield one
            finally:
                if process.poll() is None:
                    process.kill()


def accesses(result: Result) -> list[dict[str, Any]]:
    """The accesses of a report as JSON."""
    assert result.code == 0, result.err
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert [row["missed"] for row in rows if "hits" in row].count(0) == len(
        [row for row in rows if "hits" in row]
    ), rows[-2:]
    return [row for row in rows if "access" in row]


def counted(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Reads and writes."""
    return (
        sum("r" in row["access"] for row in rows),
        sum("w" in row["access"] for row in rows),
    )
