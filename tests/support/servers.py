# SPDX-License-Identifier: MIT
"""Servers that nobody here wrote, built with pads from Debian's sources, and put under load.

Redis counts the commands that it runs, and nginx's client the requests that were answered: those
are the oracles of what a tracer counts.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.sources import source

__all__ = ["Nginx", "Redis", "build_nginx", "build_redis", "nginx", "redis"]

PAD = "-fpatchable-function-entry=5"
LIMIT = 1800
"""Seconds for a build."""
TITLE = b"nginx: worker process"
SOON = 20.0
"""Seconds in which a server starts, or takes another configuration."""


def build_redis(folder: Path) -> Path:
    """Build redis-server and redis-benchmark; the folder of both. Raises FetchError."""
    place = source("redis", folder / "redis") / "src"
    words = ["make", "-j2", "redis-server", "redis-benchmark", "MALLOC=libc", "OPTIMIZATION=-O2"]
    _built([*words, f"CFLAGS={PAD}", f"REDIS_CFLAGS={PAD}"], place)
    return place


def build_nginx(folder: Path) -> Path:
    """Build nginx, with threads. Raises FetchError."""
    place = source("nginx", folder / "nginx")
    without = ("--without-http_rewrite_module", "--without-http_gzip_module")
    _built(["./configure", f"--with-cc-opt=-O2 {PAD}", "--with-threads", *without], place)
    _built(["make", "-j2"], place)
    return place / "objs" / "nginx"


def _built(words: list[str], place: Path) -> None:
    done = subprocess.run(words, cwd=place, capture_output=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


class Redis:
    """A server of its own, on a socket in ``folder``."""

    def __init__(self, place: Path, folder: Path) -> None:
        self.socket = folder / "redis.socket"
        self._benchmark = place / "redis-benchmark"
        log = ("--logfile", str(folder / "redis.log"), "--dir", str(folder))
        words = ("--port", "0", "--unixsocket", str(self.socket), "--save", "", *log)
        self.process = subprocess.Popen([place / "redis-server", *words])
        self.pid = str(self.process.pid)
        self._client = socket.socket(socket.AF_UNIX)

    def begin(self) -> None:
        """Wait until it answers: the socket's file is there before anyone listens."""
        _until(lambda: self._client.connect_ex(str(self.socket)) == 0)
        self._reader = self._client.makefile("rb")

    def close(self) -> None:
        """End it; fails if it has ended by itself."""
        self._reader.close()
        self._client.close()
        assert self.process.poll() is None, "the server has ended"
        self.process.terminate()
        assert self.process.wait(SOON) == 0

    def ask(self, *words: str) -> str:
        """Run a command and return its answer; of a list, the elements in lines."""
        held = [b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words]
        self._client.sendall(b"*%d\r\n%s" % (len(held), b"".join(held)))
        return self._answer()

    def _answer(self) -> str:
        line = self._reader.readline().decode().rstrip()
        kind, rest = line[0], line[1:]
        assert kind != "-", line
        if kind == "*":
            return "\n".join(self._answer() for _ in range(int(rest)))
        if kind == "$" and int(rest) >= 0:
            return self._reader.read(int(rest) + 2)[:-2].decode()
        return rest

    @property
    def calls(self) -> int:
        """Commands that it has run, but for the one that asks."""
        return sum(map(int, re.findall(r"calls=(\d+)", self.ask("INFO", "commandstats"))))

    @contextmanager
    def load(self, clients: int = 20) -> Iterator[None]:
        """Commands of many clients, until the end; fails if any was not answered."""
        commands = "get,set,incr,lpush,lpop,sadd,hset,zadd,mset"
        words = ("-s", str(self.socket), "-c", str(clients), "-n", "100000000", "-t", commands)
        with _running(self._benchmark, *words, "-q") as benchmark:
            first = self.calls
            _until(lambda: self.calls > first + 1000)
            yield
            assert benchmark.poll() is None, benchmark.communicate()[0][-500:]


