# SPDX-License-Identifier: MIT
"""What it costs a running program to be traced: the pause, each call, and a server's requests.

Beside gdb, uprobes and Frida. live.c has 10,000 sites; redis is built with pads from Debian's
sources. What is missing is said.

usage: python bench/live.py
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from frida_place import frida_place

__all__ = ["live"]

HERE = Path(__file__).resolve().parent
PAD = "-fpatchable-function-entry=5"
THREADS = (1, 4, 16, 64, 200)
ROUNDS, FEW = 50, 5
CALLS, TRIES = 300_000, 3
REQUESTS = 150_000
WATCHED = 2500
"""Milliseconds in which a tool comes and goes."""
ONE = "f1000"
"""The function that is called for the cost of a call."""


class Program:
    """A running live.c."""

    def __init__(self, path: Path, threads: int) -> None:
        pipe = subprocess.PIPE
        words = (str(path), str(threads))
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
        self.pid = str(self.process.pid)
        self._line()
        self.ask("c", 1000)

    def ask(self, what: str, number: int) -> int:
        """Let it do something, and return what it says."""
        self.tell(what, number)
        return int(self._line())

    def tell(self, what: str, number: int) -> None:
        """Let it do something; ``answer`` is what it says."""
        assert self.process.stdin
        self.process.stdin.write(f"{what} {number}\n")
        self.process.stdin.flush()

    def answer(self) -> int:
        """What it says to what it was told."""
        return int(self._line())

    def _line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the program has ended with {self.process.wait()}")
        return line


@contextmanager
def running(path: Path, threads: int = 1) -> Iterator[Program]:
    """A live.c for a while."""
    program = Program(path, threads)
    try:
        yield program
    finally:
        program.process.kill()
        program.process.communicate()


def ours(*words: str) -> dict[str, int]:
    """Run a verb, and return what it tells."""
    command = [sys.executable, "-m", "ftpatch", *words, "--json"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    told: dict[str, int] = json.loads(out.splitlines()[0])
    return told


def enable(pid: str, folder: Path, *words: str) -> int:
    """Attach, and return the pause in nanoseconds."""
    trace = ("-o", str(folder / "trace"), "--force")
    return ours("enable", "--pid", pid, *trace, *words)["pause_ns"]


def undo(pid: str) -> int:
    """Take it out, and return the longest pause in nanoseconds."""
    return ours("undo", "--pid", pid)["pause_ns"]


def pauses(path: Path, folder: Path) -> None:
    """The pauses by number of threads."""
    print(f"10,000 sites, median of {ROUNDS}: pause in ms, from first stopped to last continued")
    for threads in THREADS:
        with running(path, threads) as program:
            found = [(enable(program.pid, folder), undo(program.pid)) for _ in range(ROUNDS)]
        into, out = (statistics.median(times) / 1e6 for times in zip(*found, strict=True))
        aim = 3 + 0.1 * max(0, threads - 16)
        print(f"  {threads:>3} threads {into:6.2f}  taken out {out:6.2f}  aim {aim:4.1f}", end="")
        print(f"  x{into / aim:.2f}")


def gdb(pid: str) -> None:
    """Attach and detach."""
    words = ("gdb", "-nx", "-q", "-p", pid, "-batch", "-ex", "detach")
    subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL)


@contextmanager
def uprobes(path: Path, folder: Path, pid: str) -> Iterator[None]:
    """An event at a function's entry and one at its return, recorded."""
    names = (f"{ONE}+5", f"{ONE}%return")
    for number, name in enumerate(names):
        add = ("perf", "probe", "-q", "-x", str(path), f"live_bench:p{number}={name}")
        subprocess.run(add, check=True, capture_output=True)
    try:
        out = ("-o", str(folder / "perf.data"), "-m", "4096")
        words = ("perf", "record", "-q", *out, "-e", "live_bench:*", "-p", pid)
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as perf:
            time.sleep(0.5)
            yield
            perf.send_signal(2)
    finally:
        delete = ("perf", "probe", "-q", "--del", "live_bench:*")
        subprocess.run(delete, check=True, capture_output=True)


SCRIPT = r"""
import sys, frida
one = len(sys.argv) > 2
session = frida.attach(int(sys.argv[1]))
script = session.create_script('''
let n = 0;
const module = Process.enumerateModules()[0];
for (const found of module.enumerateSymbols())
    if (found.type === 'function' && (ONE ? found.name === 'f1000' : /^f[0-9]+$/.test(found.name)))
        Interceptor.attach(found.address, {onEnter() { n++; }, onLeave() {}});
Interceptor.flush();
'''.replace("ONE", "true" if one else "false"))
script.load()
print("ready", flush=True)
sys.stdin.readline()
session.detach()
"""


@contextmanager
def frida(place: Path, pid: str, *words: str) -> Iterator[None]:
    """Frida's interceptor at all functions, or at one."""
    command = (sys.executable, "-c", SCRIPT, pid, *words)
    pipe, env = subprocess.PIPE, {**os.environ, "PYTHONPATH": str(place)}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise subprocess.CalledProcessError(1, "frida")
        yield
        process.communicate("\n")


