# SPDX-License-Identifier: MIT
"""A command that changes a running process does so in a child of its own, which outlives it: if the
command is killed, whatever it has begun is ended in order, and no stopped thread is let go too
early.

    shell ── ftpatch: waits, passes signals on ── ftpatch: does the work
                 ^ SIGKILL                           ^ SIGTERM from the kernel, as its parent died

Only if both are killed at once, the journal has to tell a later `ftpatch undo` what is left.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

__all__ = ["outlive", "outlives"]

CHANGING: Final = {"trace", "enable", "disable", "undo", "probe"}
"""Verbs that change a process."""
PID: Final = re.compile(r"(?:--pid[ =]|-[qv]*p ?)\d")
"""The option that names a process, and the next word; other short ones may stand before it."""
RUN: Final = re.compile(r"--command[ =]|-[qv]*c")
"""The option of `probe` that names a command line."""
PR_SET_PDEATHSIG: Final = 1
SI_KERNEL: Final = 0x80
"""The terminal sends a signal to all of its processes."""
KEPT: Final = {signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
"""Signals that cannot be waited for, or that stop both."""


def outlives(words: Sequence[str]) -> bool:
    """Test whether a command line changes a running process."""
    if not words or words[0] not in CHANGING:
        return False
    pairs = [" ".join(pair) for pair in zip(words, [*words[1:], ""], strict=True)]
    return any(PID.match(one) or (words[0] == "probe" and RUN.match(one)) for one in pairs)


def outlive() -> None:
    """Go on in a child. The parent ends as the child does."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else nobody is told
    passed = signal.valid_signals() - KEPT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, passed)
    parent = os.getpid()
    child = os.fork()
    if child:
        _wait(child, passed)
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if os.getppid() != parent:  # it was killed before that
        os.kill(os.getpid(), signal.SIGTERM)


def _wait(child: int, passed: set[signal.Signals]) -> NoReturn:
    """Pass signals on until the child has ended."""
    while True:
        found = signal.sigwaitinfo(passed)
        if found.si_signo != signal.SIGCHLD:
            if found.si_code != SI_KERNEL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, found.si_signo)
            continue
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGKILL:
                what = "killed; `ftpatch undo --pid` takes out what it has left"
                with contextlib.suppress(OSError):
                    os.write(sys.stderr.fileno(), f"ftpatch: {what}\n".encode())
            os._exit(code if code >= 0 else 128 - code)
