# SPDX-License-Identifier: MIT
"""The cost of a probed call: by the pad, a jump, a punned jump, a trap; by gdb, bpftrace, Frida
and the kernel.

usage: python bench/probing.py

step.c does nothing but calls of one function, signal.c (x86-64) nothing but signals of its own:
the least that a trap can cost. gdb stops there and finishes the function, a few times. bpftrace
counts the calls, as Frida's interceptor does; the kernel's uprobes record them. What is missing
is said.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

from frida_place import frida_place

__all__ = ["probing"]

HERE = Path(__file__).resolve().parent
ROUNDS = 5
CALLS, HOOKED, TRAPS, STOPS = 10_000_000, 2_000_000, 500_000, 300
PAD = "-fpatchable-function-entry=5"
UNFOLLOWED = ["-DUNFOLLOWED"]
TRACING = Path("/sys/kernel/tracing")
MORE = {
    "one value": " n=$arg1:s64",
    "filtered out": " n=$arg1:s64 if n < 0",
    "passes": " n=$arg1:s64 if n >= 0",
    "counted": " hist",
    "by log2": " n=$arg1:s64 hist:keys=n.log2:vals=n",
    "string of 16": " text=$arg2:string",
    "string, heap": " text=$arg3:string",
}
"""Probes by a jump, and what comes on top."""
AIMS = {"pad": 60, "jump": 60, "pun": 60, "trap": 3000, "string": 150}
"""Nanoseconds, at most."""
NUMBERS = count()
"""Of probed programs."""
EVENT = "{kind}:bench/step {program}:{offset:#x}\n"


def seconds(words: list[str | Path], folder: Path) -> float:
    """How long a run takes; its trace goes away."""
    begun = time.perf_counter()
    subprocess.run(words, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    took = time.perf_counter() - begun
    for trace in folder.glob("*.trace"):
        trace.unlink()
    return took


def probed(program: Path, kind: str, *options: str, more: str = "") -> Path:
    """The program with one probe on its function, with ``more`` behind that."""
    out = program.with_name(f"{program.name}.{next(NUMBERS)}")
    probe = f"{kind}:step step{more}"
    words = [sys.executable, "-m", "ftpatch", "probe", str(program), probe, "-q"]
    subprocess.run([*words, "-o", str(out), "--size", "1G", *options], check=True)
    return out


def called(program: Path, calls: int) -> list[str | Path]:
    """The program, with that many calls."""
    return [program, str(calls)]


def finished(program: Path, stops: int) -> list[str | Path]:
    """gdb, which stops at the function and at its return."""
    loop = ["set $n = 0", f"while $n < {stops}", "continue", "finish", "set $n = $n + 1", "end"]
    lines = ["break step", f"run {stops + 5}", "finish", *loop, "kill"]
    words: list[str | Path] = ["gdb", "-nx", "-batch"]
    for line in ["set pagination off", *lines[:3]]:
        words += ["-ex", line]
    script = program.with_name("loop.gdb")
    script.write_text("\n".join(loop) + "\nkill\n")
    return [*words, "-x", script, program]


def per_call(
    ways: dict[str, tuple[Callable[[int], list[str | Path]], int]], folder: Path
) -> dict[str, float]:
    """Nanoseconds of a call by each way, above what the program takes for one call, alternately."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (words, calls) in ways.items():
            base = seconds(words(1), folder)
            found[name].append((seconds(words(calls), folder) - base) / calls * 1e9)
    return {name: statistics.median(times) for name, times in found.items()}


HOOKS = r"""
import sys, threading, frida
pid = frida.spawn(sys.argv[2:], stdio="inherit")
session = frida.attach(pid)
gone = threading.Event()
session.on("detached", lambda *_: gone.set())
script = session.create_script('''
let n = 0;
const module = Process.enumerateModules()[0];
const step = module.enumerateSymbols().find(found => found.name === 'step').address;
Interceptor.attach(step, {onEnter(args) { n++; } RETURN});
Interceptor.flush();
'''.replace("RETURN", ", onLeave(value) {}" if sys.argv[1] == "r" else ""))
script.load()
frida.resume(pid)
gone.wait()
"""


def hooked(place: Path, kind: str, program: Path, calls: int) -> list[str | Path]:
    """The program, with Frida's interceptor on its function."""
    path = f"import sys; sys.path.insert(0, {str(place)!r})\n"
    return [sys.executable, "-c", path + HOOKS, kind, program, str(calls)]