def gaps(path: Path, folder: Path, place: Path | None) -> None:
    """How long a thread that wants to run does not, with each tool."""

    def attached(pid: str) -> None:
        enable(pid, folder)
        undo(pid)

    def hooked(pid: str) -> None:
        assert place is not None
        with frida(place, pid):
            pass

    def probed(pid: str) -> None:
        with uprobes(path, folder, pid):
            pass

    ways: dict[str, Callable[[str], None]] = {"nothing": lambda _: None, "ftpatch": attached}
    ways |= {"gdb, attach and detach": gdb} if shutil.which("gdb") else {}
    ways |= {"perf, uprobes at 1": probed} if _has_uprobes(path, folder) else {}
    ways |= {"Frida": hooked} if place else {}
    found: dict[str, list[int]] = {name: [] for name in ways}
    for _ in range(FEW):
        for name, way in ways.items():
            with running(path) as program:
                program.tell("w", WATCHED * (4 if name == "Frida" else 1))
                try:
                    way(program.pid)
                    found[name].append(program.answer())
                except RuntimeError as error:
                    print(f"{name}: {error}")
    print("a thread that wants to run: its longest pause in ms, attached and left again")
    base = statistics.median(found["ftpatch"])
    for name, times in found.items():
        middle = statistics.median(times)
        print(f"  {name:<24} {middle / 1e6:8.2f}  ftpatch x{base / middle:.2f}")


def _has_uprobes(path: Path, folder: Path) -> bool:
    if shutil.which("perf") is None:
        print("no perf: no uprobes")
        return False
    try:
        with running(path) as program, uprobes(path, folder, program.pid):
            return True
    except subprocess.CalledProcessError as error:
        print(f"no uprobes: {error}")
        return False


def calls(path: Path, folder: Path, place: Path | None) -> None:
    """What a call costs."""
    nanoseconds: dict[str, list[float]] = {}

    def measured(name: str, program: Program, count: int = CALLS) -> None:
        best = min(program.ask("c", count) for _ in range(TRIES))
        nanoseconds.setdefault(name, []).append(best / count)

    tracers = ("function", "function_graph")
    size = str(256 << 20)
    files = {tracer: folder / f"live-{tracer}" for tracer in tracers}
    for tracer, file in files.items():
        words = ("--tracer", tracer, "--force", "-q", "-o", str(file))
        command = (sys.executable, "-m", "ftpatch", "enable", str(path), *words)
        subprocess.run(command, check=True)
    uprobed = _has_uprobes(path, folder)
    os.environ |= {"FTPATCH_TRACE": str(folder / "file.trace"), "FTPATCH_TRACE_SIZE": size}
    for _ in range(FEW):
        with running(path) as program:
            measured("before", program)
            for tracer in tracers:
                enable(program.pid, folder, "--tracer", tracer)
                measured(f"{tracer}, attached", program)
                undo(program.pid)
            measured("after", program)
            if uprobed:
                with uprobes(path, folder, program.pid):
                    measured("uprobe and uretprobe", program, CALLS // 10)
        for tracer, file in files.items():
            with running(file) as program:
                measured(f"{tracer}, patched file", program)
        if place:
            with running(path) as program, frida(place, program.pid, "one"):
                measured("Frida", program, CALLS // 10)
    found = {name: statistics.median(times) for name, times in nanoseconds.items()}
    print("a call, ns")
    for name, cost in found.items():
        print(f"  {name:<28} {cost - found['before']:8.1f}")
    for tracer in tracers:
        there, patched = found[f"{tracer}, attached"], found[f"{tracer}, patched file"]
        ratio = (there - found["before"]) / (patched - found["before"])
        print(f"  {tracer} attached : patched file  x{ratio:.2f}  (aim 1)")
    print(f"  after : before  x{found['after'] / found['before']:.3f}  (aim 1)")


def requests(folder: Path) -> None:
    """A server's requests a second before, while it is traced, and after."""
    sys.path.insert(0, str(HERE.parent))
    from tests.support.servers import Redis, build_redis, redis
    from tests.support.sources import FetchError

    try:
        place = build_redis(folder)
    except FetchError as error:
        print(f"no redis: {error}")
        return
    rates: dict[str, list[float]] = {}

    def measured(server: Redis, name: str) -> None:
        words = ("-s", str(server.socket), "-n", str(REQUESTS), "-t", "get", "--csv")
        command = (str(place / "redis-benchmark"), *words)
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rates.setdefault(name, []).append(float(out.splitlines()[-1].split('"')[3]))

    for _ in range(FEW):
        with redis(place) as server:  # a new one each time: "before" has never been traced
            measured(server, "warm-up")
            measured(server, "before")
            measured(server, "before again")
            for name, filters in (("1 function", ("-f", "call")), ("all", ())):
                enable(server.pid, folder, "--tracer", "function_graph", *filters)
                measured(server, name)
                undo(server.pid)
            measured(server, "after")
    del rates["warm-up"]
    print("redis, GET, requests a second; of before in the same server: median, least and most")
    for name, values in rates.items():
        ratios = [one / before for one, before in zip(values, rates["before"], strict=True)]
        middle, rate = statistics.median(ratios), statistics.median(values)
        print(f"  {name:<12} {rate:9.0f}  x{middle:.2f}  {min(ratios):.2f} to {max(ratios):.2f}")


def live() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "live"
        words = ("gcc", "-O1", PAD, str(HERE / "live.c"), "-o", str(path), "-lpthread")
        subprocess.run(words, check=True)
        place = frida_place(folder)
        pauses(path, folder)
        gaps(path, folder, place)
        calls(path, folder, place)
        requests(folder)


if __name__ == "__main__":
    live()
