# SPDX-License-Identifier: MIT
"""What a traced call costs: this, uftrace and XRay, alternately on the same programs.

And what reading it costs, against uftrace's reader.

usage: python bench/tracing.py

fib.c makes nothing but calls; queries.c has SQLite work (the amalgamation, as better-sqlite3 on npm
carries it). Needs gcc, clang with its runtime libraries, uftrace and npm; what is missing is said.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

__all__ = ["tracing"]

HERE = Path(__file__).resolve().parent
ROUNDS = 5
PAD = "-fpatchable-function-entry=5"
XRAY = ("-fxray-instrument", "-fxray-instruction-threshold=1")
AIM = 0.3
SIZE = 1 << 30
READINGS = 20_000_000


@dataclass(frozen=True)
class Way:
    """One way to run a program: its words, and what it leaves in its folder, a glob."""

    name: str
    words: tuple[str, ...]
    leaves: str = ""
    environment: Mapping[str, str] | None = None


def fib_calls(n: int) -> int:
    """Calls of fib() that fib(n) makes."""
    first, second = 1, 1
    for _ in range(n - 1):
        first, second = second, first + second + 1
    return second


run = partial(subprocess.run, check=True, stdout=subprocess.DEVNULL)


def measure(ways: list[Way], folder: Path) -> dict[str, tuple[float, int]]:
    """Median seconds of each way, measured alternately, and the bytes that it left."""
    seconds: dict[str, list[float]] = {way.name: [] for way in ways}
    left: dict[str, int] = {}
    for _ in range(ROUNDS):
        for way in ways:
            before = set(folder.iterdir())
            environment = {**os.environ, **(way.environment or {})}
            begun = time.perf_counter()
            run(way.words, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
            seconds[way.name].append(time.perf_counter() - begun)
            left[way.name] = sum(_bytes(path) for path in folder.glob(way.leaves or "-"))
            for path in set(folder.iterdir()) - before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return {name: (statistics.median(times), left[name]) for name, times in seconds.items()}


def _bytes(path: Path) -> int:
    """What a trace takes: of ftpatch's the part that is used, of uftrace's folder the threads'."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.glob("*.dat"))
    head = path.read_bytes()[:48] if path.stat().st_size > 48 else b""
    if head.startswith(b"FTPTRACE"):
        return int.from_bytes(head[40:48], "little")
    return path.stat().st_size


def build(sources: list[str], folder: Path, name: str) -> dict[str, Path]:
    """A program as each tracer wants it."""
    made = {}
    for kind, compiler, flags in (
        ("plain", "gcc", ()),
        ("pad", "gcc", (PAD,)),
        ("pg", "gcc", ("-pg",)),
        ("xray", "clang", XRAY),
    ):
        if shutil.which(compiler) is None:
            print(f"no {compiler}: no {kind}")
            continue
        made[kind] = folder / f"{name}-{kind}"
        words = [compiler, "-O1", *flags, *sources, "-o", str(made[kind]), "-lm", "-lpthread"]
        run(words)
    for verb, tracer in (
        (("enable", "--tracer", "function_graph"), "function_graph"),
        (("enable", "--tracer", "function"), "function"),
        (("disable", "--nop", "p6"), "none"),
    ):
        path = made[tracer] = folder / f"{name}-{tracer}"
        run([sys.executable, "-m", "ftpatch", *verb, str(made["pad"]), "-q", "-o", str(path)])
    return made


def ways_of(made: dict[str, Path], argument: str) -> list[Way]:
    """All ways to run it that this machine has."""
    ours = {"FTPATCH_TRACE": "ours.trace", "FTPATCH_TRACE_SIZE": str(SIZE)}
    out = [Way(kind, (str(made[kind]), argument)) for kind in ("plain", "pad", "pg")]
    for kind in ("function_graph", "function"):
        out.append(Way(kind, (str(made[kind]), argument), "ours.trace", ours))
    out.append(Way("none", (str(made["none"]), argument)))
    if shutil.which("uftrace"):
        record = ("uftrace", "record", "--no-libcall", "-d", "theirs")
        out.append(Way("uftrace -pg", (*record, str(made["pg"]), argument), "theirs"))
        out.append(Way("uftrace -P .", (*record, "-P", ".", str(made["pad"]), argument), "theirs"))
    else:
        print("no uftrace")
    if "xray" in made:
        out.append(Way("xray", (str(made["xray"]), argument)))
        for mode in ("fdr", "basic"):
            options = f"patch_premain=true xray_mode=xray-{mode} verbosity=0"
            more = {"XRAY_OPTIONS": options, "XRAY_FDR_OPTIONS": "func_duration_threshold_us=0"}
            words = (str(made["xray"]), argument)
            out.append(Way(f"xray-{mode}", words, "xray-log.*", more))
    return out


