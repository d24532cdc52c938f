# SPDX-License-Identifier: MIT
"""Who called a function, by gdb: it unwinds an untouched kernel's stack by its .debug_frame."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path

from .boot_oracle import SAME
from .independent import Vmlinux
from .qemu import APPEND, MACHINES, OBJCOPY, need, raw_image

__all__ = ["GDB", "PROGRAMS", "backtraces", "run_gdb"]

GDB = "gdb-multiarch"
LIMIT = 600  # seconds; it takes 10 to 20
FRAMES = 40  # of each backtrace
# gdb sees registers of 64 bits in the other one.
PROGRAMS = {"i386": ("qemu-system-i386", "-cpu", "qemu64")}

# Runs inside gdb. QEMU's own breakpoints change nothing in the guest.
SCRIPT = """
import gdb, json
words = json.load(open({words!r}))
gdb.execute("set pagination off")
gdb.execute("set confirm off")
gdb.execute("set breakpoint always-inserted on")
gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
gdb.execute("file " + words["symbols"])
gdb.execute("target remote | exec " + words["machine"])
def stop_at(at):
    return gdb.Breakpoint("*%#x" % at, type=gdb.BP_HARDWARE_BREAKPOINT, internal=True)
mask = (1 << words["bits"]) - 1
points = {{at: [stop_at(at), words["most"]] for at in words["at"]}}
stop_at(words["until"])
with open(words["out"], "w") as out:
    while True:
        gdb.execute("continue", to_string=True)
        frame = gdb.newest_frame()
        here = frame.pc() & mask
        if here not in points:
            break
        found = []
        while len(found) < words["frames"]:
            try:
                frame = frame.older()
            except gdb.error:
                break
            if frame is None:
                break
            found.append(frame.pc() & mask)
        out.write(json.dumps([here, found]) + "\\n")
        points[here][1] -= 1
        if not points[here][1]:
            points[here][0].enabled = False
gdb.execute("kill")
"""


def backtraces(
    image: Vmlinux, scratch: Path, at: Iterable[int], most: int, until: int
) -> list[tuple[int, list[int]]]:
    """Of each of the first ``most`` times that a boot comes to one of ``at``: that address, and
    those that its callers go on at, the innermost first; up to the address ``until``."""
    folder = scratch / f"{image.path.parent.name}.frames"
    folder.mkdir()
    out, script, symbols = folder / "out", folder / "script.py", folder / "symbols"
    objcopy = OBJCOPY.get(image.arch, "objcopy")
    program, *more = PROGRAMS.get(image.arch, MACHINES[image.arch][:1])
    for name in (GDB, objcopy, program):
        need(name)
    only = ["--strip-debug", "--keep-section=.debug_frame"]
    subprocess.run([objcopy, *only, image.path, symbols], check=True, timeout=LIMIT)
    append = f"{APPEND[image.arch]} nokaslr"
    with raw_image(image.path, image.arch, folder) as kernel:
        bare = [word for word in MACHINES[image.arch][1:] if word not in ("-serial", "stdio")]
        machine = [program, *more, *bare, *SAME, "-gdb", "stdio", "-S"]
        machine += ["-kernel", str(kernel), "-append", append]
        words = {
            "symbols": str(symbols), "machine": shlex.join(machine), "at": list(at), "most": most,
            "until": until, "out": str(out), "frames": FRAMES, "bits": image.bits,
        }  # fmt: skip
        (folder / "words").write_text(json.dumps(words))
        script.write_text(SCRIPT.format(words=str(folder / "words")))
        run_gdb([GDB, "-nx", "-batch", "-x", str(script)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return [(here, found) for here, found in rows]


def run_gdb(command: list[str]) -> None:
    """gdb, and the QEMU that it starts."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    ) as gdb:  # fmt: skip
        timer = threading.Timer(LIMIT, os.killpg, (gdb.pid, signal.SIGKILL))
        timer.start()
        try:
            said, _ = gdb.communicate()
        finally:
            timer.cancel()
    assert gdb.returncode == 0, said
