# SPDX-License-Identifier: MIT
"""A signal that switches recording: what is recorded is what the program did in between, by its own
count, and the program does with the signal what it did before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, ftpatch, ftpatch_command
from tests.support.padded import padded

SOURCE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define BARE __attribute__((patchable_function_entry(0)))
int stock;
static volatile int caught;
void step(void) { stock++; }
BARE static void handler(int signal) { caught += signal; }
BARE static void *idle(void *at) { sigset_t none; sigemptyset(&none); for (;;) pause(); return at; }
BARE static void say(const char *text) { printf("%s\n", text); fflush(stdout); }
BARE int main(int argc, char **argv)
{
	char line[64];
	sigset_t set;
	pthread_t id;
	int number, pid;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	say("ready");
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "step")) {
			step();
		} else if (!strcmp(line, "handle")) {
			struct sigaction new = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
			sigaction(SIGUSR2, &new, &old);
			sigaction(SIGUSR2, &new, 0);
		} else if (!strcmp(line, "caught")) {
			printf("%d\n", caught);
			fflush(stdout);
			continue;
		} else if (!strcmp(line, "block")) {
			sigprocmask(SIG_BLOCK, &set, 0);
			pthread_create(&id, 0, idle, 0);
		} else if (!strcmp(line, "unblock")) {
			sigprocmask(SIG_UNBLOCK, &set, 0);
		} else if (!strcmp(line, "wait")) {
			say("waits");
			sigwait(&set, &number);
			printf("got %d\n", number);
			fflush(stdout);
			continue;
		} else if (!strcmp(line, "ignore")) {
			signal(SIGUSR2, SIG_IGN);
		} else if (!strcmp(line, "fork")) {
			fflush(stdout);
			if ((pid = fork())) {
				waitpid(pid, 0, 0);
				continue; /* the child has said all */
			}
		} else if (!strcmp(line, "end")) {
			say("ended");
			_exit(0);
		} else if (!strcmp(line, "exec")) {
			execl(argv[0], argv[0], (char *)0);
			return 1;
		} else if (!strcmp(line, "sleep")) {
			execl("/bin/sh", "sh", "-c", "echo started; read x", (char *)0);
		}
		say(".");
	}
	return argc - 1;
}
"""
HANDLED = "ignored or handled already"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that does what it is told, a line each."""
    return padded(tmp_path_factory.mktemp("switched"), SOURCE, "-pthread", "-w", "-fno-inline")


class Told:
    """A program that is told what to do."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, *words: str) -> str:
        """Tell it some, and return its last answer."""
        assert self.process.stdin is not None
        said = ""
        for word in words:
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()
            said = self.says()
        return said

    def says(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def signal(self, number: int = signal.SIGUSR2) -> None:
        """Send it a signal; it has had it when it answers next."""
        self.process.send_signal(number)


@contextmanager
def _told(traced: Path, trace: Path, *words: str, **env: str) -> Iterator[Told]:
    pipe = subprocess.PIPE
    environment = {**os.environ, "FTPATCH_TRACE": str(trace), **env}
    with subprocess.Popen(
        [*words, traced],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=environment,
        text=True,
        start_new_session=True,
    ) as process:
        told = Told(process)
        try:
            assert told.says() == "ready"
            yield told
        finally:
            process.kill()


def _ended(told: Told) -> str:
    """Let it come to its end; what it wrote to standard error."""
    said = told.process.communicate(timeout=PATIENCE)[1]
    assert told.process.returncode == 0
    return said


def _patched(program: Path, folder: Path, *words: str, name: str = "patched") -> Path:
    traced = folder / name
    done = ftpatch("enable", program, "--tracer", "function", "-f", "step", *words, "-o", traced)
    assert done.code == 0, done.err
    return traced


def _steps(trace: Path, *options: str) -> int:
    said = ftpatch("report", trace, "--json", *options)
    assert said.code == 0, said.err
    events = map(json.loads, said.out.splitlines())
    return sum(one.get("function") == "step" for one in events)


@pytest.mark.parametrize("word", ["USR2", "SIGUSR2", "12", "usr2"])
def test_it_switches_off_and_on(program: Path, tmp_path: Path, word: str) -> None:
    traced, trace = _patched(program, tmp_path, "--signal", word), tmp_path / "t"
    with _told(traced, trace) as told:
        told.tell(*["step"] * 3)
        told.signal()
        told.tell(*["step"] * 5)
        told.signal()
        told.tell(*["step"] * 2)
        assert _ended(told) == ""
    assert _steps(trace) == 5


def test_it_begins_switched_off(program: Path, tmp_path: Path) -> None:
    traced, trace = _patched(program, tmp_path, "--off", "--signal", "USR1"), tmp_path / "t"
    with _told(traced, trace) as told:
        told.tell("step")
        told.signal(signal.SIGUSR1)
        told.tell("step", "step")
        done = ftpatch("disable", "--pid", str(told.process.pid), "--recording")
        assert done.code == 0, done.err
        told.tell("step")
        told.signal(signal.SIGUSR1)
        told.tell("step", "step", "step")
        _ended(told)
    assert _steps(trace) == 5


@pytest.mark.parametrize(
    ("words", "env", "steps", "told_"),
    [
        ((), "USR2", 1, ""),
        ((), "SIGUSR2", 1, ""),
        ((), "12", 1, ""),
        (("--signal", "USR2"), "", 1, ""),
        (("--signal", "USR2"), "NONSENSE", 1, "FTPATCH_TRACE_SIGNAL=NONSENSE: not a signal that"),
        (("--signal", "USR2"), "KILL", 1, "FTPATCH_TRACE_SIGNAL=KILL: not a signal that can"),
        (("--signal", "USR2"), "SEGV", 1, "FTPATCH_TRACE_SIGNAL=SEGV: not a signal that can"),
        (("--signal", "USR2"), "33", 1, "FTPATCH_TRACE_SIGNAL=33: not a signal that can switch"),
        (("--signal", "USR2"), "120", 1, "FTPATCH_TRACE_SIGNAL=120: not a signal that can"),
        (("--signal", "USR1"), "USR2", 1, ""),
    ],
)
def test_the_environment_asks_for_it(
    program: Path, tmp_path: Path, words: tuple[str, ...], env: str, steps: int, told_: str
) -> None:
    traced, trace = _patched(program, tmp_path, *words), tmp_path / "t"
    with _told(traced, trace, FTPATCH_TRACE_SIGNAL=env) as told:
        told.tell("step")
        told.signal()
        told.tell("step")
        said = _ended(told)
    assert told_ in said and said.count("\n") == bool(told_)
    assert _steps(trace) == steps


def test_the_environment_says_no(program: Path, tmp_path: Path) -> None:
    """Then the signal kills, as it does a program that is not traced."""
    traced, trace = _patched(program, tmp_path, "--signal", "USR2"), tmp_path / "t"
    with _told(traced, trace, FTPATCH_TRACE_SIGNAL="0") as told:
        told.signal()
        assert told.process.wait(PATIENCE) == -signal.SIGUSR2


def test_every_name_is_that_of_its_number(program: Path, tmp_path: Path) -> None:
    """The runtime takes the names that Python has of the C library."""
    traced = _patched(program, tmp_path)
    refused = {"KILL", "STOP", "ILL", "TRAP", "BUS", "FPE", "SEGV", "SYS"}
    chosen = ("HUP", "INT", "USR1", "USR2", "ALRM", "TERM", "URG", "WINCH", "IO", "PWR", "XCPU")
    for name in chosen:
        assert name not in refused
        trace = tmp_path / name
        with _told(traced, trace, FTPATCH_TRACE_SIGNAL=name) as told:
            told.signal(signal.Signals[f"SIG{name}"])
            told.tell("step")
            assert _ended(told) == ""
        assert _steps(trace) == 0, name


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("KILL", "no program can handle it"),
        ("19", "no program can handle it"),
        ("TRAP", "the runtime needs it"),
        ("SIGBUS", "the runtime needs it"),
        ("11", "the runtime needs it"),
        ("32", "the C library needs it"),
        ("USR3", "no such signal"),
        ("65", "no such signal"),
        ("-1", "no such signal"),
    ],
)
def test_other_signals_are_refused(program: Path, tmp_path: Path, word: str, reason: str) -> None:
    out, option = tmp_path / "out", f"--signal={word}"
    for command in (
        ("enable", program, "--tracer", "function", option, "-o", out),
        ("probe", program, "p step", option, "-o", out),
        ("watch", program, "stock:rw-", option, "-o", out),
    ):
        done = ftpatch(*command)
        assert done.code == 2 and reason in done.err and done.err.count("\n") == 1
        assert not out.exists()
    done = ftpatch("trace", option, program)
    assert done.code == 125 and reason in done.err and not done.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tracer", "nop", "--signal", "USR2"), "--signal: the nop tracer records nothing"),
        (("--signal", "USR2"), "--signal requires a --tracer of programs"),
    ],
)
def test_it_needs_what_records(
    program: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = ftpatch("enable", program, *words, "-o", tmp_path / "out")
    assert done.code == 2 and said in done.err and not (tmp_path / "out").exists()


def test_the_programs_own_handler(program: Path, tmp_path: Path) -> None:
    """It is called, each time, and recording goes on."""
    traced, trace = _patched(program, tmp_path, "--signal", "USR2"), tmp_path / "t"
    with _told(traced, trace) as told:
        told.tell("step", "handle")
        for count in (1, 2, 3):
            told.signal()
            told.tell("step")
            assert told.tell("caught") == str(count * signal.SIGUSR2)
        _ended(told)
    assert _steps(trace) == 4


def test_the_program_ignores_it(program: Path, tmp_path: Path) -> None:
    traced, trace = _patched(program, tmp_path, "--signal", "USR2"), tmp_path / "t"
    with _told(traced, trace) as told:
        told.tell("ignore")
        told.signal()
        told.tell("step")
        _ended(told)
    assert _steps(trace) == 1


def test_it_was_ignored_by_who_started_the_program(program: Path, tmp_path: Path) -> None:
    """It stays so, which is said once."""
    traced, trace = _patched(program, tmp_path, "--signal", "USR2"), tmp_path / "t"
    with _told(traced, trace, "sh", "-c", "trap '' USR2; exec $0") as told:
        told.signal()
        told.tell("step")
        said = _ended(told)
    assert said.count("\n") == 1 and f"signal 12 is {HANDLED}" in said
    assert _steps(trace) == 1


def test_a_signal_that_is_blocked(program: Path, tmp_path: Path) -> None:
    """It waits until a thread takes it; who waits for it gets it, and nothing is switched."""
    traced, trace = _patched(program, tmp_path, "--signal", "USR2"), tmp_path / "t"
    with _told(traced, trace) as told:
        told.tell("block")
        told.signal()
        told.tell("step", "step")
        told.tell("unblock", "step")
        told.tell("block")
        assert told.tell("wait") == "waits"
        told.signal()
        assert told.says() == "got 12"
        told.tell("unblock", "step")
        told.signal()
        told.tell("step")
        told.process.kill()
    assert _steps(trace) == 3


def test_children_are_switched_by_themselves(program: Path, tmp_path: Path) -> None:
    """A forked child by its own number, or all of a group, each once."""
    traced, trace = _patched(program, tmp_path, "--signal", "USR2"), tmp_path / "t"
    with _told(traced, trace) as told:
        told.tell("step", "fork", "step")
        os.killpg(told.process.pid, signal.SIGUSR2)
        told.tell("step", "step")
        os.killpg(told.process.pid, signal.SIGUSR2)
        told.tell("step")
        assert told.tell("end") == "ended"
        told.tell("step")
        _ended(told)
    assert _steps(trace, "--no-children") == 2
    assert _steps(trace) == 4


def test_a_child_that_has_recorded_nothing_yet(program: Path, tmp_path: Path) -> None:
    """The signal is its own: its parent's recording is as it was."""
    traced, trace = _patched(program, tmp_path, "--signal", "USR2"), tmp_path / "t"
    with _told(traced, trace) as told:
        told.tell("step", "fork")
        children = Path(f"/proc/{told.process.pid}/task/{told.process.pid}/children")
        (child,) = children.read_text().split()
        os.kill(int(child), signal.SIGUSR2)
        told.tell("step", "step")
        assert told.tell("end") == "ended"
        told.tell("step")
        _ended(told)
    assert _steps(trace) == 2


def test_a_new_image_begins_anew(program: Path, tmp_path: Path) -> None:
    traced, trace = _patched(program, tmp_path, "--signal", "USR2"), tmp_path / "t"
    with _told(traced, trace) as told:
        told.signal()
        told.tell("step")
        assert told.tell("exec") == "ready"
        told.tell("step", "step")
        told.signal()
        told.tell("step")
        pid = told.process.pid
        _ended(told)
    assert _steps(trace, "--no-children") == 0
    assert _steps(tmp_path / f"t.{pid}", "--no-children") == 2


def test_an_image_that_is_not_patched(program: Path, tmp_path: Path) -> None:
    """The signal does to it what it always did."""
    traced, trace = _patched(program, tmp_path, "--signal", "USR2"), tmp_path / "t"
    with _told(traced, trace) as told:
        assert told.tell("sleep") == "started"
        told.signal()
        assert told.process.wait(PATIENCE) == -signal.SIGUSR2


@pytest.mark.parametrize(
    "command",
    [
        ("probe", "p step"),
        ("probe", "--no-optimize", "p step"),
        ("watch", "stock:-w-"),
    ],
)
def test_probes_and_watches(program: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    traced, trace, verb = tmp_path / "patched", tmp_path / "t", command[0]
    done = ftpatch(verb, program, *command[1:], "--signal", "USR2", "-o", traced)
    assert done.code == 0, done.err
    with _told(traced, trace) as told:
        told.tell("step", "step")
        told.signal()
        told.tell(*["step"] * 7)
        told.signal()
        told.tell("step")
        _ended(told)
    rows = [*map(json.loads, ftpatch("report", trace, "--json").out.splitlines())]
    if any(row.get("errno") for row in rows):
        pytest.skip("the kernel sets no watches here")
    assert sum("time" in row for row in rows) == 3


def test_what_is_added_keeps_it(program: Path, tmp_path: Path) -> None:
    """Probes, a tracer and watches added one by one: any of them may ask for the signal."""
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    assert ftpatch("probe", program, "p step", "--signal", "USR2", "-o", first).code == 0
    words = ("--tracer", "function", "-f", "step")
    assert ftpatch("enable", first, *words, "-o", second).code == 0
    assert ftpatch("probe", second, "p:again step", "-o", third).code == 0
    with _told(third, tmp_path / "t") as told:
        told.signal()
        told.tell("step")
        told.signal()
        told.tell("step")
        _ended(told)
    assert _steps(tmp_path / "t", "--filter", "step") >= 1
    assert ftpatch("undo", third, "--all").code == 0
    assert third.read_bytes() == program.read_bytes()


def test_watches_get_it_later(program: Path, tmp_path: Path) -> None:
    """A second command changes the configuration, and undo takes that back alone."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert ftpatch("watch", program, "stock:-w-", "-o", first).code == 0
    done = ftpatch("watch", first, "stock:rw-", "--signal", "USR2", "-o", second)
    assert done.code == 0, done.err
    with _told(second, tmp_path / "t") as told:
        told.signal()
        told.tell("step")
        _ended(told)
    assert ftpatch("undo", second).code == 0 and second.read_bytes() == first.read_bytes()


def test_under_trace(program: Path, tmp_path: Path) -> None:
    trace = tmp_path / "t"
    words = ("--tracer", "function", "-f", "step", "--signal", "USR2", "-o", trace)
    command = ftpatch_command("trace", *words, program)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        told = Told(process)
        assert told.says() == "ready"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        (child,) = children.read_text().split()
        told.tell("step")
        os.kill(int(child), signal.SIGUSR2)
        told.tell("step", "step")
        assert process.communicate(timeout=PATIENCE) and process.returncode == 0
    assert _steps(trace) == 1


def test_processes_are_told_why_not(program: Path) -> None:
    for command in (
        ("trace", "--pid", "1", "--signal", "USR2"),
        ("enable", "--pid", "1", "--signal", "USR2"),
        ("probe", "--pid", "1", "p step", "--signal", "USR2"),
        ("watch", "--pid", "1", "stock:rw-", "--signal", "USR2"),
        ("probe", "-c", str(program), "p step", "--signal", "USR2"),
    ):
        done = ftpatch(*command)
        assert done.code in (2, 125) and "--signal" in done.err and done.err.count("\n") == 1