def bpftrace(kind: str, program: Path, calls: int) -> list[str | Path]:
    """The program, whose calls bpftrace counts."""
    what = {"p": "uprobe", "r": "uretprobe"}[kind]
    return [
        "bpftrace",
        "-e",
        f"{what}:{program}:step {{ @ = count(); }}",
        "-c",
        f"{program} {calls}",
    ]


def others(program: Path, folder: Path) -> dict[str, tuple[Callable[[int], list[str | Path]], int]]:
    """What others do about the same function, and how often in a run."""
    ways: dict[str, tuple[Callable[[int], list[str | Path]], int]] = {}
    ways["gdb finish"] = (partial(finished, program), STOPS)
    place = frida_place(folder)
    tracing = (
        not subprocess.run(bpftrace("p", program, 1), capture_output=True, check=False).returncode
        if shutil.which("bpftrace")
        else False
    )
    if not tracing:
        print("  bpftrace: it does not run here")
    for kind in ("p", "r"):
        if place:
            ways[f"Frida {kind}"] = (partial(hooked, place, kind, program), HOOKED)
        if tracing:
            ways[f"bpftrace {kind}"] = (partial(bpftrace, kind, program), TRAPS)
    return ways


def uprobe(program: Path, kind: str) -> None:
    """Set the kernel's own probe on the function. Raises OSError where it has none."""
    offset = next(
        int(line.split()[0], 16)
        for line in subprocess.run(
            ["nm", program], check=True, capture_output=True, text=True
        ).stdout.splitlines()
        if line.endswith(" step")
    )
    events = TRACING / "uprobe_events"
    events.write_text(EVENT.format(kind=kind, program=program, offset=offset))
    (TRACING / "events/bench/enable").write_text("1")


def without_uprobes() -> None:
    """Take the kernel's probe away."""
    (TRACING / "events/bench/enable").write_text("0")
    (TRACING / "uprobe_events").write_text("")


def probing() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, padded, unfollowed = (folder / one for one in ("plain", "padded", "unfollowed"))
        for program, flags in ((plain, []), (padded, [PAD]), (unfollowed, UNFOLLOWED)):
            source = str(HERE / "step.c")
            words = ["gcc", "-O2", *flags, source, "-o", str(program)]
            if subprocess.run(words, check=program != unfollowed).returncode:
                print("  pun: only on x86-64")
        made = {
            "pad": (padded, (), CALLS),
            "jump": (plain, (), CALLS),
            "trap": (plain, ("--no-optimize",), TRAPS),
        }
        if unfollowed.exists():
            made["pun"] = (unfollowed, (), CALLS)
        ways: dict[str, tuple[Callable[[int], list[str | Path]], int]] = {}
        for way, (program, options, calls) in made.items():
            for kind in ("p", "r"):
                out = probed(program, kind, *options)
                ways[f"{way} {kind}"] = (partial(called, out), calls)
        for name, more in MORE.items():
            ways[name] = (partial(called, probed(plain, "p", more=more)), CALLS)
        bare = folder / "signal"
        built = subprocess.run(["gcc", "-O2", HERE / "signal.c", "-o", bare], check=False)
        if not built.returncode:
            ways["bare signal"] = (partial(called, bare), TRAPS)
        ways |= others(plain, folder)
        ways["no probe"] = (partial(called, plain), CALLS)
        if unfollowed.exists():
            ways["no pun"] = (partial(called, unfollowed), CALLS)
        found = per_call(ways, folder)
        for kind, what in (("p", "uprobe"), ("r", "uretprobe")):
            try:
                uprobe(plain, kind)
            except OSError as error:
                print(f"  {what}: this kernel has none ({error.strerror})")
                continue
            try:
                found |= per_call({what: (partial(called, plain), TRAPS)}, folder)
            finally:
                without_uprobes()
    print("a probed call, above one that is not")
    for way, ns in found.items():
        if not way.startswith("no "):
            aim = AIMS.get(way.split()[0])
            told = f"  (aim {aim})" if aim else ""
            base = found["no pun" if way.startswith("pun") else "no probe"]
            print(f"  {way:12} {ns - base:12.1f} ns{told}")


if __name__ == "__main__":
    probing()
