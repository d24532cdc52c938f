# SPDX-License-Identifier: MIT
"""Runs every verb on broken images, in a process of its own: Capstone and Keystone are native code.

    python -m tests.support.fuzz SEED COUNT FOLDER [NAME...]

Each case is announced before it runs, so that who started this process knows which one killed it.
What is wrong is printed as a line that begins with ``wrong:``.
"""

from __future__ import annotations

import random
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from tests.support.command import Result, ftpatch
from tests.support.cross_images import CROSS_PROGRAMS, cross_program
from tests.support.images import (
    arm64_callops_kernel,
    arm64_rela_kernel,
    arm64_relr_kernel,
    fentry_kernel,
)
from tests.support.mutate import forged, mutated
from tests.support.samples import SAMPLES

__all__ = ["commands", "judge", "main", "set_alarms"]

SECONDS, PATIENCE = 10, 120
"""More than any verb may take on a file of some kilobytes: of processors, and in all."""
MEMORY = 1_500_000
"""kB that the whole process may take at most."""
BIG = {"pad-glibc-static"}


class TooSlow(BaseException):
    """Not caught by the verbs."""


def set_alarms() -> None:
    """Have judge()'s alarms raise."""

    def ring(_: int, __: FrameType | None) -> None:
        raise TooSlow

    signal.signal(signal.SIGALRM, ring)
    signal.signal(signal.SIGPROF, ring)


def bases(folder: Path, names: list[str]) -> dict[str, bytes]:
    """Samples and made images, as they are and with a journal."""
    found = {s.name: s.data for s in SAMPLES if s.name not in BIG}
    made = (fentry_kernel, arm64_rela_kernel, arm64_relr_kernel, arm64_callops_kernel)
    found |= {make.__name__: make().build() for make in made}
    found |= {f"{name}-cross": cross_program(name).build() for name in CROSS_PROGRAMS}
    if names:
        found = {name: found[name] for name in names}
    for name, data in list(found.items()):
        path = folder / "base"
        path.write_bytes(data)
        few = ["-f", "vfs_*"] if "callops" in name else []
        if ftpatch("enable", "--in-place", path, *few).code == 0:
            ftpatch("disable", "--in-place", path, "-f", "*", "--keep-records")
            found[f"{name}+journal"] = path.read_bytes()
        path.unlink()
    return found


def commands(path: Path, original: Path, rng: random.Random) -> Iterator[list[str | Path]]:
    """Every verb, with some of its options."""
    yield ["status", "--json", path]
    yield ["list", path]
    yield ["check", "--json", path]
    yield ["undo", "--all", path, "-o", path.with_name("undone")]
    yield ["diff", path]
    yield ["diff", original, path, *rng.choice(([], ["--stat"], ["--json"]))]
    yield rng.choice(
        [
            ["enable", path, "--json"],
            ["enable", path, "--keep-records"],
            ["enable", path, "-f", "*a*"],
            ["enable", path, "--site", "ftrace_call", "--to", "ftrace_stub"],
            ["enable", path, "--site", "ftrace_graph_call"],
        ]
    )
    yield rng.choice([["disable", path], ["disable", path, "--nop", "nop5", "--json"]])


def _complaint(result: Result) -> str:
    if result.code not in (0, 1, 2):
        return f"exit {result.code}"
    for words in ("internal error", "Traceback", "Warning", "out of memory"):
        if words in result.err:
            return result.err.strip()
    if result.code == 2 and not result.err.startswith("ftpatch: "):
        return f"exit 2 without a reason: {result.err!r}"
    return ""


def judge(path: Path, data: bytes, arguments: list[str | Path]) -> str:
    """Run one command; what is wrong with what it did, or nothing."""
    signal.alarm(PATIENCE)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        result = ftpatch(*arguments)
    except TooSlow:
        return f"took more than {SECONDS} or {PATIENCE} seconds:\n{traceback.format_exc()}"
    except Exception:
        return f"escaped: {traceback.format_exc()}"
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    complaint = _complaint(result)
    if path.read_bytes() != data:
        path.write_bytes(data)
        complaint += " changed its input"
    output = path.with_name(path.name + ".ftpatch")
    if output.exists():
        if result.code:
            complaint += f" wrote with exit {result.code}"
        written = output.read_bytes()
        if written != data:
            undone = ftpatch("undo", output)
            complaint += _complaint(undone)
            if undone.code or output.read_bytes() != data:
                complaint += f" undo differs: {undone}"
        output.unlink()
    path.with_name("undone").unlink(missing_ok=True)
    left = {p.name for p in path.parent.iterdir()} - {path.name, "original"}
    return complaint + (f" left {left}" if left else "")


def main() -> None:
    """Run COUNT cases of each base."""
    seed, count, folder, *names = sys.argv[1:]
    set_alarms()
    path, original = Path(folder, "image"), Path(folder, "original")
    found = bases(Path(folder), names)
    everything = list(found.values())
    for name, good in found.items():
        original.write_bytes(good)
        for case in range(int(count)):
            rng = random.Random(f"{seed} {name} {case}")
            data, what = mutated(good, rng.choice(everything), rng)
            if case % 4 == 3:
                data, what = forged(good, rng)
            path.write_bytes(data)
            for arguments in commands(path, original, rng):
                shown = " ".join(getattr(a, "name", str(a)) for a in arguments)
                print(f"case: {seed} {name} {case}: {what}: {shown}", flush=True)
                if complaint := judge(path, data, arguments):
                    text = complaint.replace("\n", "\n    ")
                    print(f"wrong: {name} {case} ({what}): {shown}: {text}", flush=True)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if peak > MEMORY:
                print(f"wrong: {name} {case} ({what}): {peak} kB of memory", flush=True)
                return
    print("done", flush=True)


if __name__ == "__main__":
    main()
