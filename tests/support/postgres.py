# SPDX-License-Identifier: MIT
"""PostgreSQL as Debian has it: a server of its own for a test, and a client to ask it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["NEEDED", "SERVER", "Client", "client", "postgres"]

SERVER = max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), default=None)
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


NEEDED = pytest.mark.skipif(
    os.uname().machine != "x86_64"
    or SERVER is None
    or os.geteuid() != 0
    or shutil.which("psql") is None,
    reason="needs x86-64, postgresql, psql, and root: the server has a user of its own",
)


@contextmanager
def postgres() -> Iterator[Path]:
    """Let a server run; yields the folder of its socket."""
    assert SERVER is not None
    with tempfile.TemporaryDirectory(prefix="ft", dir="/tmp") as name:
        os.chown(name, 65534, 65534)
        folder = Path(name)
        words = [*NOBODY, str(SERVER.parent / "pg_ctl"), "-D", str(folder / "data"), "-s", "-w"]
        made = [*words, "initdb", "-o", "-A trust -U postgres --no-sync"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        only = f"-k {folder} -c listen_addresses= -c fsync=off"
        begin = [*words, "-l", str(folder / "log"), "-o", only, "start"]
        subprocess.run(begin, check=True, cwd=folder)
        try:
            yield folder
        finally:
            subprocess.run([*words, "-m", "fast", "stop"], check=True, cwd=folder)


class Client:
    """A psql, and the process that answers it."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program
        self.pid = self.asks("select pg_backend_pid()")

    def asks(self, query: str) -> str:
        """Make a query, and return its answer of one line."""
        assert self._program.stdin is not None and self._program.stdout is not None
        self._program.stdin.write(f"{query};\n")
        self._program.stdin.flush()
        return self._program.stdout.readline().strip()


@contextmanager
def client(socket: Path) -> Iterator[Client]:
    """Let a client run. It must end well; errors of queries are not shown."""
    pipe = subprocess.PIPE
    words = ["psql", "-XqAt", "-h", str(socket), "-U", "postgres"]
    with subprocess.Popen(
        words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as program:
        yield Client(program)
        program.communicate()
    assert program.returncode == 0
