# SPDX-License-Identifier: MIT
"""`report` on a real terminal: when it is walked through, how it ends, and what is printed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support.command import child_env, ftpatch, ftpatch_command, patched_command
from tests.support.probe_traces import HIT, ProbeFile, Told, ip_of
from tests.support.terminals import shown_text
from tests.support.trace_writer import ENTRY, EXIT, FUNCTIONS, Thread, TraceFile, program

ENTERED, LEFT = b"\x1b[?1049h", b"\x1b[?1049l"
"""The other screen (xterm's control sequences, DECSET 1049)."""
SHOWN, HIDDEN = b"\x1b[?25h", b"\x1b[?25l"
"""The cursor."""
COLOUR = re.compile(rb"\x1b\[[0-9;:]*(3[0-8]|4[0-8]|9[0-7]|10[0-7])[0-9;:]*m")
PATIENCE = 60.0


class Terminal:
    """A command on a terminal of 80 columns and 24 lines."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        stderr: IO[bytes] | None = None,
    ) -> None:
        self.out = b""
        self._leader, self._follower = pty.openpty()
        fcntl.ioctl(self._follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self._follower)
        self.process = subprocess.Popen(
            words,
            env=child_env(**{"TERM": "xterm-256color", "COLUMNS": "", **environment}),
            stdin=self._follower,
            stdout=self._follower,
            stderr=stderr or self._follower,
            preexec_fn=_own_terminal,
        )

    @property
    def after(self) -> list[Any]:
        """What the terminal is set to."""
        return termios.tcgetattr(self._follower)

    def until(self, *texts: str) -> None:
        """Read until each of these was written."""
        missing = [text.encode() for text in texts]
        end = time.monotonic() + PATIENCE
        while [text for text in missing if text not in self.out]:
            assert time.monotonic() < end, self.out[-2000:]
            assert self._read() or self.process.poll() is None, self.out[-2000:]

    def press(self, keys: str | bytes) -> None:
        """Type."""
        self.out = b""
        os.write(self._leader, keys.encode() if isinstance(keys, str) else keys)

    def hang_up(self) -> None:
        """Let the terminal go away; what is there to read is lost."""
        os.close(self._follower)
        os.close(self._leader)
        self._leader = self._follower = -1

    def end(self) -> int:
        """The exit code, when all was read."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < end, self.out[-2000:]
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def close(self) -> None:
        """Let go of everything."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._leader >= 0:
            os.close(self._leader)
            os.close(self._follower)

    def _read(self) -> bool:
        if not select.select([self._leader], [], [], 0.1)[0]:
            return False
        self.out += os.read(self._leader, 1 << 16)
        return True


def _own_terminal() -> None:
    """Make standard input the terminal that the process is controlled by, as a shell needs it."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Terminal]]:
    """Terminals to be closed."""
    monkeypatch.chdir(tmp_path)
    terminals: list[Terminal] = []
    yield terminals
    for terminal in terminals:
        terminal.close()


def _run(
    here: list[Terminal],
    *words: str | Path,
    stderr: IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Terminal:
    command = ftpatch_command("report", *words)
    here.append(Terminal(command, {"PAGER": "", **(environment or {})}, stderr))
    return here[-1]


def _trace(calls: int = 40, **header: int | bytes) -> Path:
    thread = Thread(100).add(ENTRY, "main", 0)
    for number in range(calls):
        name = FUNCTIONS[1 + number % 7]
        thread.add(ENTRY, name, 10 + number * 10).add(EXIT, name, 15 + number * 10)
    thread.add(EXIT, "main", calls * 10 + 20)
    own: dict[str, int | bytes] = {"path": bytes(program(Path("prog")))}
    return TraceFile([thread], header=own | header).write(Path("prog.trace"))


def _is_restored(terminal: Terminal) -> bool:
    out = terminal.out
    return (
        terminal.after == terminal.before
        and out.rfind(LEFT) > out.rfind(ENTERED)
        and out.rfind(SHOWN) > out.rfind(HIDDEN)
    )


@pytest.mark.parametrize("words", [[], ["--tui"]])
def test_q_ends_it_and_the_terminal_is_what_it_was(here: list[Terminal], words: list[str]) -> None:
    terminal = _run(here, _trace(), *words)
    terminal.until("prog.trace: 41 calls, 1 thread", "read_line", "Source")
    assert ENTERED in terminal.out and terminal.after != terminal.before
    terminal.press("t")
    terminal.until("Call tree")
    terminal.press("l")
    terminal.until("thread 100 (prog, pid 100), 1 of 1", "0.000000010")
    terminal.press("q")
    assert terminal.end() == 0
    assert _is_restored(terminal)
    assert b"Traceback" not in terminal.out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_as_they_end_others(here: list[Terminal], number: signal.Signals) -> None:
    terminal = _run(here, _trace())
    terminal.until("read_line", "Source")
    terminal.process.send_signal(number)
    assert terminal.end() == 128 + number
    assert _is_restored(terminal)
    assert b"ftpatch: interrupted" in terminal.out


def test_a_terminal_that_goes_away_ends_it(here: list[Terminal]) -> None:
    """Though it has more to draw than anybody reads: what is typed makes it draw all the time."""
    terminal = _run(here, _trace(calls=400))
    terminal.until("read_line")
    terminal.press("tflf" * 100)
    time.sleep(2)  # so long that what waits to be written fills every queue
    terminal.hang_up()
    assert terminal.process.wait(PATIENCE) == 128 + signal.SIGHUP


@pytest.mark.parametrize("typed", [b"\xff", b"\x80", b"\xc3x"])
def test_what_is_no_text_is_no_key(here: list[Terminal], typed: bytes) -> None:
    terminal = _run(here, _trace())
    terminal.until("read_line")
    terminal.press(typed)
    time.sleep(1)
    terminal.press("?")
    terminal.until("call tree")
    terminal.press("q")
    assert terminal.end() == 0


@pytest.mark.parametrize("words", [["-F", "nothing"], ["--trigger", "nothing@off"]])
def test_filters_without_a_match_are_told(here: list[Terminal], words: list[str]) -> None:
    terminal = _run(here, _trace(), "--tui", *words)
    assert terminal.end() == 2
    assert b"matches no function" in terminal.out and ENTERED not in terminal.out


def test_a_fault_of_ours_is_one_line(here: list[Terminal]) -> None:
    script = """
from ftpatch.cli.tui.app import Walk
def fail(self):
    raise ValueError("broken [red]\\x1b[31m")
Walk.action_sort = fail
"""
    here.append(Terminal(patched_command(script, "report", _trace()), {"NO_COLOR": "1"}))
    here[0].until("read_line", "Quit")
    here[0].press("o")
    assert here[0].end() == 2
    assert _is_restored(here[0])
    rest = here[0].out.rpartition(LEFT)[2].decode()
    assert "ftpatch: internal error: ValueError: broken [red]\\x1b[31m; please report" in rest
    assert "Traceback" not in here[0].out.decode()


def test_it_is_suspended_as_shells_have_it(here: list[Terminal]) -> None:
    """And drawn again afterwards."""
    here.append(Terminal(words=["bash", "--norc", "-i"], environment={"PS1": "READY> "}))
    (shell,) = here
    shell.until("READY> ")
    shell.press(f"{shlex.join(ftpatch_command('report', _trace()))}\n")
    shell.until("read_line", "Quit")
    shell.press("\x1a")
    shell.until("READY> ")
    assert LEFT in shell.out and HIDDEN not in shell.out
    shell.press("fg\n")
    shell.until("read_line", "Quit")
    assert ENTERED in shell.out
    shell.press("q")
    shell.until("READY> ")
    shell.press("exit $?\n")
    assert shell.end() == 0


def test_no_colours_where_none_are_wanted(here: list[Terminal]) -> None:
    terminal = _run(here, _trace(), environment={"NO_COLOR": "1"})
    terminal.until("read_line", "Source")
    terminal.press("t")
    terminal.until("Call tree")
    seen = terminal.out
    terminal.press("q")
    assert terminal.end() == 0
    assert not COLOUR.search(seen + terminal.out)


@pytest.mark.parametrize(
    ("words", "environment", "printed"),
    [
        (["--no-tui"], {}, "# tracer: function_graph"),
        (["--format", "profile"], {}, "Hit"),
        (["--json"], {}, '{"pid"'),
        (["--graph", "main"], {}, "# Callers of main"),
        ([], {"TERM": "dumb"}, "# tracer: function_graph"),
        (["--tui"], {"TERM": "dumb"}, "ftpatch: the terminal cannot show this (TERM); printing it"),
    ],
)
def test_what_is_printed(
    here: list[Terminal], words: list[str], environment: dict[str, str], printed: str
) -> None:
    terminal = _run(here, _trace(), *words, environment=environment)
    assert terminal.end() == 0
    assert printed.encode() in terminal.out and ENTERED not in terminal.out


def test_what_is_drawn_needs_standard_error_too(here: list[Terminal]) -> None:
    with Path("errors").open("wb") as errors:
        terminal = _run(here, _trace(), stderr=errors)
    assert terminal.end() == 0
    assert b"# tracer: function_graph" in terminal.out and not Path("errors").read_bytes()


def test_what_fits_on_the_screen_is_printed(here: list[Terminal]) -> None:
    """As pagers do; and walked through where that is asked for."""
    trace = _trace(calls=5)
    terminal = _run(here, trace)
    assert terminal.end() == 0
    assert shown_text(terminal.out) == ftpatch("report", trace).out
    terminal = _run(here, trace, "--tui")
    terminal.until("6 calls")
    terminal.press("q")
    assert terminal.end() == 0


def test_what_has_no_calls_is_printed(here: list[Terminal]) -> None:
    probes = [Told("p:there walk", ip_of("walk"))]
    header: dict[str, int | bytes] = {"path": bytes(program(Path("prog")))}
    thread = Thread(7)
    for number in range(100):
        thread.add(HIT, 0, number)
    trace = ProbeFile(probes, [thread], header).write(Path("hits"))
    printed = ftpatch("report", trace).out
    terminal = _run(here, trace)
    assert (terminal.end(), shown_text(terminal.out)) == (0, printed)
    terminal = _run(here, trace, "--tui")
    said = "ftpatch: probe events cannot be browsed; printing them\n"
    assert (terminal.end(), shown_text(terminal.out)) == (0, said + printed)


def test_errors_are_told_on_the_screen_that_stays(here: list[Terminal]) -> None:
    terminal = _run(here, _trace(), "-f", "nothing", "--tui")
    assert terminal.end() == 2
    assert b"matches no function" in terminal.out and ENTERED not in terminal.out


def test_notes_are_told_at_the_end(here: list[Terminal]) -> None:
    trace = _trace(calls=400)  # which fill two chunks
    raw = bytearray(trace.read_bytes())
    raw[2 * 4096] ^= 1
    trace.write_bytes(raw)
    said = "1 corrupt chunk skipped"
    assert ftpatch("report", trace).err == f"ftpatch: {said}\n"
    terminal = _run(here, trace)
    terminal.until("read_line", f"{said} (? shows all notes)")
    terminal.press("q")
    assert terminal.end() == 0
    assert terminal.out.endswith(f"ftpatch: {said}\r\n".encode())


def test_without_a_terminal() -> None:
    result = ftpatch("report", "any", "--tui")
    said = "ftpatch: --tui needs a terminal; leave it out, or choose a --format\n"
    assert (result.code, result.err) == (2, said)


@pytest.mark.parametrize(
    ("words", "other"),
    [
        (["--json"], "--json"),
        (["--format", "profile"], "--format profile"),
        (["-o", "out"], "--output"),
        (["--graph", "main"], "--graph"),
        (["--diff", "other"], "--diff"),
    ],
)
def test_it_is_not_for_other_reports(words: list[str], other: str) -> None:
    result = ftpatch("report", "any", "--tui", *words)
    assert (result.code, result.err) == (2, f"ftpatch: {other} and --tui conflict\n")
