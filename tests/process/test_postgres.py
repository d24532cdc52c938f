# SPDX-License-Identifier: MIT
"""A database server as Debian has it, probed while it answers: its queries are counted and read,
and answered as without."""

from __future__ import annotations

from pathlib import Path

from tests.support.busy import taken_out
from tests.support.command import ftpatch
from tests.support.postgres import NEEDED, client, postgres

pytestmark = NEEDED
QUERIES = 200


def test_queries_are_counted_and_read(tmp_path: Path) -> None:
    trace = tmp_path / "t.trace"
    with postgres() as socket, client(socket) as asked_by:
        asks, of = asked_by.asks, ("--pid", asked_by.pid)
        probes = ("p:asked pg_parse_query query=+0($arg1):string", "p:got libc.so.6:malloc")
        said = ftpatch("probe", *of, *probes, "--keep", "-o", trace)
        assert said.code == 0, said.err
        for number in range(QUERIES):
            assert asks(f"select {number} * 7") == str(number * 7)
        assert asks("select sum(n) from generate_series(1, 1000) n") == "500500"
        taken_out(int(asked_by.pid))
        assert asks("select 6 * 7") == "42"
        assert ftpatch("check", *of).code == 0
    lines = ftpatch("report", trace).out.splitlines()
    asked = [line.partition("query=")[2] for line in lines if ": asked: " in line]
    wanted = [f'"select {number} * 7;"' for number in range(QUERIES)]
    assert asked[:-1] == wanted and asked[-1].startswith('"select sum(n)')
    assert any(": got: " in line for line in lines)
