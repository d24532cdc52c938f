# SPDX-License-Identifier: MIT
"""Ratios, not times: each pair is measured alternately in one run, warm, and the median is taken.

usage: python bench/bench.py [VMLINUX]

Without an argument the largest x86-64 vmlinux that the tests on real kernels use is taken.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from installed import ensure, installed, kernels, stream_of

XZ = "xz --check=crc32 --x86 --lzma2=,dict=32MiB"
"""What a 6.1 kernel is compressed with (scripts/xz_wrap.sh)."""
ROUNDS = 5
FTPATCH = (sys.executable, "-m", "ftpatch")


def seconds(command: Sequence[str]) -> float:
    """Wall-clock seconds of a command, which must succeed."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def peak_mb(command: Sequence[str]) -> float:
    """Peak resident memory (MB) of a command's largest process: ru_maxrss of its children."""
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
        "stdout=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command], check=True, capture_output=True, text=True
    )
    return int(done.stdout) / 1024


def alternately(
    ours: Callable[[], float], theirs: Callable[[], float]
) -> tuple[float, float, float]:
    """Medians of both (seconds), and the median of the ratios of each round."""
    pairs = [(ours(), theirs()) for _ in range(ROUNDS)]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )


def report(what: str, result: tuple[float, float, float], at_most: float) -> None:
    """One line of the table."""
    ours, theirs, ratio = result
    print(f"{what:<58} {ours:6.2f} s {theirs:6.2f} s  x{ratio:4.2f}  (at most {at_most})")


def total_mb(command: Sequence[str]) -> float:
    """Most memory (MB) that a command and all its workers have at one time, shared pages counted
    once (the sum of their Pss), looked at every 20 ms."""
    most = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            family = [str(process.pid)]
            for task in Path(f"/proc/{process.pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    family += task.read_text().split()
            held = 0
            for pid in family:
                with contextlib.suppress(OSError, StopIteration):
                    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                    held += int(next(line for line in rollup if line.startswith("Pss:")).split()[1])
            most = max(most, held)
            time.sleep(0.02)
    return most / 1024


def trees() -> None:
    """A tree of modules against readelf, a bzImage against its payload's own decompressor."""
    found = [kernel for kernel in kernels() if kernel.name == "6.1-amd64"]
    if not found:
        print("no 6.1 amd64 kernel among FTPATCH_KERNEL_SET: no tree, no bzImage")
        return
    boot, modules = installed(found[0])
    number = sum(1 for _ in modules.rglob("*.ko"))
    readelf = 'find "$1" -name "*.ko" | xargs readelf -SrW >/dev/null'
    status = (*FTPATCH, "status", str(modules))
    against = ("sh", "-c", readelf, "sh", str(modules))
    seconds(against)  # warm cache
    print(f"{number} modules")
    result = alternately(lambda: seconds(status), lambda: seconds(against))
    report("ftpatch status TREE : find | xargs readelf -SrW", result, 2)
    memory = total_mb(status)
    print(f"{'ftpatch status TREE, memory of all workers':<58} {memory:6.0f} MB  (at most 500)")
    with tempfile.TemporaryDirectory() as folder:
        stream, kind = stream_of(boot, Path(folder) / "stream")
        tool = ("sh", "-c", f'{kind} -dc <"$1" >/dev/null', "sh", str(stream))
        status = (*FTPATCH, "status", str(boot))
        result = alternately(lambda: seconds(status), lambda: seconds(tool))
        report(f"ftpatch status bzImage : {kind} -dc of its payload", result, 1.5)
        if kind == "xz":
            again = f'{kind} -dc <"$1" | {XZ} >/dev/null'
            tool = ("sh", "-c", again, "sh", str(stream))
            words = ["disable", str(boot), "--strip-signature", "--force", "-q"]
            change = (*FTPATCH, *words, "-o", str(Path(folder) / "changed"))
            result = alternately(lambda: seconds(change), lambda: seconds(tool))
            report("ftpatch disable bzImage : xz -dc | xz as its build", result, 1.5)


def kernel() -> Path:
    """The x86-64 vmlinux to measure on."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    found = [ensure(kernel) for kernel in kernels() if kernel.name.endswith("amd64")]
    return max(found, key=lambda path: path.stat().st_size)


def main() -> None:
    """Print the ratios."""
    vmlinux = kernel()
    for _ in range(2):  # warm cache
        with vmlinux.open("rb") as file:
            while file.read(1 << 24):
                pass
    print(f"{vmlinux.stat().st_size / 1e6:.0f} MB vmlinux, {os.cpu_count()} CPUs, {ROUNDS} rounds")
    with tempfile.TemporaryDirectory(dir=vmlinux.parent) as folder:
        output, copy = Path(folder) / "output", Path(folder) / "copy"
        disable = (*FTPATCH, "disable", str(vmlinux), "-o", str(output), "-q")

        def ours() -> float:
            output.unlink(missing_ok=True)
            return seconds(disable)

        def theirs() -> float:
            copy.unlink(missing_ok=True)
            shell = 'cp --reflink=never "$1" "$2" && sync "$2"'
            return seconds(("sh", "-c", shell, "sh", str(vmlinux), str(copy)))

        report("ftpatch disable -o OUT : cp --reflink=never + sync", alternately(ours, theirs), 2.5)
        output.unlink(missing_ok=True)
        memory = peak_mb(disable)
        print(f"{'ftpatch disable, peak resident memory':<58} {memory:6.0f} MB  (at most 300)")
    imports = (sys.executable, "-c", "import numpy, typer, rich")
    status = (*FTPATCH, "status", str(vmlinux))
    result = alternately(lambda: seconds(status), lambda: seconds(imports))
    report("ftpatch status : import numpy, typer, rich", result, 1.5)
    trees()


if __name__ == "__main__":
    main()
