# SPDX-License-Identifier: MIT
"""A program that says ``ready``, and answers each number that it is told."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.command import ftpatch

__all__ = ["Told"]


class Told:
    """The program, running from its first line to the end of the block. It must end well."""

    def __init__(self, *words: str | Path) -> None:
        pipe = subprocess.PIPE
        self._program = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
        self.pid = str(self._program.pid)

    def __enter__(self) -> Told:
        assert self._program.stdout is not None and self._program.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._program.communicate()
        assert self._program.returncode == 0

    def asks(self, calls: int) -> str:
        """Tell it, and return its answer."""
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.write(f"{calls}\n")
        self._program.stdin.flush()
        return self._program.stdout.readline()

    def require_clean(self) -> None:
        """Require the code of its files in its memory."""
        said = ftpatch("check", "--pid", self.pid)
        assert said.code == 0, said.out
