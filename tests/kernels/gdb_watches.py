# SPDX-License-Identifier: MIT
"""Who accesses a variable, by gdb's own watchpoints on an untouched kernel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .gdb_boots import seen_by_gdb
from .independent import Vmlinux

__all__ = ["watched_by_gdb"]

# Runs inside gdb. It has no symbols: the architecture is what the machine says.
SCRIPT = """
gdb.execute("set can-use-hw-watchpoints 8")
connect()
left = words["most"]
class Access(gdb.Breakpoint):
    def __init__(self, name, at):
        text = "*(unsigned int *) %#x" % at
        super().__init__(text, gdb.BP_WATCHPOINT, gdb.WP_ACCESS, internal=True)
        self.name_, self.at = name, at
    def stop(self):
        global left
        held = gdb.selected_inferior().read_memory(self.at, 4)
        value = int.from_bytes(bytes(held), "little")
        tell([self.name_, gdb.newest_frame().pc() & mask, value])
        left -= 1
        return left == 0
for name, at in words["at"].items():
    Access(name, at)
gdb.execute("continue", to_string=True)
"""


def watched_by_gdb(
    image: Vmlinux, scratch: Path, at: Mapping[str, int], most: int
) -> list[tuple[str, int, int]]:
    """The first ``most`` accesses to variables of four bytes: the name, where the instruction ends,
    and the value then."""
    rows = seen_by_gdb(image, scratch, SCRIPT, {"at": dict(at), "most": most})
    return [(name, pc, value) for name, pc, value in rows]
