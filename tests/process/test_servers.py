# SPDX-License-Identifier: MIT
"""Servers that nobody here wrote, traced and left again while they work.

Built with pads from Debian's sources. Skipped where those cannot be had.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.sampling import scaled
from tests.support.servers import Redis, build_nginx, build_redis, nginx, redis
from tests.support.sources import FetchError
from tests.support.trace_events import calls_in, read_trace
from tests.support.uprobes import counting, uprobe

pytestmark = pytest.mark.skipif(
    "FTPATCH_SOURCES" not in os.environ, reason="fetches and builds: `make test-programs`"
)
TRACERS = ("function", "function_graph", "function_profile")
EACH = "call"
"""What redis calls once for each command."""
ANSWERED = "ngx_http_log_request"
"""What nginx calls once for each request."""


@pytest.fixture(scope="module")
def redis_built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build_redis(tmp_path_factory.mktemp("redis"))
    except FetchError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def nginx_built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("ab") is None:
        pytest.skip("ab is not there")
    try:
        return build_nginx(tmp_path_factory.mktemp("nginx"))
    except FetchError as error:
        pytest.skip(str(error))


def _calls(traces: Sequence[Path]) -> int:
    """Calls in all trace files. What a child recorded is in a file of its own."""
    return sum(calls_in(read_trace(path)).total() for path in traces)


@contextmanager
def _left_as_it_was(pids: Sequence[str]) -> Iterator[None]:
    """Processes have afterwards the code and the executable mappings that they had before."""
    before = [_executable(pid) for pid in pids]
    yield
    assert [_executable(pid) for pid in pids] == before
    for pid in pids:
        said = ftpatch("check", "--pid", pid)
        assert said.code == 0, said.out


def _executable(pid: str) -> list[str]:
    held = Path(f"/proc/{pid}/maps").read_text().splitlines()
    # The kernel leaves [uprobes] where one was.
    return [line for line in held if "x" in line.split()[1] and "[uprobes]" not in line]


def _enable(pid: str, trace: Path, tracer: str, *filters: str) -> None:
    words = [word for glob in filters for word in ("-f", glob)]
    said = ftpatch("enable", "--pid", pid, "--tracer", tracer, "-o", trace, "--force", *words)
    assert said.code == 0, said.err


def _undo(pid: str) -> None:
    said = ftpatch("undo", "--pid", pid)
    assert (said.code, said.err) == (0, "")


def _commands(server: Redis) -> None:
    """Commands of all sorts: plain, in a transaction, of a script, and one that is waited for."""
    for number in range(200):
        server.ask("SET", f"k{number}", "v")
    server.ask("MULTI")
    for number in range(50):
        server.ask("INCR", f"n{number % 5}")
    assert server.ask("EXEC").split("\n")[-1] == "10"
    script = "for i = 1, 30 do redis.call('LPUSH', 'list', i) end return redis.call('LLEN', 'list')"
    assert server.ask("EVAL", script, "0") == "30"
    assert server.ask("BLPOP", "nothing", "0.05") == ""
    server.ask("FLUSHALL")


@pytest.mark.parametrize("tracer", TRACERS)
def test_redis_counts_the_same(redis_built: Path, tmp_path: Path, tracer: str) -> None:
    trace = tmp_path / "t.trace"
    with redis(redis_built) as server, _left_as_it_was([server.pid]):
        before = server.calls
        _enable(server.pid, trace, tracer, EACH)
        _commands(server)
        # It tells of the INFO that was asked before; the trace has the one that asks instead.
        expected = server.calls - before
        _undo(server.pid)
        _commands(server)
    assert _calls([trace]) == expected > 280


def test_redis_counts_the_same_as_uprobes(redis_built: Path, tmp_path: Path) -> None:
    trace, program = tmp_path / "t.trace", str(redis_built / "redis-server")
    behind_pad = f"{EACH}+9"
    with (
        redis(redis_built) as server,
        _left_as_it_was([server.pid]),
        uprobe(program, behind_pad) as event,
    ):
        _enable(server.pid, trace, "function", EACH)
        with counting(event, server.pid) as perf:
            before = server.calls
            _commands(server)
            counted = server.calls - before
            told = perf.ends()
        _undo(server.pid)
    assert told == _calls([trace]) == counted + 1


@pytest.mark.scaled
@pytest.mark.parametrize("filters", ["everything", "one"])
@pytest.mark.parametrize("tracer", [*TRACERS, "nop"])
def test_redis_under_load(redis_built: Path, tmp_path: Path, tracer: str, filters: str) -> None:
    trace = tmp_path / "t.trace"
    with redis(redis_built) as server, _left_as_it_was([server.pid]), server.load():
        for _ in range(scaled(10, 2)):
            lowest = server.calls
            _enable(server.pid, trace, tracer, *([EACH] if filters == "one" else []))
            inside = server.calls
            server.ask("SET", "key", "value")
            inside = server.calls - inside
            _undo(server.pid)
            outside = server.calls - lowest
            if tracer != "nop" and filters == "one":
                assert 0 < inside <= _calls([trace]) <= outside


def test_redis_saves_in_a_child(redis_built: Path, tmp_path: Path) -> None:
    trace = tmp_path / "t.trace"
    with redis(redis_built) as server, _left_as_it_was([server.pid]), server.load():
        _enable(server.pid, trace, "function_graph", "rdb*", "call")
        server.ask("BGSAVE")
        while "rdb_bgsave_in_progress:1" in server.ask("INFO", "persistence"):
            pass
        _undo(server.pid)
        said = server.ask("INFO", "persistence")
        assert "rdb_last_bgsave_status:ok" in said
    (of_child,) = tmp_path.glob("t.trace.*")
    assert read_trace(of_child).events


@pytest.mark.parametrize("tracer", TRACERS)
def test_nginx_counts_the_same(nginx_built: Path, tmp_path: Path, tracer: str) -> None:
    with nginx(nginx_built) as server, _left_as_it_was([server.pid, *server.workers]):
        traces = {pid: tmp_path / f"{pid}.trace" for pid in server.workers}
        for pid, trace in traces.items():
            _enable(pid, trace, tracer, ANSWERED)
        server.ask(3000)
        for pid in traces:
            _undo(pid)
        server.ask(1000)
    assert _calls(list(traces.values())) == 3000


@pytest.mark.scaled
@pytest.mark.parametrize("tracer", [*TRACERS, "nop"])
def test_nginx_under_load(nginx_built: Path, tmp_path: Path, tracer: str) -> None:
    with nginx(nginx_built) as server, _left_as_it_was([server.pid, *server.workers]):
        with server.load():
            for _ in range(scaled(10, 2)):
                for pid in server.workers:
                    _enable(pid, tmp_path / f"{pid}.trace", tracer)
                for pid in server.workers:
                    _undo(pid)
        server.ask(100)


def test_nginx_workers_inherit_it(nginx_built: Path, tmp_path: Path) -> None:
    trace = tmp_path / "t.trace"
    with nginx(nginx_built) as server, _left_as_it_was([server.pid]):
        _enable(server.pid, trace, "function", ANSWERED)
        server.reload()
        workers = server.workers
        server.ask(2000)
        said = ftpatch("undo", "--pid", server.pid)
        assert (said.code, said.err) == (0, "")
        for pid in workers:
            assert f"{pid} (nginx)" in said.out
            assert ftpatch("check", "--pid", pid).code == 0
        server.ask(500)
        assert server.workers == workers
    assert _calls([trace, *tmp_path.glob("t.trace.*")]) == 2000


def test_nginx_replaces_traced_workers(nginx_built: Path, tmp_path: Path) -> None:
    with nginx(nginx_built) as server, _left_as_it_was([server.pid]):
        traces = [tmp_path / f"{pid}.trace" for pid in server.workers]
        for pid, trace in zip(server.workers, traces, strict=True):
            _enable(pid, trace, "function_graph")
        server.ask(500)
        server.reload()
        server.ask(500)
    for trace in traces:  # nobody has undone them: who reads one gives it its name
        assert ftpatch("report", trace, "--format", "profile").code == 0
    assert _calls(traces) > 0
