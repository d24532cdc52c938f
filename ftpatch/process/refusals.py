# SPDX-License-Identifier: MIT
"""Reasons why a process cannot be stopped, each with what to do."""

from __future__ import annotations

import os
import pwd
import struct
from pathlib import Path
from typing import Final

from ftpatch.arch import Arch, arch_of
from ftpatch.arch.thread_state import ThreadState, thread_state_of
from ftpatch.errors import InputError
from ftpatch.process.process import Process, read_status

__all__ = [
    "STOPS",
    "NotStopped",
    "elf_kind",
    "not_stopped",
    "own_arch",
    "require_may_stop",
    "why_not_accessed",
    "why_not_seized",
]

STOPS: Final = 3
"""Number of attempts to stop a process: a thread may lack a processor, or wait for a disk."""
SCOPE: Final = Path("/proc/sys/kernel/yama/ptrace_scope")
SCOPES: Final = {
    "1": ("only a process's parents may trace it", "run as root"),
    "2": ("only root may trace", "run as root"),
    "3": ("nobody may trace until the machine is started anew", ""),
}
"""Values of kernel.yama.ptrace_scope (Documentation/admin-guide/LSM/Yama.rst)."""
CAP_SYS_PTRACE: Final = 19
HEAD: Final = struct.Struct("<4xB13xH")
"""Class and machine in an ELF header."""
CLASSES: Final = {1: 32, 2: 64}


def require_may_stop(process: Process) -> ThreadState:
    """The registers of a process's threads. Raises InputError for one that is not to be stopped, or
    runs code of another kind than the machine's own."""
    if process.pid in (os.getpid(), os.getppid()):
        whose = (
            "ftpatch itself" if process.pid == os.getpid() else "the process that started ftpatch"
        )
        raise InputError(None, f"{process}: this is {whose}", "start ftpatch elsewhere")
    own = elf_kind(Path("/proc/self/exe"))
    try:
        kind = elf_kind(process.place / "exe")
    except (FileNotFoundError, ProcessLookupError):
        kind = own  # its first thread has ended, or is about to start another program
    except OSError:
        raise why_not_seized(process, process.pid) or InputError(
            None, f"{process}: it has ended"
        ) from None
    if kind != own:
        what = "a 32-bit process" if kind[1] == 32 else "a process of another architecture"
        raise InputError(
            None, f"{process}: {what}", "only those of the machine's own kind can be stopped"
        )
    arch = own_arch()
    if arch is None:
        raise InputError(None, f"{process}: its architecture is not supported")
    return thread_state_of(arch.name)


def own_arch() -> Arch | None:
    """The machine's own architecture."""
    return arch_of(*elf_kind(Path("/proc/self/exe")))


def why_not_accessed(process: Process) -> InputError:
    """The reason why the kernel refuses to show a process's memory: that of tracing it, since both
    ask ptrace_may_access()."""
    refused = why_not_seized(process, process.thread, beside_tracer=True)
    return refused or InputError(None, f"{process}: the process has ended")


def why_not_seized(process: Process, tid: int, *, beside_tracer: bool = False) -> InputError | None:
    """The reason why the kernel refuses to trace a thread; None for one that is ending.
    ``beside_tracer``: what was refused may be done to one that is traced."""
    words = read_status(process.place / "task" / str(tid))
    if not words or words["State"][0] in "ZX":
        return None
    tracer = words["TracerPid"]
    if tracer != "0" and not beside_tracer:
        name = read_status(Path(f"/proc/{tracer}")).get("Name", "of another container")
        return InputError(None, f"{process}: {tracer} ({name}) traces it", "end that first")
    own = read_status(Path("/proc/self"))
    if int(own["CapEff"], 16) >> CAP_SYS_PTRACE & 1 == 0:
        if {*words["Uid"].split()[:3], *own["Uid"].split()[:1]} != {own["Uid"].split()[0]}:
            user = _user(int(words["Uid"].split()[1]))
            hint = "run as root" if user == "root" else f"run as {user}, or as root"
            return InputError(None, f"{process}: another user's process ({user})", hint)
        scope = _scope()
        if scope in SCOPES:
            why, hint = SCOPES[scope]
            return InputError(None, f"{process}: {why} ({SCOPE} is {scope})", hint)
    elif _scope() == "3":
        return InputError(None, f"{process}: {SCOPES['3'][0]} ({SCOPE} is 3)")
    return InputError(
        None,
        f"{process}: the kernel does not allow tracing it",
        "a container or a security module may forbid it; run as root outside",
    )


class NotStopped(InputError):
    """Threads have not stopped in time."""


def not_stopped(process: Process, tids: list[int], wait: float) -> NotStopped:
    """The error for threads that have not stopped in time."""
    tid = min(tids, default=process.pid)
    place = process.place / "task" / str(tid)
    state = read_status(place).get("State", "ended")
    try:
        where = (place / "wchan").read_text()
    except OSError:
        where = ""
    what = f"{state}, {where}" if where not in ("", "0") else state
    return NotStopped(
        None,
        f"{process}: thread {tid} did not stop within {wait:g} s: {what}",
        "it may wait for a disk, or for a child that vfork() made; try again",
    )


def elf_kind(exe: Path) -> tuple[int, int]:
    """Return machine and bits of an ELF file. Raises OSError."""
    with exe.open("rb") as file:
        bits, machine = HEAD.unpack(file.read(HEAD.size))
    return machine, CLASSES.get(bits, 0)


def _scope() -> str:
    try:
        return SCOPE.read_text().strip()
    except OSError:
        return ""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
