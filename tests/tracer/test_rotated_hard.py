# SPDX-License-Identifier: MIT
"""Rotation where something goes wrong: files that somebody truncates, handlers that never return,
threads that stop in the middle of a store, and names that are taken."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, ftpatch
from tests.support.padded import padded
from tests.support.sampling import scaled
from tests.support.stopping import until
from tests.support.tracer_ports import FORMS, Form, run_with
from tests.support.tracer_programs import ARCHES

SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#define BARE __attribute__((patchable_function_entry(0)))
static __thread sigjmp_buf back;
static __thread volatile int armed;
static volatile int over;
void leaf(void) { __asm__ volatile("" ::: "memory"); }
BARE static void jumps(int signal) { if (armed) siglongjmp(back, signal); }
BARE static void *run(void *count)
{
	for (long i = (long)count; i; i--)
		leaf();
	return 0;
}
/* Calls go on, whatever the handler leaves in the middle. */
BARE static void *jumping(void *count)
{
	volatile long left = (long)count;

	sigsetjmp(back, 1);
	armed = 1;
	while (left > 0) {
		left--;
		leaf();
	}
	armed = 0;
	return 0;
}
/* One jumps out of the tracer, and makes no call after that. */
BARE static void *stuck(void *at)
{
	if (!sigsetjmp(back, 1)) {
		armed = 1;
		while (!over)
			leaf();
	}
	armed = 0;
	while (!over)
		usleep(1000);
	return at;
}
BARE int main(int argc, char **argv)
{
	int threads = atoi(argv[1]), i;
	long count = atol(argv[2]);
	pthread_t id[64], other;
	struct itimerval time = {{0, 211}, {0, 211}};

	if (argc > 3) {
		struct sigaction act = {.sa_handler = jumps, .sa_flags = SA_NODEFER};
		sigaction(SIGALRM, &act, 0);
	}
	if (argc > 3 && !strcmp(argv[3], "stuck")) {
		pthread_create(&other, 0, stuck, 0);
		usleep(20000);
		pthread_kill(other, SIGALRM);
	} else if (argc > 3) {
		setitimer(ITIMER_REAL, &time, 0);
	}
	for (i = 0; i < threads; i++)
		pthread_create(&id[i], 0, argc > 3 && *argv[3] == 'j' ? jumping : run, (void *)count);
	for (i = 0; i < threads; i++)
		pthread_join(id[i], 0);
	over = 1;
	puts("done");
	return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose threads call a function so many times."""
    return padded(tmp_path_factory.mktemp("hard"), SOURCE, "-pthread", "-w", "-fno-inline")


