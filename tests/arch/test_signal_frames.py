# SPDX-License-Identifier: MIT
"""Signal frames, the kernel's or those of QEMU; and the handler itself says what they hold."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ftpatch.arch.signal_frames import signal_frames
from ftpatch.errors import InputError
from tests.support.gnu import EMULATORS

PROGRAM = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>
#ifdef __aarch64__
#define IP uc_mcontext.pc
#define SP uc_mcontext.sp
#define BACK 0ul
#else
#define IP uc_mcontext.gregs[REG_RIP]
#define SP uc_mcontext.gregs[REG_RSP]
#define BACK (unsigned long)__builtin_return_address(0)
#endif
static int depth;
static unsigned long *end;
static void say(int number, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    printf("%lx %lx %lx %lx %lx\n", (unsigned long)&uc->IP, (unsigned long)uc->IP,
           (unsigned long)uc->SP, *(unsigned long *)&uc->uc_sigmask, BACK);
    if (++depth < 3) raise(SIGUSR1);
    else for (unsigned long *p = __builtin_frame_address(0); p < end; p++)
        printf("%lx %lx ", (unsigned long)p, *p);
}
int main(int argc, char **argv) {
    struct sigaction act = {.sa_sigaction = say, .sa_flags = SA_SIGINFO | SA_NODEFER};
    stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    end = __builtin_frame_address(0);
    if (argc > 1) {
        act.sa_flags |= SA_ONSTACK;
        sigaltstack(&other, 0);
        end = (unsigned long *)((char *)other.ss_sp + other.ss_size);
    }
    sigaction(SIGUSR1, &act, 0);
    sigaddset(&act.sa_mask, SIGHUP);
    sigprocmask(SIG_BLOCK, &act.sa_mask, 0);
    raise(SIGUSR1);
    return 0;
}
"""


@pytest.mark.parametrize("words", [[], ["other stack"]], ids=["same", "other"])
@pytest.mark.parametrize("arch", ["x86_64", "arm64"])
def test_handlers_within_handlers(tmp_path: Path, arch: str, words: list[str]) -> None:
    machine = {"x86_64": "x86_64", "arm64": "aarch64"}[arch]
    runs = [] if os.uname().machine == machine else [EMULATORS[arch]]
    compiler = f"{machine}-linux-gnu-gcc"
    if None in [shutil.which(word) for word in (compiler, *runs)]:
        pytest.skip(f"needs a compiler for {arch}, and what runs its programs")
    source, path = tmp_path / "p.c", tmp_path / "p"
    source.write_text(PROGRAM)
    subprocess.run([compiler, "-O1", "-static", source, "-o", path], check=True)
    command = [*runs, str(path), *words]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    *wanted, stack = said.splitlines()
    held = np.array([int(word, 16) for word in stack.split()], np.uint64).reshape(-1, 2)
    addresses, values = held.T
    found = signal_frames(arch, values, addresses.__getitem__)
    columns = (found.at, found.ip, found.sp, found.mask, found.back)
    told = [[int(word, 16) for word in line.split()] for line in wanted][::-1]
    assert len(wanted) == 3
    assert np.transpose(columns).tolist() == told
    assert found.mask[0] & np.uint64(1 << signal.SIGHUP - 1)
    # What has no end, or begins on another stack, is none.
    low = int(np.flatnonzero(addresses == found.at[0])[0])
    assert len(signal_frames(arch, values[: low + 2], addresses.__getitem__)) == 0
    apart = addresses.copy()
    apart[:low] -= np.uint64(1 << 20)
    assert signal_frames(arch, values, apart.__getitem__).ip.tolist() == found.ip[1:].tolist()


@pytest.mark.parametrize("arch", ["x86_64", "arm64"])
def test_an_empty_stack(arch: str) -> None:
    none = np.empty(0, np.uint64)
    assert not len(signal_frames(arch, none, none.__getitem__))


def test_an_architecture_without() -> None:
    with pytest.raises(InputError, match="not supported on riscv64"):
        signal_frames("riscv64", np.empty(0, np.uint64), np.empty(0, np.uint64).__getitem__)
