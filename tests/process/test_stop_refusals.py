# SPDX-License-Identifier: MIT
"""Processes that are not stopped: a line that says why, and nothing is changed."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ftpatch.errors import InputError
from ftpatch.process.process import Process, find_process, read_status
from ftpatch.process.stop import one_stopped, stopped
from tests.support.command import ROOT
from tests.support.stopping import built, running, until

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
PROGRAM = r"""
#include <stdio.h>
#include <unistd.h>
int main(void) {
    char c;
    printf("ready %d\n", getpid()); fflush(stdout);
    return read(0, &c, 1) != 1;
}
"""
VFORK = r"""
#include <stdio.h>
#include <unistd.h>
int main(void) {
    char c;
    printf("ready %d\n", getpid()); fflush(stdout);
    if (vfork() == 0) { read(0, &c, 1); _exit(0); }
    puts("done");
    return 0;
}
"""
NOBODY = pwd.getpwnam("nobody").pw_uid
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return _built(tmp_path, PROGRAM)


def _built(folder: Path, text: str) -> Path:
    source = folder / "program.c"
    source.write_text(text)
    return built(source, folder)


def _refused(process: Process, wait: float = 1.0) -> str:
    errors = []
    for stop in (stopped, one_stopped):
        with pytest.raises(InputError) as error, stop(process, wait=wait):
            pass
        errors.append(str(error.value))
    assert errors[0] == errors[1] and "\n" not in errors[0]
    return errors[0]


def test_our_own_and_our_parent() -> None:
    assert "this is ftpatch itself" in _refused(find_process(os.getpid()))
    assert "this is the process that started ftpatch" in _refused(find_process(os.getppid()))


def test_one_that_has_ended(program: Path) -> None:
    with running(program) as one:
        process = one.process
        one.ended()
    assert "it has ended" in _refused(process)


def test_one_that_is_traced(program: Path) -> None:
    with running(program) as one:
        words = ["gdb", "-p", str(one.pid), "-batch", "-nx", "-ex", "shell sleep 1"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as gdb:
            until(lambda: read_status(one.process.place)["TracerPid"] == str(gdb.pid))
            assert f": {gdb.pid} (gdb) traces it; end that first" in _refused(one.process)
            gdb.wait()
        one.ended()


def _by_nobody(pid: int, setting: str = "") -> str:
    """What is said to another user, whose kernel.yama.ptrace_scope is this."""
    text = f"""
import os, sys
from pathlib import Path
from ftpatch.errors import InputError
from ftpatch.process import refusals
from ftpatch.process.process import find_process
from ftpatch.process.stop import stopped
refusals.SCOPE = Path({setting!r})
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
try:
    with stopped(find_process({pid})):
        print("stopped")
except InputError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert not done.stderr
    return done.stdout


@as_root
def test_another_users(program: Path) -> None:
    with running(program) as one:
        said = _by_nobody(one.pid)
        assert said.endswith(": another user's process (root); run as root\n")
        one.ended()


@as_root
@pytest.mark.parametrize(
    ("scope", "why"),
    [
        ("1", "only a process's parents may trace it"),
        ("2", "only root may trace"),
        ("3", "nobody may trace until the machine is started anew"),
        ("0", "the kernel does not allow tracing it"),
    ],
)
def test_what_the_kernel_forbids(tmp_path: Path, scope: str, why: str) -> None:
    """A process that is not dumpable stands for one that the setting protects: the kernel refuses
    both with EPERM."""
    setting = tmp_path / "ptrace_scope"
    setting.write_text(f"{scope}\n")
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_mode & 0o005 != 0o005:  # another one more, of each worker of the tests
            path.chmod(0o755)
    text = PROGRAM.replace("    char c;", f"    char c; setgid({NOBODY}); setuid({NOBODY});")
    with running(_built(tmp_path, text)) as one:
        said = _by_nobody(one.pid, str(setting))
        assert why in said and (f"({setting} is {scope})" in said) == (scope != "0"), said
        one.ended()


def test_a_thread_that_does_not_stop(tmp_path: Path) -> None:
    with running(_built(tmp_path, VFORK)) as one:
        until(lambda: one.states() == "D")
        begun = time.monotonic()
        said = _refused(one.process, wait=0.3)
        assert 0.6 <= time.monotonic() - begun < 3
        assert re.search(rf": thread {one.pid} did not stop within 0.3 s: D \(disk sleep\)", said)
        assert read_status(one.process.place)["TracerPid"] == "0", "it is let go"
        assert one.ended() == "done\n"


START32 = """
    .globl _start
_start:
    mov $4, %eax
    mov $1, %ebx
    mov $text, %ecx
    mov $end - text, %edx
    int $0x80
    mov $3, %eax
    mov $0, %ebx
    mov %esp, %ecx
    mov $1, %edx
    int $0x80
    mov $1, %eax
    mov $0, %ebx
    int $0x80
    .data
text: .ascii "ready\\n"
end:
"""


def test_a_32_bit_process(tmp_path: Path) -> None:
    (tmp_path / "a.s").write_text(START32)
    subprocess.run(["as", "--32", "a.s", "-o", "a.o"], cwd=tmp_path, check=True)
    subprocess.run(["ld", "-m", "elf_i386", "a.o", "-o", "a"], cwd=tmp_path, check=True)
    pipe = subprocess.PIPE
    try:
        one = subprocess.Popen([tmp_path / "a"], stdin=pipe, stdout=pipe)
    except OSError:
        pytest.skip("the kernel runs no 32-bit programs")
    with one:
        assert one.stdout is not None and one.stdout.readline() == b"ready\n"
        assert "a 32-bit process" in _refused(find_process(one.pid))
        one.communicate(b"\n")
        assert one.returncode == 0