class Nginx:
    """A server of its own with two workers, which answers with a file of ``size`` bytes."""

    def __init__(self, program: Path, folder: Path, size: int = 2000) -> None:
        (folder / "file").write_bytes(b"x" * size)
        (folder / "logs").mkdir(exist_ok=True)
        self.port = _free_port()
        self._pid = folder / "nginx.pid"
        text = f"""
            daemon off; worker_processes 2; pid {self._pid};
            user root; error_log {folder}/error.log;
            events {{ worker_connections 256; }}
            http {{
                access_log off; keepalive_requests 1000000;
                client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
                fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
                scgi_temp_path {folder}/scgi;
                server {{ listen 127.0.0.1:{self.port}; root {folder}; }}
            }}"""
        (folder / "nginx.conf").write_text(text)
        words = ("-p", str(folder), "-c", str(folder / "nginx.conf"))
        self.process = subprocess.Popen([program, *words], stderr=subprocess.DEVNULL)
        self.pid = str(self.process.pid)

    def begin(self) -> None:
        """Wait until it answers."""
        _until(lambda: self._has_two() and self._answers())

    def close(self) -> None:
        """End it; fails if it has ended by itself."""
        assert self.process.poll() is None, "the server has ended"
        self.process.terminate()
        assert self.process.wait(SOON) == 0

    @property
    def workers(self) -> list[str]:
        """The processes that answer."""
        held = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return held.split()

    def reload(self) -> None:
        """Replace its workers by new ones."""
        old = set(self.workers)
        self.process.send_signal(1)
        _until(lambda: self._has_two() and not old & set(self.workers))

    def _has_two(self) -> bool:
        """Test whether it has two workers, with their titles: before, they load libraries (NSS)."""
        workers = self.workers
        with suppress(FileNotFoundError):
            titles = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in workers]
            return len(workers) == 2 and all(one.startswith(TITLE) for one in titles)
        return False

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def ask(self, requests: int) -> None:
        """Make requests; fails if any was not answered."""
        with self._client(requests) as client:
            out = client.communicate(timeout=LIMIT)[0]
        assert client.returncode == 0, out
        assert f"Complete requests:      {requests}\n" in out, out
        assert "Failed requests:        0\n" in out and "Non-2xx" not in out, out

    @contextmanager
    def load(self) -> Iterator[None]:
        """Requests until the end; fails if any was not answered."""
        with self._client(100_000_000) as client:
            yield
            assert client.poll() is None, client.communicate()[0]
            client.send_signal(2)  # it tells what it has seen
            out = client.communicate(timeout=SOON)[0]
        assert "Failed requests:        0\n" in out and "Non-2xx" not in out, out

    @contextmanager
    def _client(self, requests: int) -> Iterator[subprocess.Popen[str]]:
        words = ("-k", "-c", "8", "-n", str(requests), f"http://127.0.0.1:{self.port}/file")
        with _running("ab", "-q", *words) as client:
            yield client


@contextmanager
def redis(place: Path) -> Iterator[Redis]:
    """Run one for a while."""
    # Names of sockets are short.
    with tempfile.TemporaryDirectory(prefix="redis.") as folder:
        server = Redis(place, Path(folder))
        with _ended(server.process):
            server.begin()
            yield server
            server.close()


@contextmanager
def nginx(program: Path) -> Iterator[Nginx]:
    """Run one for a while."""
    with tempfile.TemporaryDirectory(prefix="nginx.") as folder:
        server = Nginx(program, Path(folder))
        with _ended(server.process):
            server.begin()
            yield server
            server.close()


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A process that has ended afterwards, also where something fails."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(SOON)


@contextmanager
def _running(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A program until the end of the block."""
    pipe = subprocess.PIPE
    if shutil.which(words[0]) is None:
        raise FileNotFoundError(words[0])
    with subprocess.Popen(words, stdout=pipe, stderr=subprocess.STDOUT, text=True) as program:
        try:
            yield program
        finally:
            with suppress(ProcessLookupError):
                os.kill(program.pid, 9)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not holds():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)
