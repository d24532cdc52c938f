# SPDX-License-Identifier: MIT
"""Who called a function, by gdb: it unwinds an untouched kernel's stack by its .debug_frame."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from .gdb_boots import LIMIT, seen_by_gdb
from .independent import Vmlinux
from .qemu import PREFIX, need

__all__ = ["backtraces"]

FRAMES = 40  # of each backtrace

# Runs inside gdb.
SCRIPT = """
gdb.execute("set breakpoint always-inserted on")
gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
gdb.execute("file " + words["symbols"])
connect()
def stop_at(at):
    return gdb.Breakpoint("*%#x" % at, type=gdb.BP_HARDWARE_BREAKPOINT, internal=True)
points = {at: [stop_at(at), words["most"]] for at in words["at"]}
stop_at(words["until"])
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
    tell([here, found])
    points[here][1] -= 1
    if not points[here][1]:
        points[here][0].enabled = False
"""


def backtraces(
    image: Vmlinux, scratch: Path, at: Iterable[int], most: int, until: int
) -> list[tuple[int, list[int]]]:
    """Of each of the first ``most`` times that a boot comes to one of ``at``: that address, and
    those that its callers go on at, the innermost first; up to the address ``until``."""
    symbols = scratch / f"{image.path.parent.name}.frames"
    objcopy = "objcopy" if image.arch in ("x86_64", "i386") else f"{PREFIX[image.arch]}objcopy"
    need(objcopy)
    only = ["--strip-debug", "--keep-section=.debug_frame"]
    subprocess.run([objcopy, *only, image.path, symbols], check=True, timeout=LIMIT)
    words = {"symbols": str(symbols), "at": list(at), "most": most, "until": until}
    try:
        rows = seen_by_gdb(image, scratch, SCRIPT, words | {"frames": FRAMES})
    finally:
        symbols.unlink()
    return [(here, found) for here, found in rows]
