"""ftrace_bug's words (kernel/trace/ftrace.c), for a site that was refused or will be."""

from __future__ import annotations

import errno
from dataclasses import dataclass

__all__ = ["FtraceBug", "bug_text"]

FAILED = {
    errno.EFAULT: "ftrace faulted on modifying",
    errno.EINVAL: "ftrace failed to modify",
    errno.EPERM: "ftrace faulted on writing",
}


@dataclass(frozen=True, slots=True)
class FtraceBug:
    """One refused site. ``symbol``, ``offset`` and ``size`` (bytes) are kallsyms'; ``actual`` and
    ``expected`` are empty where nothing could be read or nothing is shown; ``word`` is the size of
    an address."""

    errno: int
    ip: int
    symbol: str
    offset: int
    size: int
    actual: bytes
    expected: bytes
    action: str
    word: int = 8

    @property
    def place(self) -> str:
        """``vfs_read+0x0/0x310``; the bare address where no symbol is known."""
        if not self.symbol:
            return f"{self.ip:#x}"
        return f"{self.symbol}+{self.offset:#x}/{self.size:#x}"


def bug_text(bug: FtraceBug) -> str:
    """The lines that the kernel prints, without a time stamp."""
    lines = [
        "------------[ ftrace bug ]------------",
        FAILED.get(bug.errno, "ftrace faulted on unknown error"),
        f"[<{bug.ip:0{2 * bug.word}x}>] {bug.place}",
    ]
    if bug.errno == errno.EINVAL:
        lines.append(f" actual:   {bug.actual.hex(':')}")
        if bug.expected:
            lines.append(f" expected: {bug.expected.hex(':')}")
    return "\n".join([*lines, bug.action])