def table(what: str, found: dict[str, tuple[float, int]], calls: int) -> None:
    """Cost of a call by each tracer, and ours against the others'."""
    base = {"uftrace -pg": "plain", "xray-fdr": "xray", "xray-basic": "xray"}
    cost = {
        name: (seconds - found[base.get(name, "pad")][0]) / calls * 1e9
        for name, (seconds, _) in found.items()
    }
    print(f"{what}: {calls} calls; plain {found['plain'][0]:.3f} s")
    for name in (
        "function_graph",
        "function",
        "uftrace -pg",
        "uftrace -P .",
        "xray-fdr",
        "xray-basic",
    ):
        if name in cost:
            size = found[name][1] / calls
            left = f"{size:6.1f} bytes a call" if size else "   its file only if the program asks"
            print(f"  {name:<16} {cost[name]:7.1f} ns a call {left}")
    ratio = found["none"][0] / found["pad"][0]
    print(f"  no site enabled: x{ratio:.3f} of the unpatched program")
    for name in ("uftrace -pg", "uftrace -P .", "xray-fdr", "xray-basic"):
        if name in cost:
            ratio = cost["function_graph"] / cost[name]
            print(f"  function_graph : {name:<14} x{ratio:4.2f}  (aim {AIM} of uftrace)")


def clock(folder: Path) -> None:
    """What two readings of the clock take, which a call and its return cannot do without."""
    path = folder / "clock"
    run(["gcc", "-O2", str(HERE / "clock.c"), "-o", str(path)])
    place = folder / "clocked"
    place.mkdir()
    some, none = Way("some", (str(path), str(READINGS))), Way("none", (str(path), "0"))
    found = measure([some, none], place)
    cost = 2 * (found["some"][0] - found["none"][0]) / READINGS * 1e9
    print(f"two readings of the clock alone: {cost:.1f} ns")


def sqlite_sources(folder: Path) -> list[str] | None:
    """queries.c and the amalgamation; None where it cannot be had."""
    if shutil.which("npm") is None:
        print("no npm: no SQLite")
        return None
    done = subprocess.run(
        ["npm", "pack", "--silent", "better-sqlite3@12.11.1"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    archives = list(folder.glob("better-sqlite3-*.tgz"))
    if done.returncode or not archives:
        print("better-sqlite3 cannot be fetched: no SQLite")
        return None
    with tarfile.open(archives[0]) as archive:
        for name in ("sqlite3.c", "sqlite3.h"):
            member = archive.extractfile(f"package/deps/sqlite3/{name}")
            if member is None:
                return None
            (folder / name).write_bytes(member.read())
    return [str(HERE / "queries.c"), str(folder / "sqlite3.c"), f"-I{folder}"]


def counted(program: Path, argument: str, folder: Path) -> int:
    """Calls that a traced run makes, by the profile tracer."""
    path = folder / "counted"
    words = [sys.executable, "-m", "ftpatch", "enable", str(program), "--tracer"]
    run([*words, "function_profile", "-q", "-o", str(path)])
    environment = {**os.environ, "FTPATCH_TRACE": str(folder / "counts")}
    run([str(path), argument], env=environment)
    data = (folder / "counts").read_bytes()
    size = int.from_bytes(data[20:24], "little")
    total, at = 0, 4096
    while data[at : at + 4] == b"CHNK":
        table = memoryview(data)[at + 32 : at + size].cast("Q")
        total += sum(table[1::4].tolist())
        at += size
    return total


def peak(words: tuple[str, ...]) -> int:
    """Bytes of memory that a command holds at most; what getrusage() says has this process's own
    in it, which the child shared before it was another program."""
    most = 0
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as started:
        while started.poll() is None:
            status = Path(f"/proc/{started.pid}/status").read_text()
            held = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
            most = int(held[1]) * 1024 if held else most
            time.sleep(0.02)
    return most


def reading(made: dict[str, Path], folder: Path) -> None:
    """A profile from 11 million calls: ftpatch report against uftrace report."""
    if not shutil.which("uftrace"):
        return
    ours, theirs = folder / "ours.trace", folder / "theirs"
    environment = {**os.environ, "FTPATCH_TRACE": str(ours), "FTPATCH_TRACE_SIZE": str(SIZE)}
    run([str(made["function_graph"]), "33"], env=environment)
    record = ("uftrace", "record", "--no-libcall", "-d", str(theirs), str(made["pg"]), "33")
    run(record)
    report = (sys.executable, "-m", "ftpatch", "report", str(ours), "--format", "profile")
    place = folder / "nothing"
    place.mkdir()
    found = measure(
        [Way("ours", report), Way("theirs", ("uftrace", "report", "-d", str(theirs)))], place
    )
    (mine, _), (other, _) = found["ours"], found["theirs"]
    ratio, held = mine / other, peak(report)
    print(f"a profile of {fib_calls(33)} calls")
    print(f"  ftpatch report {mine:.2f} s, uftrace report {other:.2f} s: x{ratio:.2f} (aim 0.5)")
    print(f"  ftpatch report: {held / 1e6:.0f} MB at its peak (aim 100)")


def tracing() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = folder / "run"
        place.mkdir()
        clock(folder)
        made = build([str(HERE / "fib.c")], folder, "fib")
        table("fib(32)", measure(ways_of(made, "32"), place), fib_calls(32))
        reading(made, folder)
        sources = sqlite_sources(folder)
        if sources:
            made = build(sources, folder, "sqlite")
            calls = counted(made["pad"], "40000", folder)
            table("SQLite, 40,000 rows", measure(ways_of(made, "40000"), place), calls)


if __name__ == "__main__":
    tracing()
