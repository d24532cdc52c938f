# SPDX-License-Identifier: MIT
"""ftrace_bug's message (kernel/trace/ftrace.c) for a refused site."""

from __future__ import annotations

import errno
from dataclasses import dataclass

__all__ = ["FtraceBug", "bug_text"]

NULL_PAGE = 4096
"""Bytes from 0 on that no kernel maps."""
FAILED = {
    errno.EFAULT: "ftrace faulted on modifying",
    errno.EINVAL: "ftrace failed to modify",
    errno.EPERM: "ftrace faulted on writing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FtraceBug:
    """One refused site. ``symbol``, ``offset`` and ``size`` (bytes) are kallsyms'; ``actual`` and
    ``expected`` are empty where nothing could be read or nothing is shown; ``word`` is the size of
    an address; ``actual_or`` is what else may stand there, by the processor; ``signed``: bytes are
    printed as signed chars, None where that cannot be told. A module has no addresses before it is
    loaded: then ``where`` stands for ip, and ``actual_filled`` and ``expected_filled`` say which
    bytes (from, to) the loader will fill in."""

    errno: int
    ip: int
    symbol: str
    offset: int
    size: int
    actual: bytes
    expected: bytes
    action: str
    word: int = 8
    where: str = ""
    module: str = ""
    actual_or: tuple[bytes, ...] = ()
    signed: bool | None = False
    actual_filled: tuple[int, int] = (0, 0)
    expected_filled: tuple[int, int] = (0, 0)

    @property
    def doubtful(self) -> bool:
        """True if the kernel may print the bytes in another form."""
        return self.signed is None and any(byte > 0x7F for byte in self.actual + self.expected)

    @property
    def stray(self) -> bool:
        """True if it is outside of its module: what is there is another's, or nothing."""
        return bool(self.module) and self.errno == errno.EFAULT and self.ip >= NULL_PAGE

    @property
    def place(self) -> str:
        """``vfs_read+0x0/0x310``, or the bare address if no symbol is known."""
        if not self.symbol:
            return f"{self.ip:#x}"
        module = f" [{self.module}]" if self.module else ""
        return f"{self.symbol}+{self.offset:#x}/{self.size:#x}{module}"


def bug_text(bug: FtraceBug) -> str:
    """The lines that the kernel prints, without a time stamp."""
    where = bug.where or f"{bug.ip:0{2 * bug.word}x}"
    lines = [
        "------------[ ftrace bug ]------------",
        FAILED.get(bug.errno, "ftrace faulted on unknown error"),
        f"[<{where}>] {bug.place}",
    ]
    if bug.errno == errno.EINVAL:
        held = (_shown(bug, code, bug.actual_filled) for code in (bug.actual, *bug.actual_or))
        lines.append(f" actual:   {' or '.join(dict.fromkeys(held))}")
        if bug.expected:
            lines.append(f" expected: {_shown(bug, bug.expected, bug.expected_filled)}")
    return "\n".join([*lines, bug.action])


def _shown(bug: FtraceBug, code: bytes, filled: tuple[int, int]) -> str:
    """Format bytes as the kernel does; ``??`` for bytes that only a loader knows."""
    hidden, sign = range(*filled), "ffffff" if bug.signed else ""
    told = (f"{sign * (byte > 0x7F)}{byte:02x}" for byte in code)
    return ":".join("??" if i in hidden else text for i, text in enumerate(told))
