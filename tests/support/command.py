# SPDX-License-Identifier: MIT
"""Runs ftpatch: in this process for speed, in a process of its own where that matters."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from ftpatch.cli import app

__all__ = [
    "PATIENCE",
    "Result",
    "child_env",
    "ftpatch",
    "ftpatch_as",
    "ftpatch_command",
    "ftpatch_process",
    "patched_process",
    "patched_command",
]

ROOT = Path(__file__).parent.parent.parent
WIDTH = "80"
PATIENCE = 300
"""Seconds that only what hangs takes, however slow and busy the machine."""


@dataclass(frozen=True)
class Result:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> list[dict[str, Any]]:
        """The objects on standard output, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def only(self) -> dict[str, Any]:
        """The only object on standard output."""
        (value,) = self.json
        return value


def ftpatch(*args: str | Path, sync: bool = False) -> Result:
    """Run a command in this process, from the arguments to the exit code; nothing waits for the
    disk without ``sync``."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["ftpatch", *map(str, args)]
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.dict(os.environ, {"COLUMNS": WIDTH}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.ExitStack() as stack,
    ):
        if not sync:
            stack.enter_context(mock.patch("os.fsync"))
            stack.enter_context(mock.patch("os.fdatasync"))
        if threading.current_thread() is threading.main_thread():
            # A command ends at once where its reader is gone; we are told of that.
            stack.callback(signal.signal, signal.SIGPIPE, signal.getsignal(signal.SIGPIPE))
        code = app._run()
    return Result(code, out.getvalue(), err.getvalue())


def child_env(**more: str) -> dict[str, str]:
    """The environment of a child that is to import ftpatch from here."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def ftpatch_command(*args: str | Path) -> list[str]:
    """Words that run a command in a process of its own, with `child_env`."""
    return [sys.executable, "-m", "ftpatch", *map(str, args)]


def patched_command(script: str, *args: str | Path) -> list[str]:
    """Words that run a command after ``script``, which may have replaced parts of it."""
    words = ["ftpatch", *map(str, args)]
    main = f"import sys\nsys.argv = {words!r}\nfrom ftpatch.cli import main\nmain()\n"
    return [sys.executable, "-c", f"{script}\n{main}"]


def ftpatch_process(
    *args: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Result:
    """Run a command in a process of its own."""
    return _run(ftpatch_command(*args), {"COLUMNS": WIDTH, **(env or {})}, cwd)


def patched_process(script: str, *args: str | Path, cwd: Path | None = None) -> Result:
    """Run a command after ``script``, in a process of its own."""
    return _run(patched_command(script, *args), {}, cwd)


def _run(words: list[str], env: Mapping[str, str], cwd: Path | None) -> Result:
    done = subprocess.run(
        words,
        env=child_env(**env),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=cwd,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def ftpatch_as(user: int, *args: str | Path) -> Result:
    """Run a command as another user; needs root. A fork, since that user may not be able to read
    this interpreter or checkout: all that the command imports must be loaded already."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            result = ftpatch(*args)
            os.write(writes, json.dumps([result.code, result.out, result.err]).encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as file:
        answer = file.read()
    os.waitpid(child, 0)
    return Result(*json.loads(answer))
