# SPDX-License-Identifier: MIT
"""The trace files of libraries by themselves: small while nothing is recorded, on a full disk,
without /proc, and in a sandbox."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.library_programs import PAD
from tests.support.whole_library import built, counts, enabled

PROGRAM = r"""
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
int whole_leaf(int);
static int called(int times)
{
	int right = 0;

	for (int i = 0; i < times; i++)
		right += whole_leaf(i) == i + 1;
	return right;
}
/* From now on a system call but for these ends the process. */
static void forbid(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {5, code};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(9);
}
/* Arguments: calls before, what then happens, and calls after it. */
int main(int argc, char **argv)
{
	static char zeros[65536];
	char out[32];
	int right = called(atoi(argv[1])), fd;

	if (!strcmp(argv[2], "full")) {
		fd = open("filler", O_CREAT | O_WRONLY, 0600);
		while (write(fd, zeros, sizeof(zeros)) > 0)
			;
		while (write(fd, zeros, 512) > 0)
			;
		close(fd);
	} else if (!strcmp(argv[2], "sandbox")) {
		forbid();
	}
	right += called(atoi(argv[3]));
	snprintf(out, sizeof(out), "%d\n", right);
	write(1, out, strlen(out));
	syscall(SYS_exit, 0);
}
"""
LITTLE = 100 << 10
"""Bytes that a trace takes before much is recorded."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that calls a library with a tracer of its own."""
    library, _ = built(tmp_path)
    enabled(library, "function_graph")
    (tmp_path / "calls.c").write_text(PROGRAM)
    words = ["gcc", "-O1", "-w", "calls.c", str(library), f"-Wl,-rpath,{tmp_path}", "-o", "calls"]
    subprocess.run(words, cwd=tmp_path, check=True)
    return tmp_path / "calls"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=777", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a small disk")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def _ran(
    program: Path, folder: Path, *args: object, size: str = "64M", before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"FTPATCH_TRACE": "trace", "FTPATCH_TRACE_SIZE": size}
    words = [*before, str(program), *map(str, args)]
    return subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, check=False)


def _taken(trace: Path) -> int:
    """Bytes that it takes of the disk."""
    return trace.stat().st_blocks * 512


@pytest.mark.parametrize("calls", [0, 10, 200_000])
def test_it_takes_what_is_recorded(calls: int, program: Path, tmp_path: Path) -> None:
    done = _ran(program, tmp_path, calls, "", 0)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{calls}\n", "")
    trace = tmp_path / "trace"
    assert trace.stat().st_size == 64 << 20
    assert _taken(trace) < LITTLE + 16 * calls * 3
    assert _taken(trace) > 8 * calls and counts(trace)["whole_leaf"] == calls


@pytest.mark.parametrize("size", ["400K", "64K"])
def test_a_disk_that_becomes_full(size: str, program: Path, disk: Path) -> None:
    """Each call is recorded or counted, the program goes on, and one line says so."""
    before, after = 100, 40_000
    done = _ran(program, disk, before, "full", after, size=size)
    assert (done.returncode, done.stdout) == (0, f"{before + after}\n"), done.stderr
    assert done.stderr == "ftpatch: the disk is full; what follows is counted, and not recorded\n"
    (disk / "filler").unlink()
    said = ftpatch("report", disk / "trace", "--format", "profile")
    lost = re.search(r"(\d+) events lost when the disk was full", said.out)
    assert lost, said.out
    recorded = counts(disk / "trace")
    assert recorded["whole_leaf"] + int(lost[1]) == before + after
    assert before <= recorded["whole_leaf"] < after


def test_a_disk_with_little_room(program: Path, disk: Path) -> None:
    """All of the file is allocated, or as much as there is room for: it will do later."""
    done = _ran(program, disk, 100, "full", 20_000, size="1M")
    assert (done.returncode, done.stdout, done.stderr) == (0, "20100\n", "")
    assert _taken(disk / "trace") >= 1 << 20
    assert counts(disk / "trace")["whole_leaf"] == 20100


def test_a_disk_that_is_full(program: Path, disk: Path) -> None:
    (disk / "filler").write_bytes(bytes((8 << 20) - 8192))
    done = _ran(program, disk, 5, "", 5)
    told = "FTPATCH_TRACE=trace: cannot create the trace file (errno 28); nothing is recorded"
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", f"ftpatch: {told}\n")
    assert [one.name for one in disk.iterdir()] == ["filler"]


def test_a_program_that_gives_up_system_calls(program: Path, tmp_path: Path) -> None:
    """Its file grows all the same: without any."""
    done = _ran(program, tmp_path, 5, "sandbox", 200_000)
    assert (done.returncode, done.stdout, done.stderr) == (0, "200005\n", "")
    assert counts(tmp_path / "trace")["whole_leaf"] == 200_005


def test_without_proc(program: Path, tmp_path: Path) -> None:
    """What glibc passes to initializers tells the same."""
    without = ("unshare", "--mount", "sh", "-c", 'umount --lazy /proc && exec "$0" "$@"')
    if os.geteuid() or _ran(Path("true"), tmp_path, before=without).returncode:
        pytest.skip("only root unmounts /proc")
    done = _ran(program, tmp_path, 7, "", 5, before=without)
    assert (done.returncode, done.stdout, done.stderr) == (0, "12\n", "")
    done_ = ftpatch("report", tmp_path / "trace", "--image", tmp_path / "libwhole.so.1", "--json")
    assert done_.code == 0, done_.err
    names = [row["function"] for row in done_.json if row.get("event") == "entry"]
    assert names == ["whole_begin"] + ["whole_leaf"] * 12


def test_a_stub_of_ones_own(tmp_path: Path) -> None:
    """It takes registers, and is in the library by itself: every second call fails."""
    library, _ = built(tmp_path, pad=PAD)
    samples = Path(__file__).parent.parent.parent / "samples" / "stubs"
    flags = ftpatch("--cflags").out.split()
    stub = tmp_path / "fails.elf"
    subprocess.run(["gcc", *flags, str(samples / "fails.c"), "-o", str(stub)], check=True)
    (tmp_path / "calls.c").write_text(PROGRAM)
    words = ["gcc", "-O1", "-w", "calls.c", str(library), f"-Wl,-rpath,{tmp_path}", "-o", "calls"]
    subprocess.run(words, cwd=tmp_path, check=True)
    enabled(library, str(stub), "-f", "whole_leaf")
    done = _ran(tmp_path / "calls", tmp_path, 10, "", 10)
    assert (done.returncode, done.stdout, done.stderr) == (0, "10\n", "")
    assert not (tmp_path / "trace").exists()
