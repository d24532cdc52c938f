# SPDX-License-Identifier: MIT
"""Threads that are stopped as gdb sees them, and go on elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from ftpatch.arch import supporting
from ftpatch.arch.thread_state import registers_in, thread_state_of
from ftpatch.process.stop import one_stopped, stopped
from tests.support.stopping import Running, built, running

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gdb") is None, reason="needs gdb on x86-64"
)
PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
volatile int first = 1, second = 1, passed;
__attribute__((noinline)) void *goes(void *p) { passed++; first = second = 0; for (;;) pause(); }
__attribute__((noinline)) void *turns(void *p) { while (second) {} return 0; }
int main(void) {
    pthread_t t;
    char c;
    pthread_create(&t, 0, turns, 0);
    printf("ready %d %p\n", getpid(), goes);
    fflush(stdout);
    read(0, &c, 1);
    printf("passed %d\n", passed);
    return 0;
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "program.c").write_text(PROGRAM)
    return built(tmp_path / "program.c", tmp_path)


def _by_gdb(one: Running, *names: str) -> list[int]:
    words = ["gdb", "-p", str(one.pid), "-batch", "-nx"]
    words += [word for name in names for word in ("-ex", f"p/x (long){name}")]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\$\d+ = (0x[0-9a-f]+)$", said, re.M)
    assert len(found) == len(names), said
    return [int(value, 16) for value in found]


def test_registers_are_as_gdb_shows_them(program: Path) -> None:
    """Of a thread that waits, and so has the same in between."""
    words = ["rip", "rsp", "rbp", "rbx", "rdi", "rsi", "rdx", "r8", "r12", "r15", "fs_base", "cs"]
    with running(program) as one:
        # It always has one thread that runs; the first waits.
        time.sleep(0.05)
        with one_stopped(one.process) as world:
            (thread,) = world.threads
        shown = dict(zip(words, _by_gdb(one, *(f"${name}" for name in words)), strict=True))
        assert {name: int(thread.registers[name]) for name in words} == shown
        assert (thread.ip, thread.sp) == (shown["rip"], shown["rsp"])
        assert thread.tid == one.pid and thread.system_call == 0  # read()
        assert int(thread.resumed["rip"]) == shown["rip"] - 2 and thread.resumed["rax"] == 0
        one.ended()


def test_a_thread_goes_on_elsewhere(program: Path) -> None:
    with running(program) as one:
        (to,) = _by_gdb(one, "&goes")
        with pytest.raises(ZeroDivisionError), stopped(one.process) as world:
            for thread in world.threads:
                thread.move(to)
            raise ZeroDivisionError
        with stopped(one.process) as world:
            (other,) = (thread for thread in world.threads if thread.tid != one.pid)
            assert world.pause_ns == 0
            other.move(to)
        assert world.pause_ns > 0 and world.since > 0
        time.sleep(0.05)
        assert one.ended() == "passed 1\n"


def test_another_thread_may_be_asked_for(program: Path) -> None:
    with running(program) as one:
        tids = {int(path.name) for path in (one.process.place / "task").iterdir()}
        for tid in tids:
            with one_stopped(one.process, tid) as world:
                assert [thread.tid for thread in world.threads] == [tid]
        with one_stopped(one.process) as world:
            assert [thread.tid for thread in world.threads] == [one.pid]
        one.ended()


NAMES = {
    "x86_64": "rax rip rsp orig_rax eflags fs_base gs",
    "arm64": "x0 x8 x30 sp pc pstate",
}
MEMBERS = {
    "x86_64": ("sys/user.h", "struct user_regs_struct", {}),
    "arm64": (
        "asm/ptrace.h",
        "struct user_pt_regs",
        {f"x{number}": f"regs[{number}]" for number in range(31)},
    ),
}
COMPILERS = {"x86_64": "gcc", "arm64": "aarch64-linux-gnu-gcc"}


@pytest.mark.parametrize("arch", supporting("thread_state"))
def test_registers_are_where_the_kernels_header_has_them(tmp_path: Path, arch: str) -> None:
    if shutil.which(COMPILERS[arch]) is None:
        pytest.skip(f"{COMPILERS[arch]} is not installed")
    layout = thread_state_of(arch).layout
    header, struct, members = MEMBERS[arch]
    assert layout.names is not None and set(NAMES[arch].split()) <= set(layout.names)
    lines = [f"#include <{header}>", "#include <stddef.h>", f"#define R {struct}"]
    for name in layout.names:
        fields = layout.fields
        assert fields is not None
        offset = fields[name][1]
        lines.append(f'_Static_assert(offsetof(R, {members.get(name, name)}) == {offset}, "");')
    lines.append(f'_Static_assert(sizeof(R) == {layout.itemsize}, "");')
    (tmp_path / "a.c").write_text("\n".join(lines) + "\n")
    words = [COMPILERS[arch], "-fsyntax-only", "-w", "a.c"]
    subprocess.run(words, cwd=tmp_path, check=True)


def _arm64(**values: int) -> np.void:
    state = thread_state_of("arm64")
    found = registers_in(state.layout, bytes(state.layout.itemsize))
    for name, value in values.items():
        found[name] = value % (1 << 64)
    return found


def test_arm64_calls() -> None:
    """As do_signal() of the kernel leaves them: EINTR behind the call, else at it."""
    state = thread_state_of("arm64")
    wait = (22, 5, 0x100, 1, 3, 0, 8, 0x7000, 0x4004)  # epoll_pwait
    args = {"x1": 0x100, "x2": 1, "x3": 3, "x4": 0, "x5": 8, "x8": 22, "sp": 0x7000}
    ended = _arm64(x0=-4, pc=0x4004, **args)
    handled = ended.copy()
    assert not state.again(handled, wait, lambda: True) and handled == ended
    elsewhere = _arm64(x0=-4, pc=0x5004, **args)
    assert not state.again(elsewhere, wait, lambda: False)
    assert not state.again(ended.copy(), (), lambda: False)
    assert state.again(ended, wait, lambda: False)
    assert ended == _arm64(x0=5, pc=0x4000, **args)
    sleep = (101, 0x100, 0, 1, 3, 0, 8, 0x7000, 0x4004)
    sleeping = _arm64(x0=0x100, pc=0x4000, **{**args, "x1": 0, "x8": 101})
    assert state.resumed(sleeping, sleep, False)["x8"] == 128
    assert state.resumed(ended, wait, False) == ended
    close = (57, 5, 0x100, 1, 3, 0, 8, 0x7000, 0x4004)
    assert not state.again(_arm64(x0=-4, pc=0x4004, **args), close, lambda: False)
