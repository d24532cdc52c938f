# SPDX-License-Identifier: MIT
"""A database server as Debian has it, probed while it answers: its queries are counted and read,
and answered as without."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.busy import taken_out
from tests.support.command import ftpatch

SERVER = max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), default=None)
pytestmark = [
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64"),
    pytest.mark.skipif(SERVER is None, reason="needs postgresql"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the server has a user of its own"),
    pytest.mark.skipif(shutil.which("psql") is None, reason="needs psql"),
]
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
QUERIES = 200


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the server's user."""
    with tempfile.TemporaryDirectory(prefix="ft", dir="/tmp") as name:
        os.chown(name, 65534, 65534)
        yield Path(name)


@pytest.fixture
def socket(folder: Path) -> Iterator[Path]:
    """The folder of the socket of a server that runs."""
    assert SERVER is not None
    data = folder / "data"
    words = [*NOBODY, str(SERVER.parent / "pg_ctl"), "-D", str(data), "-s", "-w"]
    made = [*words, "initdb", "-o", "-A trust -U postgres --no-sync"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    only = f"-k {folder} -c listen_addresses= -c fsync=off"
    log = folder / "log"
    subprocess.run([*words, "-l", str(log), "-o", only, "start"], check=True, cwd=folder)
    try:
        yield folder
    finally:
        subprocess.run([*words, "-m", "fast", "stop"], check=True, cwd=folder)


def test_queries_are_counted_and_read(socket: Path, tmp_path: Path) -> None:
    pipe, trace = subprocess.PIPE, tmp_path / "t.trace"
    words = ["psql", "-XqAt", "-h", str(socket), "-U", "postgres"]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as client:

        def asks(query: str) -> str:
            assert client.stdin is not None and client.stdout is not None
            client.stdin.write(f"{query};\n")
            client.stdin.flush()
            return client.stdout.readline().strip()

        pid = asks("select pg_backend_pid()")
        of = ("--pid", pid)
        probes = ("p:asked pg_parse_query query=+0($arg1):string", "p:got libc.so.6:malloc")
        said = ftpatch("probe", *of, *probes, "--keep", "-o", trace)
        assert said.code == 0, said.err
        for number in range(QUERIES):
            assert asks(f"select {number} * 7") == str(number * 7)
        assert asks("select sum(n) from generate_series(1, 1000) n") == "500500"
        taken_out(int(pid))
        assert asks("select 6 * 7") == "42"
        assert ftpatch("check", *of).code == 0
        client.communicate()
    assert client.returncode == 0
    lines = ftpatch("report", trace).out.splitlines()
    asked = [line.partition("query=")[2] for line in lines if ": asked: " in line]
    wanted = [f'"select {number} * 7;"' for number in range(QUERIES)]
    assert asked[:-1] == wanted and asked[-1].startswith('"select sum(n)')
    assert any(": got: " in line for line in lines)