@pytest.fixture(scope="module")
def traced(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, that rotates files of 64 KB."""
    out = tmp_path_factory.mktemp("traced") / "patched"
    words = ("--tracer", "function", "-f", "leaf", "--size", "64K", "--rotate", "2", "-o", out)
    assert ftpatch("enable", program, *words).code == 0
    return out


def _env(folder: Path, **env: str) -> dict[str, str]:
    return {**os.environ, "FTPATCH_TRACE": str(folder / "trace"), **env}


def _is_past(folder: Path, number: int) -> bool:
    return _latest(folder) > number


def _counts(*files: Path) -> tuple[int, int, int]:
    """Calls that are there, that were removed, and that were lost."""
    said = ftpatch("report", *files, "--json")
    assert said.code == 0, said.err
    for damage in ("corrupt", "without a valid last event"):
        assert damage not in said.err, said.err
    rows = [*map(json.loads, said.out.splitlines())]
    shown = sum("event" in one for one in rows)
    losses = [one for one in rows if "overwritten" in one]
    gone = sum(one["overwritten"] for one in losses)
    return shown, gone, sum(sum(one["lost"].values()) for one in losses)


def _latest(folder: Path, first: str = "trace") -> int:
    """The number of the latest file of a run, by the name of its first one."""
    whole = re.compile(re.escape(first) + r"\.r(\d+)")
    names = (whole.fullmatch(one.name) for one in folder.iterdir())
    return max((int(one[1]) for one in names if one), default=0)


@pytest.mark.parametrize("threads", [1, 4])
def test_files_are_truncated_all_the_time(traced: Path, tmp_path: Path, threads: int) -> None:
    """Whichever is there: the program comes to its end, and goes on recording."""
    command: list[str | Path] = [traced, str(threads), str(scaled(8_000_000, 2_000_000) // threads)]
    pipe, cuts = subprocess.PIPE, 0
    with subprocess.Popen(command, env=_env(tmp_path), stdout=pipe, text=True) as process:
        while process.poll() is None:
            for file in [*tmp_path.glob("trace*")][-3:]:
                try:
                    file.chmod(0o600)
                    os.truncate(file, 0)
                    cuts += 1
                except FileNotFoundError:
                    continue
            if len([*tmp_path.glob("trace*")]) > 60:
                for file in sorted(tmp_path.glob("trace*"))[:40]:
                    file.unlink(missing_ok=True)
            time.sleep(0.002)
        assert process.stdout is not None and process.stdout.read() == "done\n"
    assert process.returncode == 0 and cuts > 3


def test_what_is_lost_is_what_one_file_held(traced: Path, tmp_path: Path) -> None:
    """The file that is written is truncated, of which the next report says how much there was."""
    command: list[str | Path] = [traced, "2", "1000000000"]
    with subprocess.Popen(command, env=_env(tmp_path)) as process:
        try:
            until(lambda: _latest(tmp_path) > 20, PATIENCE)
            for _ in range(1000):
                name = f"trace.{process.pid}"
                if (tmp_path / name).exists():
                    break
                file = tmp_path / f"trace.r{_latest(tmp_path)}"
                if file.exists():
                    file.chmod(0o600)
                    os.truncate(file, 0)
                time.sleep(0.001)
            until(lambda: _latest(tmp_path, name) > 9, PATIENCE)
        finally:
            process.kill()
    files = [one for one in tmp_path.glob(f"{name}*") if any(one.read_bytes()[:8])]
    said = ftpatch("report", *files, "--format", "profile")
    found = re.search(r"truncated while it was being written: up to (\d+) bytes", said.out)
    assert found and 0 < int(found[1]) <= 64 << 10, said.out[:400] + said.err


def test_handlers_that_never_return(traced: Path, tmp_path: Path) -> None:
    """They jump out of wherever the tracer is: what is left is readable, and events go on."""
    calls = scaled(4_000_000, 400_000)
    command: list[str | Path] = [traced, "4", str(calls), "jump"]
    done = subprocess.run(
        command, env=_env(tmp_path), capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout == "done\n" and not done.stderr
    shown, gone, lost = _counts(tmp_path / f"trace.r{_latest(tmp_path)}")
    # A call whose entry the jump left is not counted as lost, nor is one made twice.
    assert shown + gone + lost >= 4 * calls * 0.99 and shown > 0


def test_a_thread_that_stays_in_the_middle(traced: Path, tmp_path: Path) -> None:
    """It may store to its file for ever: that memory is left to it, once, and others go on."""
    command: list[str | Path] = [traced, "1", "1000000000", "stuck"]
    with subprocess.Popen(command, env=_env(tmp_path), stdout=subprocess.DEVNULL) as process:
        try:
            status = Path("/proc", str(process.pid), "status")
            until(lambda: "Threads:\t3" in status.read_text(), PATIENCE)
            sizes, begun = [], _latest(tmp_path)
            for more in (40, 400):
                until(partial(_is_past, tmp_path, begun + more), PATIENCE)
                sizes.append(int(re.findall(r"VmSize:\s+(\d+)", status.read_text())[0]))
            assert sizes[1] - sizes[0] <= 512
        finally:
            process.kill()


def test_a_thread_that_is_late(traced: Path, tmp_path: Path) -> None:
    """It has taken a chunk, and uses none of it until that file is full, left and removed: what it
    stores then is in a file that is there, or counted."""
    holder = tmp_path / "holder"
    source = Path(__file__).parent.parent / "programs" / "holder.c"
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", source, "-o", holder], check=True)
    calls, held = 2_000_000, 3
    command: list[str | Path] = [holder, str(held), "500", traced, "4", str(calls)]
    done = subprocess.run(
        command, env=_env(tmp_path), check=True, timeout=PATIENCE, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("done\n", f"held {held} times\n")
    shown, gone, lost = _counts(tmp_path / f"trace.r{_latest(tmp_path)}")
    assert (shown + gone, lost) == (4 * calls, 0) and shown > 0


def test_more_names_that_exist_than_are_tried(traced: Path, tmp_path: Path) -> None:
    for number in range(1, 251):
        (tmp_path / f"trace.r{number}").write_text("mine")
    command: list[str | Path] = [traced, "1", "300000"]
    subprocess.run(command, env=_env(tmp_path), check=True, timeout=PATIENCE, capture_output=True)
    assert _latest(tmp_path) > 251
    own = [file for file in tmp_path.glob("trace*") if file.read_bytes() != b"mine"]
    shown, gone, lost = _counts(*own)
    assert shown + gone + lost == 300_000 and gone > 200_000


def test_one_that_was_just_made(traced: Path, tmp_path: Path) -> None:
    """By a process that was killed then: the others are reported, and it is named."""
    command: list[str | Path] = [traced, "2", "20000"]
    subprocess.run(command, env=_env(tmp_path), check=True, timeout=PATIENCE, capture_output=True)
    files = sorted(tmp_path.glob("trace*"))
    whole = _counts(*files)
    made, empty = tmp_path / "trace.r90", tmp_path / "trace.r91"
    made.write_bytes(bytes(65536))
    empty.write_bytes(b"")
    said = ftpatch("report", *sorted(tmp_path.glob("trace*")), "--json")
    assert said.code == 0 and _counts(*sorted(tmp_path.glob("trace*"))) == whole
    for file in (made, empty):
        assert f"{file}: it has no header yet" in said.err
    said = ftpatch("report", made)
    assert said.code == 2 and said.err.count("\n") == 1 and str(made) in said.err


def test_a_signal_switches_while_files_are_rotated(program: Path, tmp_path: Path) -> None:
    """Each of them once: after an even number, recording is as it was."""
    traced = tmp_path / "patched"
    words = ("--tracer", "function", "-f", "leaf", "--size", "64K", "--rotate", "1")
    done = ftpatch("enable", program, *words, "--signal", "USR2", "-o", traced)
    assert done.code == 0
    command: list[str | Path] = [traced, "4", "1000000000"]
    with subprocess.Popen(command, env=_env(tmp_path), stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: _latest(tmp_path) > 5, PATIENCE)
            for _ in range(scaled(300, 60)):
                for _ in range(2):
                    process.send_signal(signal.SIGUSR2)
                    until(lambda: not _pending(process.pid), PATIENCE)
                    time.sleep(0.0005)
            time.sleep(0.05)
            now = _latest(tmp_path)
            until(lambda: _latest(tmp_path) > now + 5, PATIENCE)
            process.send_signal(signal.SIGUSR2)
            time.sleep(0.1)
            off = _latest(tmp_path)
            time.sleep(0.2)
            assert _latest(tmp_path) <= off + 1
        finally:
            process.kill()


def _pending(pid: int) -> bool:
    """Whether SIGUSR2 waits to be delivered to a process."""
    said = Path(f"/proc/{pid}/status").read_text()
    masks = re.findall(r"(?:Shd|Sig)Pnd:\s+([0-9a-f]+)", said)
    return any(int(mask, 16) >> (signal.SIGUSR2 - 1) & 1 for mask in masks)


ARM = r"""
#include <stdlib.h>
__attribute__((noinline)) void leaf(void) { __asm__ volatile("" ::: "memory"); }
__attribute__((patchable_function_entry(0))) int main(int argc, char **argv)
{
	for (long i = atol(argv[1]); i; i--)
		leaf();
	return argc - 2;
}
"""
DYNAMIC = [form for form in FORMS if form.level == "-O2" and form.link != "static"]


@pytest.mark.parametrize("form", DYNAMIC, ids=str)
def test_on_processors_that_are_emulated(form: Form, tmp_path: Path) -> None:
    """A program that cannot forbid system calls."""
    gcc = ARCHES[form.arch].gcc
    if shutil.which(gcc) is None:
        pytest.skip(f"{gcc} is not installed")
    from tests.support import tracer_ports

    source = tmp_path / "leaf.c"
    source.write_text(ARM)
    program = tracer_ports.build(form, str(source), tmp_path)
    traced = tmp_path / "patched"
    words = ("--tracer", "function", "-f", "leaf", "--size", "64K", "--rotate", "2", "-o", traced)
    assert ftpatch("enable", program, *words).code == 0
    done = run_with(form, traced, ("50000",), FTPATCH_TRACE=str(tmp_path / "trace"))
    assert done.returncode == 0 and not done.stderr
    shown, gone, lost = _counts(tmp_path / f"trace.r{_latest(tmp_path)}")
    assert (shown + gone, lost) == (50_000, 0) and gone > 0 and _latest(tmp_path) > 5
