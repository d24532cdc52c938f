# SPDX-License-Identifier: MIT
"""What a boot tracer costs: boots of one kernel, untraced and traced, alternately under QEMU.

usage: python bench/boot.py [NAME...]

NAME is a kernel that the tests use (6.1-amd64, 6.1-arm64); by default both. A boot lasts from the
start of QEMU, without KVM, to the panic for want of a root file system. What a device takes is
compared in seconds. The ring in memory has a reader beside QEMU, so there it is processor time, of
both together; patching before the boot and the report behind it are not part of that.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from installed import ensure, kernels

from ftpatch.api.booting import BootWords, boot_kernel
from ftpatch.arch.boot import BootTracer, boot_tracer_of
from ftpatch.boot.machine import Machine, Progress, flat
from ftpatch.boot.plan import BootTracing
from ftpatch.ftrace.filter import Selection
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import Image, open_image

__all__ = ["boots", "ring"]

ROUNDS = 3
NAMES = ("6.1-amd64", "6.1-arm64")
MOST, AIM = 100_000, 3
MANY = 500_000
"""Events by which their rate is measured."""
RING_AIM = 6
LAST = 100_000
"""Events that a flight recorder keeps."""
FTPATCH = (sys.executable, "-m", "ftpatch")


@dataclass(frozen=True)
class Way:
    """A kernel to boot: how it was patched (None: not at all), and where its events go."""

    name: str
    words: Sequence[str] | None
    sink: str
    path: Path


def boots(name: str) -> None:
    """Print the table of one kernel."""
    vmlinux = next(ensure(kernel) for kernel in kernels() if kernel.name == name)
    tracer = boot_tracer_of(read_sites(open_image(vmlinux)).arch.name)
    assert tracer is not None
    with tempfile.TemporaryDirectory(dir=vmlinux.parent) as folder:
        ways = list(_ways(vmlinux, tracer, Path(folder)))
        times: dict[str, list[float]] = {way.name: [] for way in ways}
        events = {way.name: 0 for way in ways}
        for _ in range(ROUNDS):
            for way in ways:
                spent, sent = _boot(way, tracer, Path(folder))
                times[way.name].append(spent)
                events[way.name] = sent // tracer.size(time=False)
    plain = times[ways[0].name]
    print(f"{name}, {ROUNDS} rounds: median seconds from QEMU's start to the panic")
    for way in ways:
        own = times[way.name]
        ratio = statistics.median(a / b for a, b in zip(own, plain, strict=True))
        more = statistics.median(own) - statistics.median(plain)
        rate = f"{events[way.name] / more:9,.0f} events/s" if more > 1 else ""
        aim = f"  (under {AIM})" if way.name == f"all sites, --max {MOST}" else ""
        print(
            f"{way.name:<44} {statistics.median(own):6.2f} s  x{ratio:5.2f} "
            f"{events[way.name]:>9,} events {rate}{aim}"
        )


def ring(name: str) -> None:
    """Print what all events of a boot take through memory."""
    vmlinux = next(ensure(kernel) for kernel in kernels() if kernel.name == name)
    tracer = boot_tracer_of(read_sites(open_image(vmlinux)).arch.name)
    ways = {"all sites": 0, f"all sites, --last {LAST}": LAST}
    spent: dict[str, list[tuple[float, float, int]]] = {way: [] for way in ways}
    plain = []
    with tempfile.TemporaryDirectory(dir=vmlinux.parent) as where:
        path = vmlinux
        if tracer.emulator.flat:
            path = Path(where) / "Image"
            path.write_bytes(flat(open_image(vmlinux)))
        untraced = Way("untraced", None, tracer.sinks[0], path)
        for _ in range(ROUNDS):
            begun = _processor(resource.RUSAGE_CHILDREN)
            _boot(untraced, tracer, Path(where))
            plain.append(_processor(resource.RUSAGE_CHILDREN) - begun)
            for way, last in ways.items():
                spent[way].append(_through_memory(vmlinux, last))
    print(f"{name}, {ROUNDS} rounds: median processor seconds of QEMU and of the reader")
    print(f"{'untraced':<44} {statistics.median(plain):6.2f} s")
    for way, rows in spent.items():
        qemu, reader = (statistics.median(row[part] for row in rows) for part in (0, 1))
        ratio = statistics.median(
            (row[0] + row[1]) / own for row, own in zip(rows, plain, strict=True)
        )
        print(
            f"{way:<44} {qemu:6.2f} s + {reader:5.2f} s  x{ratio:5.2f} {rows[0][2]:>9,} events"
            f"  (at most {RING_AIM})"
        )


def _through_memory(vmlinux: Path, last: int) -> tuple[float, float, int]:
    """One boot: processor seconds of QEMU, and of this process while it ran; events."""
    read = 0.0

    def timed(machine: Machine, kernel: Image, steps: Iterator[Progress]) -> Progress:
        nonlocal read
        begun = _processor(resource.RUSAGE_SELF)
        *_, end = steps
        read = _processor(resource.RUSAGE_SELF) - begun
        return end

    words = BootWords(selection=Selection(), tracing=BootTracing(), last=last)
    with tempfile.TemporaryDirectory(dir=vmlinux.parent) as where:
        begun = _processor(resource.RUSAGE_CHILDREN)
        booted = boot_kernel(vmlinux, Path(where), words, timed)
        spent = _processor(resource.RUSAGE_CHILDREN) - begun
        assert "Unable to mount root fs" in booted.console.read_text(errors="replace")
        assert not booted.ended.lost
    return spent, read, booted.ended.events


def _processor(whose: int) -> float:
    """Processor seconds of this process, or of its children that have ended."""
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def _ways(vmlinux: Path, tracer: BootTracer, folder: Path) -> list[Way]:
    """All ways, the untraced boot first; the kernels are made."""
    first, *others = tracer.sinks
    wanted: list[tuple[str, tuple[str, ...] | None, str]] = [
        ("untraced", None, first),
        (f"all sites, --max {MOST}", ("--max", str(MOST)), first),
        ("-f 'init_*'", ("-f", "init_*"), first),
    ]
    for sink in (first, *others):
        text = f"all sites, --max {MANY}, --sink {sink}"
        wanted.append((text, ("--max", str(MANY), "--sink", sink), sink))
    ways = []
    for number, (text, words, sink) in enumerate(wanted):
        path = vmlinux
        if words is not None:
            path = folder / f"vmlinux{number}"
            command = (*FTPATCH, "enable", str(vmlinux), "--tracer", "boot", "-q", *words)
            subprocess.run((*command, "-o", str(path)), check=True)
        if tracer.emulator.flat:
            image = flat(open_image(path))
            path = folder / f"Image{number}"
            path.write_bytes(image)
        ways.append(Way(text, words, sink, path))
    return ways


def _boot(way: Way, tracer: BootTracer, folder: Path) -> tuple[float, int]:
    """Seconds of one boot, and bytes that were sent."""
    files = {name: str(folder / name) for name in ("stream", "console", "log")}
    emulator = tracer.emulator
    command = [emulator.program, *emulator.command(way.sink, files), "-kernel", str(way.path)]
    begun = time.perf_counter()
    subprocess.run((*command, "-append", emulator.said(way.sink, "")), check=True)
    spent = time.perf_counter() - begun
    assert "Unable to mount root fs" in Path(files["console"]).read_text(errors="replace")
    return spent, Path(files["stream"]).stat().st_size


if __name__ == "__main__":
    for chosen in sys.argv[1:] or NAMES:
        boots(chosen)
        ring(chosen)
